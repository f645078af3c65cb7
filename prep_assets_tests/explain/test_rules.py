"""What each trainer's rules train of one ChatML chat, written out by hand; and the reasons that are given where ours differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import ConfigError
from prep_assets.extensions.doctor.labels import (
    AFTER_STOP,
    HEADER,
    NO_STOP,
    NOTHING,
    PIECES,
    RULES,
    TYPED,
    Chat,
    Diagnosis,
    Ours,
    Stops,
    diagnose,
    meeting,
)
from prep_assets.samples import Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.conftest import ROOT

TOKENIZER = str(ROOT / "configs" / "tokenizer")
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Two plus two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "And three?"},
    {"role": "assistant", "content": "Seven."},
]
TRAINED = {
    "axolotl": ["Four.<|im_end|>", "Seven.<|im_end|>"],
    "llamafactory": ["Four.<|im_end|>\n", "Seven.<|im_end|>\n"],
    "torchtune": ["<|im_start|>assistant\nFour.<|im_end|>\n", "<|im_start|>assistant\nSeven.<|im_end|>\n"],
    "open-instruct": ["Four.<|im_end|>\n", "Seven.<|im_end|>\n"],
    "verl": ["Four.<|im_end|>\n", "Seven.<|im_end|>\n"],
    "slime": ["Four.<|im_end|>\n", "Seven.<|im_end|>\n"],
    "nemo-rl": ["<|im_start|>assistant\nFour.<|im_end|>\n", "<|im_start|>assistant\nSeven.<|im_end|>\n"],
}


@pytest.fixture
def tokenizer() -> Any:
    """The sample tokenizer; ``<|im_end|>`` is its end-of-text token, as in most ChatML models."""
    from transformers import PreTrainedTokenizerFast

    opened = PreTrainedTokenizerFast.from_pretrained(TOKENIZER)
    opened.bos_token, opened.eos_token = None, "<|im_end|>"
    return opened


@pytest.fixture(scope="module")
def ours() -> Ours:
    return Ours.open(TOKENIZER, "tokenizer")


def _sample(messages: list[dict[str, str]]) -> Sample:
    found = apply(convert_with("messages", gives=Sample), {"messages": messages})
    assert isinstance(found, Sample)
    return found


def _trained(tokenizer: Any, ids: list[int], labels: list[bool]) -> list[str]:
    texts: list[list[int]] = []
    for at, label in enumerate(labels):
        if label and (at == 0 or not labels[at - 1]):
            texts.append([])
        if label:
            texts[-1].append(ids[at])
    return [tokenizer.decode(text) for text in texts]


@pytest.mark.parametrize("trainer", sorted(TRAINED))
def test_what_a_trainer_trains(trainer: str, tokenizer: Any) -> None:
    ids, labels = RULES[trainer][1](Chat(tokenizer), CHAT, None)
    assert len(ids) == len(labels)
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(CHAT, tokenize=False)
    assert _trained(tokenizer, ids, labels) == TRAINED[trainer]


def test_trl_trains_what_the_tags_enclose(tokenizer: Any, ours: Ours) -> None:
    assert _trained(tokenizer, *RULES["trl"][1](Chat(tokenizer), CHAT, None)) == TRAINED["axolotl"]
    assert _diagnosed(ours, tokenizer, "trl").equal == 1
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(Stops, match="generation"):
        RULES["trl"][1](Chat(tokenizer), CHAT, None)


def test_nemo_rl_adds_begin_and_end_and_trains_what_a_template_rewrites_again(tokenizer: Any) -> None:
    tokenizer.bos_token, tokenizer.eos_token = "<|endoftext|>", "!"
    tokenizer.chat_template = "{% for m in messages %}{{ m.content if loop.last else m.content[:2] }} {% endfor %}"
    ids, labels = RULES["nemo-rl"][1](Chat(tokenizer), CHAT[1:], None)
    assert tokenizer.decode(ids) == "<|endoftext|>Two plus two?  Four.  And three?  Seven. !", "each as if it were the last one"
    assert _trained(tokenizer, ids, labels) == [" Four. ", " Seven. !"]


def _diagnosed(ours: Ours, tokenizer: Any, trainer: str, messages: list[dict[str, str]] = CHAT) -> Diagnosis:
    return diagnose(ours, tokenizer, trainer, [("a.jsonl:1", _sample(messages))])


def test_equal_labels(ours: Ours, tokenizer: Any) -> None:
    found = _diagnosed(ours, tokenizer, "axolotl")
    assert (found.rows, found.compared, found.equal, dict(found.reasons)) == (1, 1, 1, {})


def test_reasons(ours: Ours, tokenizer: Any) -> None:
    assert dict(_diagnosed(ours, tokenizer, "open-instruct").tokens) == {("theirs", AFTER_STOP): 2}
    torchtune = _diagnosed(ours, tokenizer, "torchtune")
    assert set(torchtune.reasons) == {("theirs", AFTER_STOP), ("theirs", HEADER)}
    assert [each.text for each in torchtune.shown[0].differences] == ["<|im_start|>assistant\n", "\n"] * 2


@pytest.mark.parametrize(
    ("trainer", "renderer", "said"),
    [
        ("prime-rl", None, "prime-rl needs --renderer"),
        ("verl", "qwen3", "verl has no renderers; prime-rl and tinker have"),
        ("tinkr", None, "no trainer 'tinkr'"),
        ("prime-rl", "gwen3", "renderer"),
    ],
)
def test_which_renderer(ours: Ours, tokenizer: Any, trainer: str, renderer: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        diagnose(ours, tokenizer, trainer, [], renderer=renderer)


def test_a_stop_token_that_axolotl_does_not_know(ours: Ours, tokenizer: Any) -> None:
    tokenizer.eos_token = "<|endoftext|>"
    assert dict(_diagnosed(ours, tokenizer, "axolotl").tokens) == {("ours", NO_STOP): 2}


def test_an_answer_like_the_dummy_is_not_trained(ours: Ours, tokenizer: Any) -> None:
    found = _diagnosed(ours, tokenizer, "axolotl", [*CHAT[:2], {"role": "assistant", "content": "[[dummy_message]]"}])
    assert ("ours", NOTHING) in found.reasons


def test_ids_of_typed_control_tokens(ours: Ours, tokenizer: Any) -> None:
    found = _diagnosed(ours, tokenizer, "axolotl", [{"role": "user", "content": "Say <|im_end|> twice"}, CHAT[2]])
    assert ("ids", TYPED) in found.reasons


def test_ids_of_pieces(tokenizer: Any, tmp_path: Path) -> None:
    template = tmp_path / "spaced.jinja"
    template.write_text(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + ': ' + m.content + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant: ' }}{% endif %}",
        "utf-8",
    )
    tokenizer.chat_template = template.read_text("utf-8")
    found = _diagnosed(Ours.open(TOKENIZER, str(template)), tokenizer, "llamafactory", CHAT[1:3])
    assert [each.reason for row in found.shown for each in row.differences if each.side == "ids"] == [PIECES]


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_where_ids_meet(one: list[int], other: list[int]) -> None:
    low, high = meeting(np.array(one, np.uint32), other)
    assert one[:low] == other[:low]
    assert not high or one[-high:] == other[-high:]
    assert low + high <= min(len(one), len(other))
    assert low + high == len(one) == len(other) or one[low : len(one) - high] != other[low : len(other) - high] or one == other
