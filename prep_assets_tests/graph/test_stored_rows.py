"""Records are matched with the rows they come from by the block as they are one by one: in their order, each once, from the file that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.checks import sources_again as module
from prep_assets.checks.sources_again import DomainSource, Join, StoredRows
from prep_assets.errors import StoreError
from prep_assets.proofs.selection import Selected
from prep_assets.samples import Sample
from prep_assets.stores.table import TOKENS, Origins, Ragged, Table
from prep_assets_tests.effort import examples

Place = tuple[int, int]
SOUND = [(0, 0), (0, 2), (0, 3), (1, 1), (1, 4)]
BLOCKS = [(0, [0, 1]), (0, [2, 3, 5]), (1, [0, 1]), (1, []), (1, [4])]


@pytest.fixture(autouse=True)
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(SimpleNamespace(name=name) for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    source = DomainSource("d", None, files, (False,) * 3, Sample, 0)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "source_of", lambda _: source)


def stream_of(places: Sequence[Place], lengths: Sequence[int] | None = None, several: bool = False) -> Table:
    file, row = (np.array([place[side] for place in places], kind) for side, kind in ((0, np.int32), (1, np.int64)))
    ends = np.cumsum(np.array(lengths or [10] * len(places), np.int64))
    return Table("", TOKENS, len(row), Origins(("",), file * 0, file, row, several), {"tokens": Ragged(None, ends)})


def joined(stream: Table, blocks: Sequence[tuple[int, list[int]]] = BLOCKS, together: int = 1) -> Iterator[StoredRows]:
    """`together`: how many of the blocks come as one, which may be of several files."""
    store: Any = None
    join = Join(store, stream)
    for at in range(0, len(blocks), together):
        places = [(file, row) for file, rows in blocks[at : at + together] for row in rows]
        files, numbers = ([place[side] for place in places] for side in (0, 1))
        yield from join.add(Selected(files, numbers, ["good"] * len(places), [{"at": place} for place in places]))
    yield from join.end()


def outcome(stream: Table, blocks: Sequence[tuple[int, list[int]]] = BLOCKS, together: int = 1) -> tuple[list[Any], str]:
    """Number, id and row of each record that is found, and what is said in the end."""
    found: list[Any] = []
    try:
        for rows in joined(stream, blocks, together):
            found += rows.records()
    except StoreError as error:
        return found, str(error)
    return found, ""


def one_by_one(places: Sequence[Place], blocks: Sequence[tuple[int, list[int]]], several: bool) -> str:
    at = 0
    for file, rows in blocks:
        for row in rows:
            while at < len(places) and places[at] == (file, row):
                at += 1
                if not several:
                    break
    if at == len(places):
        return ""
    return f"record {at:,} of the store is row {places[at][1] + 1} of file {places[at][0] + 1}, which is not in the source"


def test_sound_records() -> None:
    found, said = outcome(stream_of(SOUND))
    assert said == ""
    names = ["a.jsonl:1", "a.jsonl:3", "a.jsonl:4", "b.jsonl:2", "b.jsonl:5"]
    assert found == [(number, name, {"at": place}) for number, (name, place) in enumerate(zip(names, SOUND, strict=True))]
    blocks = list(joined(stream_of(SOUND)))
    assert [(each.first, each.rows) for each in blocks] == [(0, [0]), (1, [2, 3]), (3, [1]), (4, [4])]
    assert [(each.first, each.rows) for each in joined(stream_of(SOUND), together=5)] == [(0, [0, 2, 3, 1, 4])]
    assert blocks[1].identity(1) == "a.jsonl:4"


def test_pages_of_records_are_counted_as_these_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(module, "note_mapped_bytes", counted.append)
    list(joined(stream_of(SOUND, [3, 5, 7, 11, 13])))
    assert counted == [4 * tokens for tokens in (3, 5 + 7, 11, 13)]


def test_records_of_many_tokens_are_given_a_few_at_a_time() -> None:
    rows = list(range(6))
    half = module.TOKENS_AT_ONCE // 2
    stream = stream_of([(0, row) for row in rows], [half, 3 * half, 1, half, half - 1, half])
    found = [each.rows for each in joined(stream, [(0, rows)])]
    assert found == [[0], [1, 2, 3], [4, 5]]


def test_records_of_one_row_are_together() -> None:
    half = module.TOKENS_AT_ONCE // 2
    rows = [0, 0, 0, 0, 1, 1, 2]
    found = [each.rows for each in joined(stream_of([(0, row) for row in rows], [half] * 7, several=True), [(0, [0, 1, 2])])]
    assert found == [[0, 0, 0, 0], [1, 1], [2]]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6) | st.sampled_from([-1, (1 << 40) + 1])), max_size=9),
    st.lists(st.sets(st.integers(0, 6), max_size=5), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_by_the_block_as_one_by_one(
    places: list[Place], rows: list[set[int]], size: int, together: int, several: bool, in_order: bool
) -> None:
    places = sorted(places) if in_order else places
    blocks = [(file, sorted(some)[at : at + size]) for file, some in enumerate(rows) for at in range(0, len(some), size)]
    found, said = outcome(stream_of(places, several=several), blocks, together)
    assert said == one_by_one(places, blocks, several)
    assert said or [(number, payload["at"]) for number, _, payload in found] == list(enumerate(places))


def test_a_row_that_no_file_can_have_is_not_one_of_the_next_file() -> None:
    found, said = outcome(stream_of([(0, (1 << 40) + 1)]), [(0, [0]), (1, [1])], together=2)
    assert not found and said == f"record 0 of the store is row {(1 << 40) + 2} of file 1, which is not in the source"
