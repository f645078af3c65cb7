"""Places of tools, arguments and texts in the renders of chats of one shape."""

from __future__ import annotations

import json
import re
from typing import Any
from unittest.mock import Mock

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived
from prep_assets.proofs.shaped_forms import QUOTED, Listed, Shape, outlined, spelled, taken_apart
from prep_assets.samples import ASSISTANT, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets_tests.masks.test_shaped_batches import TOOLS


def shape(*turns: Turn) -> Shape:
    chat = outlined(Sample(turns or (turn(USER, "Hi"),), TOOLS))
    assert chat is not None
    return chat.form


def writing(write: str, **how: Any) -> Any:
    """What a template that writes one tool and one text would derive: `T` stands for the tool, `X` for the text, `Q` for it
    within quotes, `N` for its name."""

    def derived(sample: Sample) -> Derived:
        text = sample.turns[0].text
        shown = {"T": json.dumps(sample.tools[0], ensure_ascii=False, **how), "X": text, "Q": json.dumps(text)[1:-1], "N": text[:9]}
        return Derived(re.sub("[TXQN]", lambda found: shown[found[0]], write), (), (), 0, ())

    return derived


@pytest.mark.parametrize("indent", [None, 4, 2])
@pytest.mark.parametrize("separators", [None, (",", ":")])
@pytest.mark.parametrize("sort_keys", [False, True])
def test_how_json_is_spelled_is_found(indent: int | None, separators: tuple[str, str] | None, sort_keys: bool) -> None:
    how = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
    found = taken_apart(shape(), writing("tools: T, text: X.", **how))
    assert len(found) == 2
    for made, places in found:
        (start, end, number, spelling), (first, last, text, as_it_is) = places
        assert (number, text, as_it_is) == (0, 1, {})
        assert spelling == {key: value for key, value in how.items() if value}
        assert made.text[:start] == "tools: " and made.text[end:first] == ", text: " and made.text[last:] == "."
        assert json.loads(made.text[start:end])
        assert spelled(made.text[start:end], spelling) == made.text[start:end]


def test_places_are_in_the_order_of_the_render() -> None:
    for _, places in taken_apart(shape(), writing("X and T")):
        assert [number for _, _, number, _ in places] == [1, 0]
        assert places[0][0] == 0


def test_a_text_within_quotes() -> None:
    for _, places in taken_apart(shape(), writing('T "Q"')):
        assert [spelling for *_, spelling in places] == [{}, QUOTED]
    assert spelled('a"b\né', QUOTED) == 'a\\"b\\né'
    assert spelled("a", {}) == "a"


@pytest.mark.parametrize("write", ["X", "T X T", "T X X", "T X N", "T", "T N"])
def test_what_is_missing_or_twice_is_not_certain(write: str) -> None:
    found = taken_apart(shape(), writing(write))
    # the render of a text that is left out, as reasoning is in history, has no place of it
    assert [[number for _, _, number, _ in places] for _, places in found] == ([[0], [0]] if write == "T" else [])


def test_json_in_no_known_spelling_is_not_certain() -> None:
    derived = Mock(side_effect=writing("T X", indent=3))
    assert taken_apart(shape(), derived) == []
    assert derived.call_count == 1, "there are no arguments that may be listed"


def test_a_chat_that_cannot_be_derived() -> None:
    def fails(sample: Sample) -> Derived:
        raise CheckFailed("no")

    assert taken_apart(shape(), fails) == []


def test_a_template_that_knows_the_invented_tools_apart() -> None:
    def derived(sample: Sample) -> Derived:
        return writing("T X!" if "b" in sample.tools[0] else "T X")(sample)  # type: ignore[no-any-return]

    assert [made.text[-1] for made, _ in taken_apart(shape(), derived)] == ["!", "Q"]


# -- arguments one by one ---------------------------------------------------------------------------------------------------------------


CALL = Turn(ASSISTANT, (Region(TOOL_CALL, json.dumps({"name": "get", "arguments": {"city": "Rome"}})),))


def one_by_one(write: str, before: str = "") -> Any:
    """What a template would derive that writes each argument in this way, and the name of the tool and of the call."""

    def derived(sample: Sample) -> Derived:
        call = json.loads(sample.turns[-1].regions[0].text)
        listed = "; ".join(write.replace("K", name).replace("V", str(value)) for name, value in call["arguments"].items())
        return Derived(f"{json.dumps(sample.tools[0], ensure_ascii=False)}|{call['name']}|{before}({listed})", (), (), 0, ())

    return derived


def test_arguments_that_are_listed() -> None:
    found = taken_apart(shape(CALL), one_by_one("K=V"))
    assert [[number for _, _, number, _ in places] for _, places in found] == [[0, 1, 2]] * 2
    for made, places in found:
        start, end, _, way = places[2]
        assert isinstance(way, Listed) and (way.between, way.joint) == ("=", "; ")
        assert made.text[:end][start - 2 :].startswith("|(") and made.text[end:] == ")"
        assert spelled('{"city": "Rome", "days": 3}', way) == "city=Rome; days=3"
    assert found[0][1][2][3] == found[1][1][2][3]
    assert [json.loads(made.text[: places[0][1]]) for made, places in found] != [{}, {}]


def test_tools_are_never_taken_for_listed_arguments() -> None:
    def derived(sample: Sample) -> Derived:
        return Derived("; ".join(f"{name}={value}" for name, value in sample.tools[0].items()), (), (), 0, ())

    assert taken_apart(shape(), lambda sample: Derived(f"{derived(sample).text} {sample.turns[0].text}", (), (), 0, ())) == []


@pytest.mark.parametrize("write", ["K", "V", "K=V!K", "K=V, V"])
def test_arguments_listed_in_no_known_way_are_not_certain(write: str) -> None:
    assert taken_apart(shape(CALL), one_by_one(write)) == []


def test_a_name_that_stands_elsewhere_as_well_is_not_certain() -> None:
    def derived(sample: Sample) -> Derived:
        made, name = one_by_one("K=V")(sample), next(iter(json.loads(sample.turns[-1].regions[0].text)["arguments"]))
        return Derived(made.text + name[:9], (), (), 0, ())

    assert taken_apart(shape(CALL), derived) == []


def test_arguments_that_are_json_are_not_looked_for_again() -> None:
    def derived(sample: Sample) -> Derived:
        call = json.loads(sample.turns[-1].regions[0].text)
        return Derived(
            "|".join([json.dumps(sample.tools[0], ensure_ascii=False), call["name"], json.dumps(call["arguments"], ensure_ascii=False)]),
            (),
            (),
            0,
            (),
        )

    once = Mock(side_effect=derived)
    found = taken_apart(shape(CALL), once)
    assert [spelling for _, places in found for *_, spelling in places] == [{}] * 6
    assert once.call_count == 2
