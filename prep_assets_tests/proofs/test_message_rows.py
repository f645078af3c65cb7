"""Rows of messages in columns are the rows that the same lines hold one by one, and nothing else is taken for one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs.second_reading import MessageFields

FIELDS = MessageFields(("messages",), "role", "content")
PAIRS = MessageFields(("prompt", "answer"), "role", "content", strings=True)


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


def test_plain_lines_are_read_into_columns() -> None:
    rows = FIELDS.read(range(10, 16), PLAIN)
    assert rows is not None and rows[0] == json.loads(PLAIN[0])
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


def test_rows_that_are_taken() -> None:
    rows = FIELDS.read(range(10, 16), PLAIN)
    assert rows is not None
    for which in ([], [0], [5], [1, 3, 4]):
        some = rows.taken(np.array(which, np.int64))
        assert list(some) == [rows[at] for at in which] and len(some) == len(which)
        assert list(some.numbers) == [10 + at for at in which] and some.fields == FIELDS
        assert some.lists[0].texts.to_pylist() == [message["content"] for at in which for message in rows[at]["messages"]]
    assert rows.taken(np.arange(6)) is rows


# -- strings in the place of messages ---------------------------------------------------------------------------------------------------


def written(*rows: Any) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


STRINGS: list[dict[str, Any]] = [{"prompt": "a: b", "answer": "c: d"}, {"prompt": "", "answer": "\u00e9"}, {"answer": "x", "prompt": "y"}]


def test_strings_are_read_where_they_may_stand() -> None:
    rows = PAIRS.read(range(10, 13), written(*STRINGS))
    assert rows is not None and list(rows) == STRINGS == [rows[at] for at in range(3)]
    assert [each.first.tolist() for each in rows.lists] == [[0, 1, 2, 3]] * 2
    assert [each.texts.to_pylist() for each in rows.lists] == [["a: b", "", "y"], ["c: d", "\u00e9", "x"]]
    some = rows.taken(np.array([0, 2]))
    assert list(some) == [STRINGS[0], STRINGS[2]] and list(some.numbers) == [10, 12]
    assert PAIRS.read([0], written(STRINGS[0])) is not None and PAIRS.read([], []) is None


def test_messages_are_read_where_strings_may_stand() -> None:
    messages = {name: [{"role": "user", "content": "x"}] for name in PAIRS.columns}
    rows = PAIRS.read(range(2), written(messages, messages))
    assert rows is not None and list(rows) == [messages] * 2


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": None, "answer": "x"},
        {"prompt": "x"},
        {"prompt": "x", "answer": []},
        {"prompt": [], "answer": []},
        {"prompt": 1, "answer": "x"},
    ],
)
def test_not_every_row_has_strings(other: Any) -> None:
    assert PAIRS.read(range(2), written(STRINGS[0], other)) is None
    assert PAIRS.read(range(2), written(other, STRINGS[0])) is None


def test_strings_stand_in_no_other_place() -> None:
    assert FIELDS.read([0], [b'{"messages":"x"}']) is None
