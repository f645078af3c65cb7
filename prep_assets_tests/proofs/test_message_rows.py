"""Rows of messages in columns are the rows that the same lines hold one by one, and nothing else is taken for one."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs import message_rows, source_rows
from prep_assets.proofs.message_rows import MessageFields, MessageRows, SomeMessageRows
from prep_assets.proofs.selection import Rules, select
from prep_assets.proofs.source_rows import read_rows

FIELDS = MessageFields(("messages",), "role", "content")


def line(*texts: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text, **more} for text in texts]}).encode()


PLAIN = [
    line("a", "b"),
    line("\u00e9\n\0\U0001f600"),
    line(),
    line("", "x"),
    b'{"messages":[{"content":"c","role":"r"}]}',
    b'{"messages":[]}',
]
OTHERS = [
    *(
        b"",
        b"  ",
        b' {"messages":[]}',
        b"null",
        b"{}",
        b"{broken",
        b"}{",
        b'{"messages":null}',
        b'{"messages":[null]}',
        b'{"messages":{}}',
        b'{"messages":"x"}',
    ),
    *(line("a", name="n"), line("a", content=None), line("a", role=1), line("a", content=True), line("a", content=["x"])),
    *(b'{"messages":[],"messages":[]}', b'{"messages":[{"role":"a","role":"a","content":"x"}]}', b'{"messages":[{"role":"a"}]}'),
    *(b'{"messages":[],"id":1}', b'{"messages":[{"role":"a","content":"\xff"}]}', b'{"messages":[{"role":"a","content":"\xed\xa0\x80"}]}'),
    *(
        b'{"messages":[{"role":"a","content":"\\ud800"}]}',
        b'{"messages":[{"role":"a","content":"\\udc00"}]}',
        b'{"messages":[]}{"messages":[]}',
    ),
    *(b'{"messages":[]}\r', b'{"messages":[{"role":"a","content":"x"},]}', b'{"messages":[{"role":"a","content":"\t"}]}', b'{"messages":'),
    *(
        b'[{"role":"a","content":"x"}]}',
        b'{"messages":[{"role":"a","content":"x"}',
        b',{"role":"a","content":"x"}]}',
        b'"\\\\":1}',
        b"{/**/}",
    ),
    *(
        b'{"messages":[{"role":"a","content":"x"}]} x',
        b'{"messages":[{"role":"a","content":"\\x"}]}',
        b"{'messages':[]}",
        b'{"messages":[NaN]}',
    ),
]


def expanded(found: Any) -> list[tuple[int, Any]]:
    rows: list[tuple[int, Any]] = []
    for some in found:
        if isinstance(some, MessageRows):
            assert len(some) == len(some.numbers)
            rows += zip(some.numbers, some, strict=True)
        else:
            rows.append(some)
    return rows


@given(
    st.lists(st.sampled_from(PLAIN) | st.sampled_from(OTHERS), max_size=12), st.sampled_from([1, 2, 64]), st.sampled_from([1, 99, 1 << 20])
)
def test_whatever_a_file_holds_its_rows_are_the_same(lines: list[bytes], fewest: int, most: int) -> None:
    data = b"\n".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_rows, "FEWEST", fewest)
        patch.setattr(source_rows, "MESSAGE_BYTES", most)
        found = expanded(read_rows(io.BytesIO(data), "jsonl", None, messages=FIELDS))
    assert found == list(read_rows(io.BytesIO(data), "jsonl", None))


def test_plain_lines_are_read_into_columns() -> None:
    rows = FIELDS.read(range(10, 16), PLAIN)
    assert rows is not None and rows[0] == json.loads(PLAIN[0]) and "_rows" not in vars(rows), "one row is made alone"
    assert list(rows) == list(map(json.loads, PLAIN)) == [rows[at] for at in range(6)] and rows[1:3] == list(rows)[1:3]
    assert rows.lists[0].first.tolist() == [0, 2, 3, 3, 5, 6, 6]
    data, bounds = rows.lists[0].contents
    assert [data[low:high].decode() for low, high in pairwise(bounds)] == [
        "a",
        "b",
        "\u00e9\n\0\U0001f600",
        "",
        "x",
        "c",
    ]
    assert rows.lists[0].roles.to_pylist() == ["user"] * 5 + ["r"]
    assert FIELDS.read([], []) is None


@pytest.mark.parametrize("other", [each for each in OTHERS if each.strip()])
def test_no_other_line_is(other: bytes) -> None:
    assert FIELDS.read(range(2), [PLAIN[0], other]) is None


def test_lines_of_any_length_are_read_together() -> None:
    rows = FIELDS.read(range(2), [line("x" * (3 << 20)), line("y")])
    assert rows is not None and [len(row["messages"][0]["content"]) for row in rows] == [3 << 20, 1]


def test_rows_without_messages() -> None:
    rows = FIELDS.read(range(2), [line(), line()])
    assert (
        rows is not None
        and rows.lists[0].contents[0] == b""
        and rows.lists[0].contents[1].tolist() == [0]
        and rows.lists[0].first.tolist() == [0, 0, 0]
    )
    assert rows.digests() == [FIELDS.digest_of({"messages": []})] * 2


def test_a_line_that_is_not_plain_leaves_most_others_in_columns() -> None:
    lines = [line(str(number)) for number in range(1000)]
    lines[100] = line("x", name="n")
    found = list(read_rows(io.BytesIO(b"\n".join(lines)), "jsonl", None, messages=FIELDS))
    assert sum(isinstance(each, MessageRows) for each in found) < 8
    assert sum(len(each) for each in found if isinstance(each, MessageRows)) >= 1000 - message_rows.FEWEST


@given(st.sets(st.sampled_from(range(6))))
def test_some_of_them(which: set[int]) -> None:
    rows = FIELDS.read(range(10, 16), PLAIN)
    assert rows is not None
    some = SomeMessageRows(rows, np.array(sorted(which), np.int64))
    assert list(some) == some[:] == [rows[at] for at in sorted(which)] and len(some) == len(which)


@given(st.lists(st.lists(st.tuples(st.text("ab", max_size=2), st.text("ab\u00e9", max_size=2)), max_size=3), min_size=1, max_size=30))
def test_rows_are_known_by_their_strings(listed: list[list[tuple[str, str]]]) -> None:
    payloads = [{"messages": [{"role": role, "content": text} for role, text in each]} for each in listed]
    rows = FIELDS.read(range(len(payloads)), [json.dumps(each).encode() for each in payloads])
    assert rows is not None and rows.digests() == list(map(FIELDS.digest_of, payloads))
    assert len({*rows.digests()}) == len({json.dumps(each) for each in payloads})


@pytest.mark.parametrize(
    "other", [{"messages": 1}, {"messages": [], "id": 1}, {"messages": [1]}, *map(json.loads, (line("a", name="n"), line("a", role=1)))]
)
def test_other_rows_have_no_such_digest(other: Any) -> None:
    assert FIELDS.digest_of(other) is None


def test_duplicates_are_found_across_rows_and_columns() -> None:
    lines = [line("a"), line("b"), line("a"), line("c", name="n"), line("b"), line("a")]
    columns = FIELDS.read(range(3), lines[:3])
    rows: Any = [
        columns,
        *((number, json.loads(each)) for number, each in enumerate(lines[3:], 3)),
        FIELDS.read([6, 7], [line("z"), line("b")]),
    ]
    found = list(select([(0, False, iter(rows))], Rules(messages=FIELDS)))
    assert [(list(block.rows), list(block.fates)) for block in found] == [
        ([0, 1, 2], ["good", "good", "duplicate"]),
        ([3, 4, 5], ["good", "duplicate", "duplicate"]),
        ([6, 7], ["good", "duplicate"]),
    ]
    kept = select([(0, False, iter(rows))], Rules(messages=FIELDS, deduplicate=False))
    assert {fate for block in kept for fate in block.fates} == {"good"}


def test_rules_that_leave_out_more_than_duplicates() -> None:
    assert Rules(messages=FIELDS, deduplicate=False).every
    for rules in (Rules(key="d"), Rules(where={"a": 1}), Rules(limit=1), Rules(forgotten=frozenset("a")), Rules(passages=object())):  # type: ignore[arg-type]
        assert not rules.every
