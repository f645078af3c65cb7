"""Two templates for one model: small ones of which we know where they part, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.text.certify import PROBES, Comparison, compare
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.spans import MaskPolicy
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.graph.workspaces import TOKENIZER

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
TRIMS = TURNS.replace("m.content", "m.content | trim")
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + TURNS
LED = TURNS.replace("{{ '<|im_start|>' + m.role + '\\n'", "{{ '<|im_start|>' + m.role + ('\\nA: ' if m.role == 'assistant' else '\\n')")
LED_PROMPT = PROMPT.replace("assistant\\n", "assistant\\nA: ")


def compared(first: str, second: str) -> dict[str, Comparison]:
    vocabulary = load_vocabulary(TOKENIZER)
    encoder = Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), MaskPolicy({"assistant": "train"}, "mask"))
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
