"""Where turns begin and end: seen in what is trained of whole conversations, and asked for directly."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.rebuilt import Rebuilder
from prep_assets.proofs.trained_texts import MaskOptions, derive
from prep_assets.proofs.turn_borders import Block, Borders, blocks_of
from prep_assets.samples import Sample
from prep_assets_tests.proofs.conversations import PLAIN, chat, marked, result, says, template, user
from prep_assets_tests.proofs.trained_conversations import NO_PROMPT, NO_STOP, NOTHINK, TRAINED

CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"), says("See you."))
HARMONY = """
{%- for m in messages -%}
  {{- '<|s|>' + m.role + '|' + m.content + ('<|end|>' if m.role == 'assistant' and loop.last else '<|e|>') -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|s|>assistant|' -}}{%- endif -%}
"""


@pytest.mark.parametrize(("source", "options", "sample", "more", "text", "counts"), TRAINED)
def test_what_is_trained(source: str, options: dict[str, Any], sample: Sample, more: dict[str, Any], text: str, counts: Any) -> None:
    given = dict(more)
    bound = template(source, image=given.pop("image", ""), eos=given.pop("eos", "<|end|>"))
    assert marked(derive(sample, MaskOptions(**options), bound, **given)) == text


def taken_apart(source: str, sample: Sample) -> tuple[Any, list[Block], Borders]:
    rebuilder = Rebuilder(template(source))
    chat = rebuilder.rebuild(sample)
    return chat, blocks_of(chat), Borders(rebuilder)


def test_blocks() -> None:
    found, blocks, _ = taken_apart(PLAIN, CHAT)
    assert [(block.turn, block.role, block.kinds, block.places) for block in blocks] == [
        (0, "user", ("text",), (0,)),
        (1, "assistant", ("thinking", "text"), (1, 2)),
        (2, "user", ("text",), (3,)),
        (3, "assistant", ("text",), (4,)),
    ]
    assert [found.invented_text[block.start : block.end] for block in blocks] == [
        "zqaqz",
        "zqbqz</think>\nzqcqz",
        "zqdqz",
        "zqeqz",
    ]


def test_a_turn_amid_another_proves_nothing() -> None:
    source = "{{- messages[0].content -}}{%- for m in messages[1:] -%}{{- m.content -}}{%- endfor -%}"
    amid = "{{- messages[1].reasoning_content + messages[0].content + messages[1].content -}}"
    assert len(taken_apart(source, chat(user("Hi"), says("Hello.")))[1]) == 2
    with pytest.raises(CheckFailed) as raised:
        taken_apart(amid, chat(user("Hi"), says("~Hm.", "Hello.")))
    assert str(raised.value) == "the template writes turn 0 amid turn 1, so nothing is proven"


@pytest.mark.parametrize(
    ("source", "prompt"),
    [(PLAIN, "<|s|>assistant\n"), (NOTHINK, "<|s|>assistant\n<think>"), (NO_PROMPT, ""), ("{{- raise_exception('no') -}}", "")],
)
def test_what_stands_before_an_answer_to_a_lone_question(source: str, prompt: str) -> None:
    assert Borders(Rebuilder(template(source))).lone_prompt == prompt


@pytest.mark.parametrize(
    ("source", "stops"),
    [(PLAIN, {"<|e|>"}), (HARMONY, {"<|e|>", "<|end|>"}), (NO_STOP, set()), ("{{- raise_exception('no') -}}", set())],
)
def test_what_ends_answers(source: str, stops: set[str]) -> None:
    borders = Borders(Rebuilder(template(source)))
    assert borders.answer_stops == stops
    assert borders.answer_stops is borders.answer_stops


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (PLAIN, [("<think>", "<|e|>"), ("", "<|e|>")]),
        (HARMONY.replace("m.content", "(m.reasoning_content or '') + m.content"), [("", "<|e|>"), ("", "<|end|>")]),
        (PLAIN.replace("'<|e|>\\n'", "' <|e|>\\n'"), [("<think>", "<|e|>"), ("", "<|e|>")]),
        (PLAIN.replace("'<|e|>\\n'", "'<|e|><|end|>\\n'"), [("<think>", "<|e|><|end|>"), ("", "<|e|><|end|>")]),
        (NO_STOP, [("<think>", None), ("", None)]),
    ],
)
def test_where_answers_begin_and_end(source: str, texts: list[tuple[str, str | None]]) -> None:
    found, blocks, borders = taken_apart(source, CHAT)
    for number, (before, stop) in zip((1, 3), texts, strict=True):
        block, after = blocks[number], blocks[number + 1] if number + 1 < len(blocks) else None
        assert found.invented_text[borders.start(found, blocks[number - 1], block) : block.start] == before
        where = borders.stop(found, block, after)
        assert (None if where is None else found.invented_text[slice(*where)]) == stop


def test_where_other_turns_end() -> None:
    found, blocks, borders = taken_apart(PLAIN, CHAT)
    where = borders.stop(found, blocks[0], blocks[1])
    assert where is not None and found.invented_text[slice(*where)] == "<|e|>" and where[0] == blocks[0].end
    nothing, listed, none = taken_apart(NO_STOP, CHAT)
    assert none.stop(nothing, listed[0], listed[1]) is None


def test_an_answer_of_calls_where_nothing_says_where_it_begins() -> None:
    source = (
        "{%- for m in messages -%}{{- '[' + loop.length|string + ']' + m.content -}}"
        "{%- for c in m.tool_calls or [] -%}{{- c.function | tojson -}}{%- endfor -%}{{- '<|e|>' -}}{%- endfor -%}"
    )
    found, blocks, borders = taken_apart(source, chat(user("Hi"), says("!f"), result("1"), says("x")))
    assert borders.start(found, blocks[2], blocks[3]) == blocks[3].start


def test_control_tokens_of_a_part_of_a_text() -> None:
    borders = Borders(Rebuilder(template(PLAIN)))
    assert borders.controls("<|s|>a<|e|><|e|>", 0, 16) == [(0, 5), (6, 11), (11, 16)]
    assert borders.controls("<|s|>a<|e|><|e|>", 1, 12) == [(6, 11)]
    assert Borders(Rebuilder(template(PLAIN, control=()))).controls("<|s|>", 0, 5) == []
