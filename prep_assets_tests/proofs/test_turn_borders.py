"""Where turns begin and end: seen in what is trained of whole conversations, and asked for directly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.rebuilt import Block, Borders, Rebuilder, _after, _bound, blocks_of
from prep_assets.samples import Sample
from prep_assets_tests.proofs.conversations import PLAIN, chat, marked, result, says, template, user
from prep_assets_tests.proofs.trained_conversations import NO_PROMPT, NO_STOP, NOTHINK, TRAINED

CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"), says("See you."))
REFUSES = "{{- raise_exception('no') -}}"
ONLY_PROMPTED = "{%- if not add_generation_prompt -%}" + REFUSES + "{%- endif -%}{{- '<|s|>' + messages[0].content + '<|s|>' -}}"
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
    [
        (PLAIN, "<|s|>assistant\n"),
        (ONLY_PROMPTED, "<|s|>Well?<|s|>"),
        (NOTHINK, "<|s|>assistant\n<think>"),
        (NO_PROMPT, ""),
        ("{{- raise_exception('no') -}}", ""),
    ],
)
def test_what_stands_before_an_answer_to_a_lone_question(source: str, prompt: str) -> None:
    assert Borders(Rebuilder(template(source))).lone_prompt == prompt


@pytest.mark.parametrize(
    ("source", "stops"),
    [(PLAIN, {"<|e|>"}), (HARMONY, {"<|e|>", "<|end|>"}), (NO_STOP, set()), (REFUSES, set())],
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


# -- each step by itself, on gaps that can be read ----------------------------------------------------------------------------------------


def plain_borders(lone: str = "") -> Borders:
    borders = Borders(Rebuilder(template(PLAIN)))
    borders._lone = lone
    return borders


def test_the_longest_control_token_counts() -> None:
    assert Borders(Rebuilder(template(PLAIN, control=("<a>", "<a>b", "x")))).controls("<a>b<a>", 0, 7) == [(0, 4), (4, 7)]


@pytest.mark.parametrize(
    ("gap", "most", "place"),
    [
        ("abc def", 5, 4),
        ("abc def", 4, 4),
        ("abc def", 3, 0),
        (" abc", 3, 1),
        ("a  b", 4, 3),
        ("a<|e|>bc", 8, 6),
        ("<|e|>bc", 7, 5),
        ("<|e|>bc", 5, 5),
        ("<|e|>bc", 4, 0),
        ("<|e|> bc", 8, 6),
        ("a <|e|>bc", 9, 2),
        ("<|e|>\n<|s|>x", 12, 6),
        ("<|e|>\n<|s|><|e|>x", 17, 16),
        ("<|e|><|s|>\n<|e|>x y", 19, 18),
    ],
)
def test_a_place_amid_no_word_and_no_control_token(gap: str, most: int, place: int) -> None:
    assert plain_borders()._unbroken(gap, most) == place


ASKED = "<|s|>assistant\n"


@pytest.mark.parametrize(
    ("gap", "prompt", "lone", "kinds", "rest"),
    [
        # what the prompt says
        (f"<|e|>\n{ASKED}", f"<|e|>\n{ASKED}", ASKED, ("text",), ""),
        (f"<|e|>\n{ASKED}<think>", f"<|e|>\n{ASKED}", ASKED, ("thinking",), "<think>"),
        (f"<|e|>\n{ASKED}yes", f"<|e|>\n{ASKED}no", ASKED, ("text",), "yes"),
        (f"<|e|>\n{ASKED}<think>", f"<|e|>\n{ASKED}<think>\n\n</think>", ASKED, ("thinking",), "<think>"),
        ("<|e|>\nsays:\n<think>", "<|e|>\nsays:\n<think>\n\n</think>", "", ("thinking",), "<think>"),
        (f"<|e|>\n{ASKED}<think>\n", f"<|e|>\n{ASKED}<think>\n\n</think>", ASKED, ("thinking",), "<think>\n"),
        ("\n<think>", "\n<think>x", "", ("thinking",), ""),  # nothing before the tag
        (f"{ASKED}<think>a\n<call>", f"{ASKED}<think>b", ASKED, ("call",), "<think>a\n<call>"),
        ("", "<|e|>", ASKED, ("text",), ""),
        ("gap", "", ASKED, ("text",), "gap"),
        # a header before an answer to a lone question
        (f"<|e|>{ASKED}", None, ASKED, ("text",), ""),
        (ASKED, None, ASKED, ("call",), ""),
        (f"{ASKED}{ASKED}x", None, ASKED, ("text",), "x"),
        (f"<|e|>{ASKED}", "x", ASKED, ("text",), ""),
        # nothing says it
        ("<|e|>", None, ASKED, ("text", "text"), None),
        ("<|e|>", None, "", ("text",), None),
    ],
)
def test_where_an_answer_begins(gap: str, prompt: str | None, lone: str, kinds: tuple[str, ...], rest: str | None) -> None:
    borders, low = plain_borders(lone), 3
    borders._prompt = Mock(return_value=prompt)  # type: ignore[method-assign]
    block = Block(2, "assistant", kinds, (0,), low + len(gap), low + len(gap) + 9)
    found: Any = SimpleNamespace(own_start={0: block.start - 1}.get)
    start = borders._begin(found, None, block, gap, low)
    assert start == (block.start - 1 if rest is None else block.start - len(rest))
    borders._prompt.assert_called_once_with(found, None, block, gap)


def test_calls_that_begin_nowhere_prove_nothing() -> None:
    borders = plain_borders()
    borders._prompt = Mock(return_value=None)  # type: ignore[method-assign]
    chat: Any = None
    with pytest.raises(CheckFailed) as raised:
        borders._begin(chat, None, Block(4, "assistant", ("text", "call"), (0, 1), 5, 9), "<|e|>", 0)
    assert str(raised.value) == "nothing in the render says where turn 4 begins, so nothing is proven"


@pytest.mark.parametrize(
    ("gap", "begins", "lone", "kinds", "start"),
    [
        (f"<|e|>\n{ASKED}x", 6, ASKED, ("text",), 21),
        (f"{ASKED}x", 0, ASKED, ("text",), 15),
        (f"{ASKED}{ASKED}x", 0, ASKED, ("text",), 30),
        (f"{ASKED}x", 15, ASKED, ("text",), 15),
        (f"{ASKED}x", 16, ASKED, ("text",), 16),
        ("header: ", 0, "", ("text",), 7),  # the space is the text's own
        ("header: ", 0, "", ("thinking", "text"), 0),
        ("header: \n", 7, "", ("text",), 7),
    ],
)
@pytest.mark.parametrize("before", [None, Block(0, "user", ("text",), (0,), 1, 4)])
def test_a_header_that_the_prompt_leaves_out(
    gap: str, begins: int, lone: str, kinds: tuple[str, ...], start: int, before: Block | None
) -> None:
    borders, low = plain_borders(lone), before.end if before else 0
    borders._begin = Mock(return_value=low + begins)  # type: ignore[method-assign]
    chat: Any = SimpleNamespace(invented_text="." * low + gap + "answer", own_start={1: low + len(gap) - 1}.get)
    block = Block(1, "assistant", kinds, (1,), low + len(gap), low + len(gap) + 6)
    assert borders.start(chat, before, block) == low + start
    borders._begin.assert_called_once_with(chat, before, block, gap, low)


@pytest.mark.parametrize(
    ("gap", "alone", "is_text", "where"),
    [
        ("<|e|>\n<|s|>user", "<|e|>\n", True, (0, 5)),
        (" <|e|>x", None, True, (1, 6)),
        ("x<|e|>", None, True, None),
        ("<|e|><|s|>user", "<|e|><|end|>", True, (0, 5)),
        ("<|e|><|end|>", None, True, (0, 12)),
        ("<|e|> <|end|>", None, True, (0, 5)),
        ("<|e|> <|end|> x", None, True, (0, 5)),
        ("</c><|s|><|e|>", None, False, (9, 14)),
        ("<|s|> <|e|><|end|>", None, False, (11, 18)),
        # other control tokens where another turn follows
        ("<|s|>x", "<|e|>", True, (0, 5)),
        ("\n<|s|>x", "\n<|e|>", True, (1, 6)),
        ("\n\n<|s|>x", "\n<|e|>", True, (2, 7)),
        ("<|s|><|e|>x", "<|end|>", True, (0, 5)),
        ("<|s|><|e|>x", "<|end|><|e|>", True, (0, 10)),
        ("y<|s|>", "<|e|>", True, None),
        ("<|s|>", "y<|e|>", True, None),
        ("<|s|>", "y", True, None),
        ("y", "<|e|>", True, None),
        ("a", "b", True, None),
    ],
)
def test_what_ends_a_turn(gap: str, alone: str | None, is_text: bool, where: tuple[int, int] | None) -> None:
    assert plain_borders()._end(gap, alone, is_text) == where


@pytest.mark.parametrize(
    ("gap", "where"),
    [("<|e|><|end|>\n", (0, 12)), (" \n<|e|>", (2, 7)), ("<|s|>", None), ("", None), ("x<|e|>", None)],
)
def test_the_longest_stop_of_answers_ends_other_turns(gap: str, where: tuple[int, int] | None) -> None:
    borders = plain_borders()
    borders._stops = frozenset({"<|e|>", "<|e|><|end|>"})
    chat: Any = SimpleNamespace(invented_text="question" + gap + "<|e|>answer")
    asks, answers = Block(0, "user", ("text",), (0,), 0, 8), Block(1, "assistant", ("text",), (1,), 8 + len(gap), 99)
    found = borders.stop(chat, asks, answers)
    assert found == (where and (8 + where[0], 8 + where[1]))


def test_what_follows_a_turn() -> None:
    found, blocks, _ = taken_apart(PLAIN, CHAT)
    for prompted in (True, False):
        assert _after(found, None, 1, prompted=prompted) == found.beginning(1, prompted=prompted) != ""
        assert _after(found, blocks[0], 1, prompted=prompted) == "<|e|>\n" + "<|s|>assistant\n" * prompted
    assert _after(found, None, 0, prompted=True) is None


def test_prompts_are_asked_for_once_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(side_effect=lambda *_, **__: f"prompt {asked.call_count}")
    monkeypatch.setattr("prep_assets.proofs.rebuilt._after", asked)
    borders = plain_borders()
    chats: list[Any] = [SimpleNamespace(chat=SimpleNamespace(sample=SimpleNamespace(tools=tools))) for tools in ((), ("f",))]
    before = [None, *(Block(0, role, (kind,), (0,), 0, 4) for role, kind in (("user", "text"), ("tool", "text"), ("user", "image")))]
    kinds = [
        (chat, left, Block(turn, "assistant", ("text",), (1,), 5, 9), gap)
        for chat in chats
        for left in before
        for turn in (0, 1)
        for gap in "ab"
    ]
    first = [borders._prompt(*each) for each in kinds]
    assert len(set(first)) == len(kinds) and [borders._prompt(*each) for each in kinds] == first
    assert borders._prompt(chats[0], before[0], Block(2, "assistant", ("text",), (1,), 5, 9), "a") == first[2]


def test_what_is_known_of_gaps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.proofs.rebuilt.MOST_KNOWN", 2)
    known: dict[object, Any] = {1: "a"}
    _bound(known)
    assert known == {1: "a"}
    known[2] = "b"
    _bound(known)
    assert known == {}
