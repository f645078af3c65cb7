"""Structural tokens that are not flagged special: found by rendering, text where somebody types them, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

from prep_assets.caches import CACHES
from prep_assets.errors import ConfigError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets.text import template as templates
from prep_assets.text.engines import RoutedEngine, choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.suspects import edge_set, typed
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.graph.workspaces import CONFIGS, build, domain, jsonl, minimal, workspace_in

PLAIN = ("<think>", "</think>", "<tool_call>", "<｜User｜>")
QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(*plain: str | AddedToken, special: tuple[str, ...] = ()) -> Tokenizer:
    """The shipped tokenizer with some added tokens more."""
    made = Tokenizer.from_file(str(CONFIGS / "tokenizer" / "tokenizer.json"))
    made.add_tokens(list(plain))
    made.add_special_tokens(list(special))
    return made


def vocabulary(*plain: str | AddedToken, template: str = QWEN) -> Vocabulary:
    return Vocabulary("toy", tokenizer(*plain), {"eos_token": "<|im_end|>"}, template)


def bound(opened: Vocabulary) -> tuple[Vocabulary, ChatTemplate]:
    template = load_template("tokenizer", opened)
    return bind(opened, template), template


def test_a_token_that_the_template_writes_is_control_and_one_that_it_does_not_write_is_not() -> None:
    found, template = bound(vocabulary(*PLAIN))
    assert set(found.control) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>", "<think>", "</think>"}
    assert template.control == tuple(sorted(found.control))


def test_a_token_that_only_a_render_shows_is_found() -> None:
    spelled = QWEN.replace("<think>", "{{ '<th' + 'ink>' }}")
    assert "<think>" not in spelled
    assert "<think>" in bound(vocabulary(*PLAIN, template=spelled))[0].control


def test_a_token_of_a_branch_that_no_probe_takes_is_found() -> None:
    hidden = QWEN + "{% if only_in_a_full_moon %}<tool_call>{% endif %}"
    assert "<tool_call>" in bound(vocabulary(*PLAIN, template=hidden))[0].control


@pytest.mark.parametrize(("changed", "renders"), [("", 0), (" ", 1)])
def test_what_a_template_writes_is_found_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, renders: int
) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    rendered: list[ChatTemplate] = []
    monkeypatch.setattr(templates, "probe_renders", lambda template: (rendered.append(template), ("<think>",))[1])
    for source in (QWEN + "once", QWEN + "once" + changed):
        CACHES["tokens of templates"].clear()  # as in another process
        assert ChatTemplate("toy", source, {}).writes(["<think>", "<tool_call>"]) == ("<think>",)
    assert len(rendered) == 1 + renders


def test_white_space_and_words_that_were_added_to_a_vocabulary_stay_text() -> None:
    text = "{% for m in messages %}  assistant: {{ m.content }}...<|im_end|>{% endfor %}"
    assert set(bound(vocabulary("  ", "assistant", "...", template=text))[0].control).isdisjoint({"  ", "assistant", "..."})


@pytest.mark.parametrize("reference_only", [True, False])
def test_typed_ones_are_encoded_as_a_tokenizer_without_them_does(reference_only: bool) -> None:
    """Audit W8: `<think>` in a question became the structural id, in both engines."""
    opened, _ = bound(vocabulary(*PLAIN[:2]))
    engine = choose_engine(opened, reference_only=reference_only).first
    assert isinstance(engine, RoutedEngine) is not reference_only
    texts = [*edge_set(), *typed(opened.control)]
    without = tokenizer()
    without.encode_special_tokens = True
    expected = without.encode_batch(texts, add_special_tokens=False)
    found = engine.encode(texts)
    assert np.array_equal(found.ids, np.concatenate([np.array(each.ids, np.uint32) for each in expected]))
    assert not np.isin(found.ids, list(opened.control.values())).any()


@pytest.mark.parametrize("reference_only", [True, False])
def test_added_tokens_that_are_text_stay_whole_between_control_tokens(reference_only: bool) -> None:
    """A word that was added after `<think>` keeps its id where `<think>` is text."""
    opened, _ = bound(vocabulary("<think>", "</think>", "Zyxwv"))
    word = opened.backend.token_to_id("Zyxwv")
    found = choose_engine(opened, reference_only=reference_only).first.encode(["a Zyxwv <think>"]).ids.tolist()
    assert word in found and opened.control["<think>"] not in found


def test_a_tokenizer_is_another_one_for_builds_when_its_control_tokens_are() -> None:
    opened = vocabulary(*PLAIN)
    assert bound(opened)[0].hash != opened.hash
    assert bound(vocabulary())[0].hash == vocabulary().hash


@pytest.mark.parametrize(("flag", "content"), [("rstrip", "<|turn|>"), ("lstrip", "<|turn|>"), ("single_word", "<|turn|>")])
def test_flags_that_change_the_ids_around_a_token_are_refused_by_name(flag: str, content: str) -> None:
    """transformers issue 32136: `rstrip` on `<|assistant|>` swallowed the line break that the template writes after it."""
    flagged = AddedToken(content, special=True, normalized=False, **{flag: True})
    text = "{% for m in messages %}" + content + "\n{{ m.content }}<|im_end|>\n{% endfor %}"
    opened = Vocabulary("toy", tokenizer(special=(flagged,)), {}, text)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"<|turn|>.*{flag}: true".replace("|", r"\|")):
        bound(opened)
    bound(Vocabulary("toy", opened.backend, {}, QWEN))  # a template that does not write it is fine


def test_flags_without_effect_are_no_reason() -> None:
    flagged = AddedToken("<|turn|>", special=True, normalized=True)
    bound(Vocabulary("toy", tokenizer(special=(flagged,)), {}, "<|turn|>" + QWEN))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "qwen"
    made.mkdir()
    tokenizer(*PLAIN).save(str(made / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|pad|>", "chat_template": QWEN}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def _built(tmp_path: Path, folder: Path, **options: Any) -> tuple[Workspace, Published]:
    typed_ones = [{"role": "user", "content": "What does <think> do in </think>?"}, {"role": "assistant", "content": "It opens a thought."}]
    own = [{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "Greet.", "content": "Hello!"}]
    source = jsonl(tmp_path / "rows.jsonl", [{"messages": typed_ones}, {"messages": own}])
    options = {**options, "tokenizer": str(folder)}
    workspace = workspace_in(tmp_path / "ws", minimal("sft", {"chats": domain(source, "messages")}, **options))
    build(workspace, "sft_raw", "chats")
    return workspace, build(workspace, "sft_tokens", "chats")


def test_a_build_counts_them_and_writes_them_as_text(tmp_path: Path, folder: Path) -> None:
    """Audit W8: `control_tokens_in_content` was 0, and the question held structural ids."""
    _, published = _built(tmp_path, folder)
    assert published.manifest.counts["control_tokens_in_content"] == 2


def test_a_build_can_refuse_them(tmp_path: Path, folder: Path) -> None:
    _, published = _built(tmp_path, folder, special_in_content="refuse")
    assert published.manifest.counts["refused"] == {"render/control_token_in_content": 1}
