"""Certificates: where generation stops, what is worth knowing of a template and a tokenizer, and two templates compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.config.mask import MaskPolicy
from prep_assets.extensions.doctor.compare import Comparison, compare
from prep_assets.extensions.exports.assets import generation_stops
from prep_assets.text.certify import PROBES, certify
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.graph.workspaces import CONFIGS, SHIPPED, TOKENIZER, build, workspace_in
from prep_assets_tests.masks.bound import bind_source
from prep_assets_tests.text.matrix.cells import Entry, published, shipped

PUBLISHED = {
    "diffusion_gemma": ("<turn|>", "<|tool_response>"),
    "glm4moe": ("<|observation|>", "<|user|>"),
    "gptoss": ("<|return|>", "<|call|>"),
    "llama3_1": ("<|eot_id|>",),
    "qwen3": ("<|im_end|>",),
}


def stops(entry: Entry) -> tuple[str, ...]:
    special = {"bos_token": "<bos>", "eos_token": "</s>"}
    return generation_stops(ChatTemplate(entry.name, entry.source, special, {}, tuple(sorted({*entry.model.control, *special.values()}))))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("glm4", {"<|user|>", "<|observation|>"}), ("qwen", {"<|im_end|>"}), ("llama3", {"<|eot_id|>"}), ("plain", {"</s>"})],
)
def test_shipped_templates(name: str, expected: set[str]) -> None:
    """A tool call of GLM ends with another token than its answer: a model that waits for `<|user|>` alone writes the tool's result itself."""
    assert set(stops(shipped()[name])) == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(real_data: Path, name: str) -> None:
    assert set(stops(published(real_data)[name])) == set(PUBLISHED[name])


def test_a_token_that_stands_inside_an_answer_is_no_stop() -> None:
    """As in gpt-oss, where an earlier answer ends with the token that ends each thought."""
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|a|>{% if m.reasoning_content %}{{ m.reasoning_content }}<|end|><|b|>{% endif %}"
        "{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}{% else %}<|u|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|a|>{% endif %}"
    )
    control = ("<|a|>", "<|b|>", "<|end|>", "<|return|>", "<|u|>")
    assert generation_stops(ChatTemplate("own", source, {}, {}, control)) == ("<|return|>",)
    plain = source.replace("<|b|>", "").replace("{{ m.reasoning_content }}<|end|>", "{{ m.reasoning_content }}")
    assert generation_stops(ChatTemplate("own", plain, {}, {}, control)) == ("<|return|>", "<|end|>")


# Findings of a certificate: stop tokens that servers do not know, control tokens that a base never saw.


def opened_with(eos: str, template: str | None) -> Vocabulary:
    backend = Tokenizer.from_file(str(CONFIGS / "tokenizer" / "tokenizer.json"))
    backend.add_special_tokens(["<|eot_id|>"])
    return Vocabulary("toy", backend, {"eos_token": eos}, template)


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def findings(eos: str, own: str | None, used: str = "tokenizer") -> tuple[str, ...]:
    opened = opened_with(eos, own)
    return certify(load_template(used, opened), opened).findings


def test_a_stop_token_that_is_not_the_end_of_text() -> None:
    """QwenLM/Qwen3 issue 927, open-r1 issue 603: answers end with `<|im_end|>`, servers stop at `<|endoftext|>`."""
    (finding,) = findings("<|endoftext|>", CHATML)
    assert "answers end with '<|im_end|>'" in finding and "eos_token is '<|endoftext|>'" in finding
    assert findings("<|im_end|>", CHATML) == ()


@pytest.mark.parametrize("own", [None, "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>\n{% endfor %}"])
def test_control_tokens_that_the_base_never_saw(own: str | None) -> None:
    """unsloth issue 658: a base model, whose `<|eot_id|>` nobody trained, and an instruct template that writes it."""
    (finding,) = findings("<|im_end|>", own, "chatml")
    assert "'<|im_start|>'" in finding and "'<|eot_id|>'" not in finding
    assert ("no template of its own" in finding) is (own is None)


def test_the_certificate_on_disk_has_them(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    certificate = json.loads((build(workspace, "sft_template").directory / "certificate.json").read_text("utf-8"))
    assert certificate["findings"] == [
        "answers end with '<|im_end|>', and the tokenizer's eos_token is '<|endoftext|>': a server that stops at eos_token only never stops. "
        "Serve the model with both as stop tokens"
    ]


# Two templates for one model: small ones of which we know where they part, and the command.

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
TRIMS = TURNS.replace("m.content", "m.content | trim")
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + TURNS
LED = TURNS.replace("{{ '<|im_start|>' + m.role + '\\n'", "{{ '<|im_start|>' + m.role + ('\\nA: ' if m.role == 'assistant' else '\\n')")
LED_PROMPT = PROMPT.replace("assistant\\n", "assistant\\nA: ")


def compared(first: str, second: str) -> dict[str, Comparison]:
    vocabulary = load_vocabulary(TOKENIZER)
    encoder = Encoder(
        vocabulary, choose_engine(vocabulary, reference_only=True), MaskPolicy(mask={"assistant": "train"}, mask_default="mask")
    )
    both = (
        ChatTemplate(name, source, vocabulary.special, control=tuple(vocabulary.control)) for name, source in (("a", first), ("b", second))
    )
    return {each.chat: each for each in compare(*both, encoder)}


def differing(first: str, second: str) -> dict[str, str]:
    return {chat: each.outcome for chat, each in compared(first, second).items() if each.differs}


def test_a_template_equals_itself_on_every_probe() -> None:
    assert differing(TURNS + PROMPT, TURNS + PROMPT) == {}
    assert list(compared(TURNS, TURNS)) == ["generation prompt", *PROBES]


def test_text_that_differs_is_shown_where_it_parts() -> None:
    assert differing(TURNS + PROMPT, TRIMS + PROMPT) == {"white space": "text"}
    found = compared(TURNS + PROMPT, TRIMS + PROMPT)["white space"]
    assert " What" in found.first and "\\nWhat" in found.second


def test_one_that_refuses_is_named_with_its_reason() -> None:
    assert differing(TURNS + PROMPT, NO_SYSTEM + PROMPT) == {"system": "one refuses"}
    found = compared(TURNS + PROMPT, NO_SYSTEM + PROMPT)["system"]
    assert found.first == "renders" and "no system turn" in found.second


def test_equal_text_with_another_mask_is_found() -> None:
    """What stands before an answer is the model's to write, unless the generation prompt has it."""
    found = compared(LED + PROMPT, LED + LED_PROMPT)
    assert found["generation prompt"].outcome == "text"
    assert found["plain"].outcome == "mask"
    assert found["plain"].first.startswith("trains token") and found["plain"].second.startswith("masks token")


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_ends_with_1_where_they_differ(tmp_path: Path, as_json: bool) -> None:
    (tmp_path / "trims.jinja").write_text(TRIMS + PROMPT)
    (tmp_path / "keeps.jinja").write_text(TURNS + PROMPT)
    command = ["certify", str(tmp_path / "keeps.jinja"), "--tokenizer", TOKENIZER, *(["--json"] if as_json else [])]
    same = CliRunner().invoke(app, [*command, "--against", TOKENIZER])
    assert same.exit_code == 0, same.output
    other = CliRunner().invoke(app, [*command, "--against", str(tmp_path / "trims.jinja")])
    assert other.exit_code == 1
    if as_json:
        assert [each["chat"] for each in json.loads(other.output) if each["outcome"] == "text"] == ["white space"]
    else:
        assert "1 of 14 kinds of chat differ" in other.output and "equal in all 14 kinds of chat" in same.output


NO_THINK = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' and HISTORY %}{{ BLOCK }}{% endif %}"
    "{{ m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + BLOCK }}{% endif %}"
)


@pytest.mark.parametrize(("history", "wrong"), [("loop.last", {"several rounds"}), ("true", set()), ("false", {"plain", "several rounds"})])
def test_an_answer_behind_a_prompt_that_no_server_sends_is_not_right(history: str, wrong: set[str]) -> None:
    """By definition: the prompt of turn k is the render of the k messages before it, with the generation prompt."""
    source = NO_THINK.replace("HISTORY", history).replace("BLOCK", "'<think></think>'")
    chats = {kind: said for kind, said in certify(bind_source(source).template).chats.items() if kind in ("plain", "several rounds")}
    assert {kind for kind, said in chats.items() if said != "right"} == wrong
    assert all(
        said.startswith("unserved_prompt: turn 1 is trained behind ") and "<think></think>" in said
        for said in chats.values()
        if said != "right"
    )
