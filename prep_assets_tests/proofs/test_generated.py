"""What a model generates by the prefix property, against stretches that are written down by hand."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.generated import generated, stop_within
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, turn
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.masks.bound import SHIPPED, bind
from prep_assets_tests.text.matrix.cells import Cell, Entry, _encoder, cell, published, shipped
from prep_assets_tests.text.matrix.chats import KINDS

Messages = Sequence[tuple[str, str]]
WORD = st.text(st.sampled_from("ab \n<|"), min_size=1, max_size=6).filter(str.strip)


def chatml(messages: Messages, prompted: bool) -> str:
    text = "".join(f"<|{role}|>\n{content}<|end|>\n" for role, content in messages)
    return text + "<|assistant|>\n" * prompted


def forgetful(messages: Messages, prompted: bool) -> str:
    """Only the last answer keeps its thoughts, which stand before a semicolon."""
    shown = [(role, content if at == len(messages) - 1 else content.rpartition(";")[2]) for at, (role, content) in enumerate(messages)]
    return chatml(shown, prompted)


def bare(messages: Messages, prompted: bool) -> str:
    return chatml(messages, False)


def found(render: object, messages: Messages) -> list[str | None]:
    """What is generated of each answer."""
    assert callable(render)
    whole = render(messages, False)
    spans = [generated(whole, at, lambda count, prompted: render(messages[:count], prompted)) for at in range(1, len(messages), 2)]
    return [None if span is None else whole[slice(*span)] for span in spans]


TALK = [("user", "Hi"), ("assistant", "hm;Hello!"), ("user", "Bye"), ("assistant", "so;Ciao.")]


def test_by_hand() -> None:
    assert found(chatml, TALK) == ["hm;Hello!<|end|>", "so;Ciao.<|end|>"]
    assert found(forgetful, TALK) == [None, "so;Ciao.<|end|>"], "the render before shows what the whole one does not"
    assert found(bare, TALK) == ["<|assistant|>\nhm;Hello!<|end|>", "<|assistant|>\nso;Ciao.<|end|>"], "no prompt has the header"
    assert found(lambda messages, prompted: chatml(messages, prompted) if messages else None, TALK[:1]) == []


def test_a_template_that_raises_says_nothing() -> None:
    assert generated(chatml(TALK, False), 1, lambda count, prompted: None) is None
    assert generated(chatml(TALK, False), 1, lambda count, prompted: chatml(TALK[:count], prompted) if prompted else None) is None
    assert generated("x", 1, lambda count, prompted: "x") is None, "nothing is generated"


@given(st.lists(WORD, min_size=2, max_size=6))
def test_of_any_chat_it_is_the_answer_with_its_stop(texts: list[str]) -> None:
    messages = [(("user", "assistant")[at % 2], text) for at, text in enumerate(texts)]
    assert found(chatml, messages) == [f"{text}<|end|>" for text in texts[1::2]]


@pytest.mark.parametrize(
    ("text", "is_text", "expected"),
    [
        ("}<e>\n<g>", False, (1, 4)),
        ("<e>\n<g>", False, (0, 3)),
        ("<e>\n", True, (0, 3)),
        ("\n<e>", True, (1, 4)),
        ("<e><f>", True, (0, 6)),
        ("<e>\n<f>", True, (0, 3)),
        ("}<e>", True, None),
        ("", True, None),
        ("", False, None),
        ("}<f><e>", False, (4, 7)),
        ("<f>}\n<e>", False, (5, 8)),
        ("}", False, None),
    ],
)
def test_stops(text: str, is_text: bool, expected: tuple[int, int] | None) -> None:
    assert stop_within(text, re.compile("<e>|<f>|<g>"), is_text=is_text, plain=("<e>", "\n<g>")) == expected


# Templates: what is trained by each derivation that the property decides is what the published format says.


def compared(entry: Entry) -> int:
    """The number of chats that the property decides, each as the format has it."""
    vocabulary, _ = _encoder(entry.model)
    template = ChatTemplate(entry.name, entry.source, vocabulary.special, {}, tuple(sorted(vocabulary.control)), entry.model.image)
    count = 0
    for kind in KINDS.values():
        if cell(entry, kind) != Cell(has_tags=cell(entry, kind).has_tags):
            continue  # the matrix says why
        derived = derive(kind.sample, MaskOptions(), template)
        if not derived.prefixed:
            continue
        stretches = [match.group("t") for match in entry.model.generated.finditer(derived.text)]
        assert [each.text for each in derived.expected] == stretches, kind
        count += 1
    return count


@pytest.mark.parametrize("name", shipped())
def test_shipped_templates(name: str) -> None:
    assert compared(shipped()[name]) > 0


@pytest.mark.skipif("PREP_ASSETS_TEST_DATA" not in os.environ, reason="TRL's templates are in a folder that PREP_ASSETS_TEST_DATA names")
def test_published_templates() -> None:
    entries = published(Path(os.environ["PREP_ASSETS_TEST_DATA"]))
    assert len(entries) > 40
    without = [name for name, entry in entries.items() if not compared(entry)]
    # DeepSeek's answers do not go on from its prompt, and GLM's original template writes no stop
    assert without == ["deepseekv3", "deepseekv3_training", "glm4moe"]


def test_a_real_chat_says_which_oracle_decides() -> None:
    talk = Sample((turn(SYSTEM, "Be brief."), turn(USER, "Hi"), turn(ASSISTANT, "Hello!"), turn(USER, "Bye"), turn(ASSISTANT, "Ciao.")))
    by = {name: derive(talk, MaskOptions(), bind(SHIPPED, name).template) for name in ("chatml", "qwen", "deepseek-r1")}
    assert {name: (each.tagged, each.prefixed) for name, each in by.items()} == {
        "chatml": (False, True),
        "qwen": (True, True),
        "deepseek-r1": (True, False),
    }
