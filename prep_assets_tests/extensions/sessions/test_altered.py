"""Sessions and trajectories with something altered: refused for a reason, or their second reading says what the schema says."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.proofs.source_rows import Reading
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.corpus.sessions import SESSIONS, branches, called, chats, helper, traces
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


@given(st.sampled_from(ROWS), st.integers(0, 1 << 30))
def test_what_a_schema_takes_of_an_altered_row_its_second_reading_says(given_row: Any, seed: int) -> None:
    schema, row, options = given_row
    account, draw = Account(), random.Random(seed)
    for _ in range(draw.choice((1, 1, 2))):
        row = altered(row, draw)
    try:
        example = apply(Reader(convert_with(schema, options), account), row)
    except Refused as refusal:
        assert refusal.reason != "schema_error", refusal
        return
    if not account.unknown and schema != "atif_group":
        reading = Reading(schema, options, "Sample")
        assert fault(reading.texts(row), held(example, schema)) is None and reading.surplus(row, example) == ""
