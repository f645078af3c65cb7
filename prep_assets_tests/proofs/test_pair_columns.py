"""Pairs in columns are taken for their lines only where they are, by the reading of each row."""

from __future__ import annotations

import json
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs.rows import PAIR_FIELDS, are_lines
from prep_assets.proofs.second_reading import MessageRows
from prep_assets.text.chats import ByteSearch

TAG = "<t>"
SEARCHED = ByteSearch([TAG])
Form = Literal["text", "messages"]


def in_columns(rows: list[Any]) -> MessageRows:
    found = PAIR_FIELDS.read(range(len(rows)), [json.dumps(row).encode() for row in rows])
    assert found is not None
    return found


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def pair(prompt: str = "p", chosen: str = "a", rejected: str = "b", form: Form = "messages") -> dict[str, Any]:
    if form == "text":
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    return {"prompt": [said("user", prompt)], "chosen": [said("assistant", chosen)], "rejected": [said("assistant", rejected)]}


TEXTS = st.sampled_from(["p", "a", "b", "\u00e9", " ", "", "\u2003", f"x{TAG}", "<t"])
MESSAGE = st.builds(said, st.sampled_from(["user", "user", "assistant", "assistant", "system", "tool"]), TEXTS)
LISTS = st.lists(MESSAGE, max_size=2)
STRINGS = st.fixed_dictionaries({"prompt": TEXTS, "chosen": TEXTS, "rejected": TEXTS})
MESSAGES = st.fixed_dictionaries({"prompt": LISTS, "chosen": LISTS, "rejected": LISTS}) | st.builds(pair, TEXTS, TEXTS, TEXTS)


def line_of(row: dict[str, Any], form: Form) -> dict[str, Any] | None:
    """The line of a row of known roles without a tag, whose answers differ and are one turn each; `None` of any other."""
    sides = ((row["prompt"], "user"), (row["chosen"], "assistant"), (row["rejected"], "assistant"))
    turns = [[said(role, value)] if isinstance(value, str) else value for value, role in sides]
    texts = [message["content"] for part in turns for message in part]
    last = [part[-1]["role"] for part in turns if part]
    known = all(message["role"] != "tool" for part in turns for message in part)
    if not known or last != ["user", "assistant", "assistant"] or len(turns[1]) > 1 or len(turns[2]) > 1 or turns[1] == turns[2]:
        return None
    if not all(text.strip() and TAG not in text for text in texts) or (form == "text" and len(turns[0]) > 1):
        return None
    return dict(zip(row, turns if form == "messages" else [part[0]["content"] for part in turns], strict=True))


@given(
    st.lists(STRINGS, min_size=1, max_size=5) | st.lists(MESSAGES, min_size=1, max_size=5), st.sampled_from(["text", "messages"]), st.data()
)
def test_no_other_row_is_its_line(rows: list[Any], form: Form, data: st.DataObject) -> None:
    expected = [line_of(row, form) for row in rows]
    others = STRINGS if form == "text" else MESSAGES
    lines = [data.draw(others) if line is None or data.draw(st.integers(0, 9)) == 0 else line for line in expected]
    found = are_lines(in_columns(rows), in_columns(lines), SEARCHED)
    for line, stored, alike in zip(expected, lines, found.tolist(), strict=True):
        assert not alike or line == stored


def test_rows_that_are_their_lines() -> None:
    forms: tuple[Form, Form] = ("text", "messages")
    for rows in forms:
        for lines in forms:
            listed = [[pair(prompt, "a b", "\u00e9 ", form) for prompt in ("p", TAG, " ")] for form in (rows, lines)]
            assert are_lines(*map(in_columns, listed), SEARCHED).tolist() == [True, False, False], "a tag, a blank"
    long = {**pair(), "prompt": [said("system", "s"), *pair()["prompt"], said("assistant", "x"), said("user", "q")]}
    assert are_lines(in_columns([long]), in_columns([long]), SEARCHED).all()


def one(row: dict[str, Any], line: dict[str, Any]) -> bool:
    found = are_lines(in_columns([row]), in_columns([line]), SEARCHED)
    assert found.dtype == bool and found.shape == (1,)
    return bool(found[0])


def test_lines_that_say_something_else() -> None:
    for form in ("messages", "text"):
        for row in (pair(), pair(form="text")):
            assert one(row, pair(form=form))  # type: ignore[arg-type]
            for other in (pair("q", form=form), pair(chosen="c", form=form), pair(rejected="c", form=form), pair("p", "b", "a", form)):  # type: ignore[arg-type]
                assert not one(row, other)
    for column, role in (("prompt", "assistant"), ("chosen", "user"), ("rejected", "tool")):
        changed = {**pair(), column: [{**pair()[column][0], "role": role}]}
        assert not one(pair(), changed) and not one(pair(form="text"), changed), "another role in the line"
        assert not one(changed, changed) and not one(changed, pair(form="text")), "and in the row"
    twice = {**pair(), "chosen": [*pair()["chosen"], *pair()["chosen"]]}
    assert not one(twice, twice), "two answers"
    assert not one({**pair(), "prompt": []}, {**pair(), "prompt": []}), "no prompt"
    assert not one(pair("p", "a", "a"), pair("p", "a", "a")), "equal answers"
    odd = {**pair(), "prompt": [said("tool", "x"), said("user", "p")]}
    assert not one(odd, odd), "an unknown role before the last"


def test_each_line_has_its_own_messages() -> None:
    """Two rows of a string each are not one line of two messages and one of none."""
    rows = [pair("p", form="text"), pair("q", form="text")]
    lines = [{**pair(), "prompt": [said("user", "p"), said("user", "q")]}, {**pair(), "prompt": []}]
    assert are_lines(in_columns(rows), in_columns(lines), SEARCHED).tolist() == [False, False]
    assert are_lines(in_columns(lines), in_columns(rows), SEARCHED).tolist() == [False, False]


def test_each_row_is_judged_by_its_own_messages() -> None:
    odd = {**pair(), "prompt": [said("tool", "x"), said("user", "p")]}
    rows = [pair(), odd, pair("q"), {**pair(), "prompt": []}, {**pair(), "prompt": [said("assistant", "p")]}, pair("r")]
    assert are_lines(in_columns(rows), in_columns(rows), SEARCHED).tolist() == [True, False, True, False, False, True]
    assert are_lines(in_columns(rows[1:]), in_columns(rows[1:]), SEARCHED).tolist() == [False, True, False, False, True]
    assert are_lines(in_columns(rows[:2]), in_columns(rows[:2]), SEARCHED).tolist() == [True, False]
    last = [{**pair(), "prompt": [said("user", "p"), said("tool", "x")]}]
    assert are_lines(in_columns(last), in_columns(last), SEARCHED).tolist() == [False]
