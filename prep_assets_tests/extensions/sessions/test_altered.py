"""Sessions and trajectories with something altered: refused for a reason, or their second reading says what the schema says."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.proofs.formats import format_of
from prep_assets.proofs.rejected_rows import kept_fault, ruling
from prep_assets.proofs.source_rows import Reading
from prep_assets.samples import SYSTEM, Sample, changed, turn
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.sessions import SESSIONS, branches, called, chats, helper, traces, trajectory
from prep_assets_tests.extensions.sessions.test_sessions import WRONG
from prep_assets_tests.proofs.test_source_texts import fault, held

LAST = {"several": "last", "sidechains": "leave_out", "open_end": "trim"}
ROWS = [
    *(("agent_session", {"lines": make(3)}, {}) for make in SESSIONS.values()),
    *(("agent_session", {"lines": lines}, LAST) for lines in branches()),
    *(("atif", chat, {}) for chat in chats()),
    ("atif", {**called(), "subagent_trajectories": [helper()]}, {"agent": "explorer"}),
    *(("atif_group", trace, {"subagents": "train"}) for trace in traces()),
]
VALUES = [None, "", [], {}, 0, 1.5, True, "x", ["x"], {"a": 1}, [{"type": "text", "text": "y"}], "assistant", "user", [None], [[]]]
TOOLS = ("tool_definitions", "tools")
"""Where tools stand, which all schemas share."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key not in TOOLS:
            yield (*path, key)
            yield from places(inner, (*path, key))


def altered(row: Any, draw: random.Random) -> Any:
    """A row without a value, with another in its place, or with one more or others of a list."""
    row = copy.deepcopy(row)
    *above, key = draw.choice([*places(row)] or [("lines",)])
    holder = row
    for each in above:
        holder = holder[each]
    what = draw.randrange(4)
    if what == 0:
        holder.pop(key, None) if isinstance(holder, dict) else holder.pop(key)
    elif what == 1 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    elif what == 2 and isinstance(holder, list):
        draw.shuffle(holder)
    else:
        holder[key] = copy.deepcopy(draw.choice(VALUES))
    return row


@cells("number", range(len(ROWS)))
def test_that_a_row_is_whole_the_second_reading_says(number: int) -> None:
    schema, row, options = ROWS[number]
    definition = format_of(schema, options)
    assert definition is not None
    if row.get("schema_version") == "ATIF-v2.0":
        assert ruling(definition, row, "unknown_version") == ""
        return
    assert kept_fault(definition, row) == ""
    reasons = ("missing_field", "open_end", "lost_turn", "role_order", "a reason that there is not")
    assert all("a second reading finds no" in str(ruling(definition, row, reason)) for reason in reasons)
    assert ruling(definition, row, "schema_error") == "its schema fails on it, which no row may make it do"


@cells(("kind", "last"), [(kind, last) for kind in WRONG for last in (False, True)])
def test_why_a_session_is_not_whole_the_second_reading_says(kind: str, last: bool) -> None:
    lines, options = WRONG[kind][0], LAST if last else {}
    definition = format_of("agent_session", options)
    assert definition is not None
    try:
        apply(convert_with("agent_session", options), {"lines": copy.deepcopy(lines)})
    except Refused as refusal:
        unsure = "missing_field", "unknown_part"
        assert ruling(definition, {"lines": lines}, refusal.reason) == "" or refusal.reason in unsure
    else:
        assert kept_fault(definition, {"lines": lines}) == ""


def test_a_system_turn_of_nothing_is_more_than_a_row_says() -> None:
    reading, empty = Reading("agent_session", {}, "Sample"), turn(SYSTEM, "")
    for rows, fault in ((SESSIONS["pi"](1), "its example has a system turn that says nothing, and it has none"), (instructed(), "")):
        example = convert_with("agent_session")({"lines": rows})
        assert isinstance(example, Sample) and reading.surplus({"lines": rows}, example) == ""
        turns = (empty, *(each for each in example.turns if each.role != SYSTEM))
        assert reading.surplus({"lines": rows}, changed(example, turns=turns)) == fault


def instructed() -> list[Any]:
    """A session of Hermes, whose first message is of the system."""
    [row] = SESSIONS["hermes"](1)
    return [{**row, "system_prompt": None, "messages": [{"role": "system", "content": ""}, *row["messages"]]}]


def test_a_row_that_is_kept_must_be_whole() -> None:
    definition = format_of("agent_session", {})
    assert definition is not None
    for lines, reason in WRONG.values():
        assert kept_fault(definition, {"lines": lines}) or reason in ("missing_field", "unknown_part")
    lost = trajectory(1)
    lost["steps"][1]["message"] = " "
    for schema in ("atif", "atif_group"):
        definition = format_of(schema, {})
        assert definition is not None and kept_fault(definition, lost) == "a second reading finds 'lost_turn'"


@given(st.sampled_from(ROWS), st.integers(0, 1 << 30))
def test_what_a_schema_takes_of_an_altered_row_its_second_reading_says(given_row: Any, seed: int) -> None:
    schema, row, options = given_row
    account, draw = Account(), random.Random(seed)
    for _ in range(draw.choice((1, 1, 2))):
        row = altered(row, draw)
    definition, given_row = format_of(schema, options), copy.deepcopy(row)
    assert definition is not None
    try:
        example = apply(Reader(convert_with(schema, options), account), row)
    except Refused as refusal:
        assert refusal.reason != "schema_error", refusal
        assert not ruling(definition, given_row, refusal.reason), refusal
        return
    if account.unknown:
        return
    assert kept_fault(definition, given_row) == ""
    if schema != "atif_group":
        reading = Reading(schema, options, "Sample")
        assert fault(reading.texts(row), held(example, schema)) is None and reading.surplus(row, example) == ""
