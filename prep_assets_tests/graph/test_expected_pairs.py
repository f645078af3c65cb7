"""The records of a side are the lines of the pairs that they name, in their order, however many are given together."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.checks import of_conversations as module
from prep_assets.checks.of_conversations import pair_examples
from prep_assets.errors import StoreError
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.tokens import TokenStore

LINES = [b'{"prompt":"q%d","chosen":"a","rejected":"b"%s}\n' % (number, b"" if number % 4 else b',"tools":"[]"') for number in range(9)]


@pytest.fixture(autouse=True)
def three_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)
    monkeypatch.setattr(module, "_pair_reading", lambda store: lambda sample: sample)
    monkeypatch.setattr(module, "open_lines", lambda *_: SimpleNamespace(written=lambda: iter(LINES)))


def found(rows: list[int], only: list[int] | None = None) -> list[tuple[int, str, str]]:
    """Number, id and question of each record."""
    above = SimpleNamespace(manifest=SimpleNamespace(content_hash="x"), directory=None)
    store: Any = SimpleNamespace(above=lambda *_: above, partition="p", recipe={"pairs": "x"})
    count = len(rows)
    stream = TokenStore({}, np.arange(1, count + 1), np.zeros(count, np.int32), np.array(rows, np.int64))
    blocks = list(pair_examples(store, "chosen", stream, only))
    assert all(len(block.numbers) == 3 for block in blocks[:-1])
    return [(number, name, question(source)) for block in blocks for number, name, source in block.each()]


def question(source: Sample | PlainChat) -> str:
    return source.texts[0] if isinstance(source, PlainChat) else source.turns[0].text


@given(st.sets(st.integers(0, 8)).map(sorted), st.data())
def test_records_are_the_lines_that_they_name(rows: list[int], data: st.DataObject) -> None:
    only = data.draw(st.none() | st.sets(st.sampled_from(range(len(rows)))).map(list) if rows else st.none())
    assert found(rows, only) == [(at, f"line {row}", f"q{row}") for at, row in enumerate(rows) if only is None or at in only]


@pytest.mark.parametrize(
    ("rows", "record", "line"), [([0, 2, 2, 3], 2, 2), ([0, 3, 1], 2, 1), ([0, 1, 2, 1], 3, 1), ([7, 9], 1, 9), ([-1], 0, -1)]
)
def test_records_that_do_not_follow_or_have_no_line_are_refused(rows: list[int], record: int, line: int) -> None:
    with pytest.raises(StoreError, match=rf"record {record} of chosen is line {line}, which does not follow"):
        found(rows)


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def test_which_sides_are_in_columns() -> None:
    turns = [said("system", "s"), said("user", "q")]
    lines: list[Any] = [
        {"prompt": "q", "chosen": "a", "rejected": [said("assistant", "b")] * 2},
        {"prompt": turns, "chosen": [said("assistant", "a")], "rejected": [said("user", "b")], "margin": 1.5},
        {"prompt": "q", "chosen": "a", "rejected": "b", "tools": "[]"},
        {"prompt": "q", "chosen": [said("assistant", "a") | {"name": "n"}], "rejected": "b"},
        {"prompt": turns, "chosen": "a"},
        {"prompt": "q", "chosen": "a", "rejected": 1},
    ]
    written = [json.dumps(line).encode() + b"\n" for line in lines]
    plain, long = PlainChat(("user", "assistant"), ("q", "a")), PlainChat(("system", "user", "assistant"), ("s", "q", "a"))
    other = PlainChat(("user", "assistant"), ("q", "b"))
    assert module._plain_sides(written, "chosen") == [plain, long, None, None, None, plain]
    assert module._plain_sides(written, "rejected") == [None, None, None, other, None, None]
    for count in range(7):
        assert module._plain_sides(written[:count], "chosen") == [plain, long, None, None, None, plain][:count]
    assert module._plain_sides([b'{"prompt":"q","chosen":"a","rejected":"b"}\n', b"NaN\n"], "rejected") == [other, None]
