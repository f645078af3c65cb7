"""The second derivation alone, step by step: borders, tags, stops and regions of renders that can be read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import MaskOptions, Part, _check_images_in_order, _Derivation, derive
from prep_assets.proofs.rebuilt import Block, Place, Rebuilder, blocks_of
from prep_assets.samples import ASSISTANT, IMAGE, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets_tests.proofs import conversations
from prep_assets_tests.proofs.conversations import PLAIN
from prep_assets_tests.proofs.harmony import CHAT, HARMONY, derived_of, template


def step(text: str = "", lone: str = "", **chat: Any) -> Any:
    """A derivation of a render that can be read."""
    made: Any = SimpleNamespace(text=text, chat=SimpleNamespace(template=template(HARMONY)), **chat)
    borders: Any = Mock(lone_prompt=lone)
    return _Derivation(made, borders, MaskOptions())


@pytest.mark.parametrize(
    ("text", "lone", "marked", "start", "first", "after_tool", "alike"),
    [
        ("<|start|>a:Hi", "<|start|>a:", 0, 11, 11, False, True),
        ("<|start|>a:Hi", "<|start|>a:", 9, 11, 11, False, True),
        ("<|start|>a:Hi", "<|start|>", 9, 11, 11, True, False),
        ("<|end|><|start|>Hi", "other", 0, 16, 16, True, True),
        ("<|end|><|start|>Hi", "other", 0, 16, 16, False, False),
        ("<|end|> x <|start|>Hi", "other", 0, 19, 19, True, False),
        ("<|start|> \n Hi", "other", 12, 9, 12, False, True),
        ("<|start|> x Hi", "other", 12, 9, 12, False, False),
        ("Hi there", "other", 3, 0, 0, True, False),
    ],
)
def test_where_tags_may_begin(text: str, lone: str, marked: int, start: int, first: int, after_tool: bool, alike: bool) -> None:
    assert bool(step(text, lone)._begins_answer(marked, start, first, after_tool)) is alike


@pytest.mark.parametrize(
    ("marked", "end", "alike"),
    [
        (5, None, True),
        (3, None, False),
        (6, None, True),
        (7, None, False),
        (13, (6, 13), True),
        (14, (6, 13), True),
        (6, (6, 13), True),
        (5, (6, 13), True),
        (4, (6, 13), False),
        (9, (6, 13), False),
    ],
)
def test_where_tags_may_end(marked: int, end: Any, alike: bool) -> None:
    assert step("Hello <|end|> x")._ends_answer(marked, end, 5) is alike


class Told(_Derivation):
    """One that notes what it asks of its tags."""

    asked: ClassVar[list[Any]] = []
    alike = True

    def real(self, invented: int) -> int:
        return invented

    def _begins_answer(self, *given: Any) -> bool:
        self.asked.append(given)
        return True

    def _ends_answer(self, *given: Any) -> bool:
        self.asked.append(given)
        return self.alike


def told(text: str, spans: list[tuple[str, int, int]], tagged: list[tuple[int, int]], training: str = "") -> tuple[Told, list[Block]]:
    blocks = [Block(at, role, (TEXT,), (at,), start, end) for at, (role, start, end) in enumerate(spans)]
    places = tuple(Place(at, start, end) for at, (_, start, end) in enumerate(spans))
    bound = replace(template(HARMONY), training=training)
    made: Any = SimpleNamespace(text=text, places=places, tagged=tuple(tagged), chat=SimpleNamespace(template=bound))
    found = Told(made, Mock(), MaskOptions())
    Told.asked, Told.alike = [], True
    return found, blocks


def test_which_tags_are_an_answer_s() -> None:
    """Those that touch its texts and begin behind the turn before it."""
    spans = [(TOOL, 2, 5), (ASSISTANT, 8, 12), (USER, 15, 17), (ASSISTANT, 20, 25)]
    found, blocks = told("." * 30, spans, [(0, 9), (5, 8), (12, 14), (13, 14), (20, 25)])
    found._check_tags(blocks, [2, 7, 15, 22], [(5, 6), (12, 13), (17, 18), None])
    assert found.asked == [(5, 7, 8, True), (14, (12, 13), 12), (20, 20, 20, False), (25, None, 25)]
    first, answers = told("." * 30, [(ASSISTANT, 1, 5), (TOOL, 8, 12)], [(0, 5)])
    first._check_tags(answers, [1, 8], [(5, 6), (12, 13)])
    assert first.asked == [(0, 1, 1, False), (5, (5, 6), 5)]


@pytest.mark.parametrize(("training", "of"), [("x", "the training_template of template own"), ("", "template own")])
def test_tags_that_differ_are_shown(training: str, of: str) -> None:
    found, blocks = told("Hi there. And more.", [(ASSISTANT, 0, 9)], [(0, 2)], training)
    Told.alike = False
    for end, shown in ((None, "Hi there."), ((9, 13), "Hi there. And")):
        with pytest.raises(CheckFailed) as raised:
            found._check_tags(blocks, [0], [end])
        assert str(raised.value) == f"{of} marks ['Hi'] of turn 0 as generated, which is {shown!r}"


def test_borders_are_asked_for_with_the_neighbours_of_a_turn() -> None:
    found, blocks = told("." * 30, [(ASSISTANT, 2, 5), (ASSISTANT, 8, 12), (USER, 15, 17)], [])
    borders: Any = found.borders
    borders.start.return_value, borders.stop.return_value = 7, (3, 4)
    assert [found._start(blocks, at) for at in (0, 1)] == [7, 7] and [found._stop(blocks, at) for at in (0, 1, 2)] == [(3, 4)] * 3
    assert [each.args for each in borders.start.call_args_list] == [(found.chat, None, blocks[0]), (found.chat, blocks[0], blocks[1])]
    neighbours = [(blocks[0], blocks[1]), (blocks[1], blocks[2]), (blocks[2], None)]
    assert [each.args for each in borders.stop.call_args_list] == [(found.chat, *pair) for pair in neighbours]


@pytest.mark.parametrize(
    ("turns", "placeholders", "stops"),
    [([0, 1], "ab", False), ([1, 0], "ab", True), ([1, 0], "abc", True), ([1, 0], "aa", False), ([0, 1], "a", False)],
)
def test_images_of_several_sizes_stand_in_the_order_of_their_turns(turns: list[int], placeholders: str, stops: bool) -> None:
    slots = [SimpleNamespace(turn=at) for at in range(2)]
    places = [SimpleNamespace(slot=at) for at in turns]
    made: Any = step(slotted=SimpleNamespace(slots=slots), places=places).chat
    images = [Region(IMAGE, "a.png", placeholder=each) for each in placeholders]
    if not stops:
        _check_images_in_order(made, images)
        return
    with pytest.raises(CheckFailed) as raised:
        _check_images_in_order(made, images)
    assert str(raised.value) == "template own writes turns in another order, so which image stands where is not proven"


def test_reasoning_before_a_call_ends_with_its_tag() -> None:
    block = Block(1, ASSISTANT, (THINKING, TOOL_CALL), (0, 1), 0, 30)
    for text, end in (("Hm.</think> \n</think>f", 13), ("Hm.</think>\n\nx f", 13), ("Hm. so f", 3)):
        left, right = Part(0, 3, THINKING, 0, 1.0), Part(len(text) - 1, len(text), TOOL_CALL, 1, 1.0)
        step(text)._between(block, left, right)
        assert (left.end, right.start) == (end, end)
    left, right = Part(0, 3, TEXT, 0, 1.0), Part(11, 12, TOOL_CALL, 1, 1.0)
    step("Hm.</think>f")._between(block, left, right)
    assert (left.end, right.start) == (3, 3), "a text is no reasoning"


def test_the_stop_of_a_turn_of_calls_is_its_own() -> None:
    sample = conversations.chat(conversations.user("Hi"), conversations.says("!f"))
    for policy, ends in (("turn", True), ("none", False)):
        [call] = derived_of(PLAIN, {"train_on_eos": policy}, sample).expected
        assert call.text.endswith("<|e|>") is ends and "</call>" in call.text


def test_regions_of_nothing_but_white_space_are_no_parts() -> None:
    rebuilt = Rebuilder(conversations.template()).rebuild(
        conversations.chat(conversations.user("Hi"), conversations.says(" ", "One.", " "))
    )
    [_, block] = blocks_of(rebuilt)
    assert [part.region for part in _Derivation(rebuilt, Mock(), MaskOptions())._regions(block, 1)] == [1]


def test_what_may_be_shortened_has_its_role() -> None:
    derived = derive(CHAT, MaskOptions(), template(HARMONY))
    assert [(derived.text[start:end], role) for start, end, role in derived.shortenable] == [("Hi", USER), ("Bye", USER)]


def test_what_stands_for_an_image_is_the_template_s_wherever_white_space_is() -> None:
    picture = Region(IMAGE, "a.png", placeholder="<img><img>")
    asked = Turn(USER, (Region(TEXT, "    "), picture, Region(TEXT, "<img> what? "), picture, Region(TEXT, " <img>")))
    sample = Sample((asked, turn(ASSISTANT, "A cat.")))
    own = conversations.template(image="<img>")
    derived = derive(sample, MaskOptions(), own)
    assert [derived.text[start:end] for start, end in derived.controls].count("<img>") == 4 and derived.typed == 2
    assert derive(sample, MaskOptions(), own, rendered="not looked at") == derived
