"""Arguments that a template lists, taken apart from a render, and chats that have some proven by the block."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import chat_blocks
from prep_assets.text import forms
from prep_assets.text.forms import Listed, listed, others, several
from prep_assets_tests.corpus.chats import EVERY, WAYS, calls, source
from prep_assets_tests.masks.bound import bind_source
from prep_assets_tests.proofs.blocks import Built, all_proven_are_proven_alone

Write = Callable[[Any], str]


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


WRITES: dict[str, Write] = {
    "python but for text": str,
    "json": as_json,
    "json but for text": lambda value: value if isinstance(value, str) else as_json(value),
    "json of nested": lambda value: as_json(value) if isinstance(value, list | dict) else str(value),
    "in quotes": lambda value: f"'{value}'" if isinstance(value, str) else as_json(value),
    "tight": lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")),
}


def shown(given: dict[str, Any], write: Write) -> str:
    return "get(" + ", ".join(f"{name}={write(value)}" for name, value in given.items()) + ")!"


@pytest.mark.parametrize("how", WRITES)
def test_how_arguments_are_listed_is_found(how: str) -> None:
    found = listed(shown(several("Qz1"), WRITES[how]), several("Qz1"))
    assert found is not None
    for each in [*EVERY, others("Qz1")]:
        assert found[2](json.dumps(each)) == shown(each, WRITES[how])[4:-2]
    start, end, _ = found
    assert shown(several("Qz1"), WRITES[how])[:start] == "get(" and shown(several("Qz1"), WRITES[how])[end:] == ")!"


@pytest.mark.parametrize(
    "write",
    [
        lambda value: json.dumps(value, indent=3),
        lambda value: "" if value is None else str(value),
        lambda value: str(value).upper(),
        lambda value: "yes" if value is True else str(value),
        lambda value: as_json(value) if value == [7, "é"] else str(value),
        lambda value: f"{value!s}{value!s}",
        lambda value: "",
    ],
)
def test_what_is_not_certain_is_not_found(write: Write) -> None:
    """Or it is found, and is not how other arguments are listed."""
    found = listed(shown(several("Qz1"), write), several("Qz1"))
    assert found is None or found[2](json.dumps(others("Qz1"))) != shown(others("Qz1"), write)[4:-2]


def test_names_stand_once_and_in_their_order() -> None:
    given = several("Qz1")
    text = shown(given, as_json)
    assert listed(text, given) is not None
    assert listed(text + "Qz1b", given) is None
    assert listed(shown(dict(reversed(given.items())), as_json), given) is None
    assert listed(text.replace("Qz1c", "Qz1"), given) is None
    assert listed(text.replace("=73)", "=74)"), given) is None


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [({"a": "b c", "d": ""}, True), ({"a": [" b"], "c": 1.5}, True)]
    + [({name: value}, False) for name, value in (("a ", 1), ("", 1), ("a", " b"), ("a", "\n"), ("a", float("inf")), ("a", float("nan")))],
)
def test_what_is_known_of_arguments(arguments: dict[str, Any], holds: bool) -> None:
    assert Listed("=", ",", ("", ""), False, {}, "").holds(json.dumps(arguments)) is holds


def test_what_is_empty_is_written_in_its_own_way() -> None:
    """An empty text and an empty list say nothing of how others are written."""
    assert listed("a=73, b=, c='x', d=<>, z=73", {"a": 73, "b": "", "c": "x", "d": [], "z": 73}) is None
    found = listed("a=73, b=-, c='x', d=[1], e=[], z=73", {"a": 73, "b": "", "c": "x", "d": [1], "e": [], "z": 73})
    assert found is not None and found[:2] == (0, 35)
    how = found[2]
    assert (how.around, how.empty, how.within_json) == (("'", "'"), "-", False)
    assert how('{"q": "", "r": "é", "s": []}') == "q=-, r='é', s=[]"


def test_what_stands_around_a_text_is_its_own() -> None:
    found = listed('a: 73\nb: "x y"\nz: 73', {"a": 73, "b": "x y", "z": 73})
    assert found is not None and found[2].around == ('"', '"')
    assert listed("a: 73\nb: x x\nz: 73", {"a": 73, "b": "x", "z": 73}) is None  # it stands there twice
    none = listed("a: 73\nz: 73", {"a": 73, "z": 73})
    assert none is not None and none[2] == Listed(": ", "\n", ("", ""), False, {"int": "json"}, "")


def test_a_text_as_in_a_string_of_json_keeps_its_letters() -> None:
    found = listed('a=73,b="é\\"",z=73', {"a": 73, "b": 'é"', "z": 73})
    assert found is not None and found[2].within_json
    assert found[2]('{"c": "中\\n"}') == 'c="中\\n"'
    assert listed('a=73,b="\\u00e9\\"",z=73', {"a": 73, "b": 'é"', "z": 73}) is None


def test_the_last_number_ends_as_the_first_begins() -> None:
    given = {"a": 73, "z": 73}
    assert listed("a=73;z=73", given) is not None
    assert listed("a=73;z:73", given) is None
    assert listed("a=7;z=7", given) is None
    found = listed("a=73, 73, z=73", given)
    assert found is not None and (found[:2], found[2].between, found[2].joint) == ((0, 14), "=", ", 73, ")
    assert listed("a=; z=; 73", given) is None
    assert listed("a; z; 73", given) is None


# -- chats by the block -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def learned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_blocks, "ONE_IN", 1 << 40)
    monkeypatch.setattr(chat_blocks.Firsts, "__call__", lambda *_: False)
    monkeypatch.setattr(forms, "LEARN_AFTER", 1)


ROME, OSLO = {"city": "Rome", "days": [1, 2], "now": True}, {"city": "Oslo"}


def test_chats_are_proven_by_the_block_where_their_arguments_are_known() -> None:
    built = Built(bind_source(source(WAYS["text unless nested"])), [calls(ROME), calls(OSLO), calls({"city": " Oslo"}), calls(EVERY[0])])
    assert built.proven() == [True, True, False, True]


@pytest.mark.parametrize(
    "said",
    [
        {**ROME, "city": "Roma"},
        {**ROME, "days": [1, 3]},
        {**ROME, "days": "[1, 2]x"},
        {**ROME, "now": False},
        {**ROME, "now": 1},
        {"town": "Rome", "days": [1, 2], "now": True},
        {"days": [1, 2], "city": "Rome", "now": True},
        {**ROME, "more": None},
        {"city": "Rome", "days": [1, 2]},
        {},
    ],
)
def test_a_row_that_other_arguments_became_is_not_proven(said: dict[str, Any]) -> None:
    built = Built(bind_source(source(WAYS["text unless nested"])), [calls(ROME)] * 3)
    assert built.proven([calls(ROME), calls(said), calls(ROME)]) == [True, False, True]


def test_a_mask_that_is_shifted_or_changed_is_not_proven() -> None:
    built = Built(bind_source(source(WAYS["JSON"])), [calls(ROME, OSLO)] * 3)
    assert built.proven() == [True] * 3
    ids, mask = built.stored[1]
    trained = np.flatnonzero(mask)
    for wrong in (np.roll(mask, 1), np.roll(mask, -1), mask * 0.5, mask * 0, np.where(np.arange(len(mask)) == trained[-5], 0, mask)):
        built.stored[1] = ids, wrong
        assert built.proven() == [True, False, True]
    built.stored[1] = np.where(np.arange(len(ids)) == trained[-5], ids[0], ids), mask
    assert built.proven() == [True, False, True]


@pytest.mark.parametrize("way", ["text unless nested", "text in quotes"])
def test_whatever_is_proven_by_the_block_is_proven_alone(way: str) -> None:
    all_proven_are_proven_alone(bind_source(source(WAYS[way])))
