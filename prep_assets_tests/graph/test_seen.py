"""Digests that came before: those that a dictionary finds, in memory that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.pipeline.examples import Seen, duplicates_of
from prep_assets.stores import arrays as columns
from prep_assets.stores import files as digests
from prep_assets_tests.peak import peak

BLOCKS = st.lists(st.tuples(st.integers(0, 3), st.dictionaries(st.integers(0, 10**6), st.integers(0, 60), max_size=50)), max_size=8)


@given(BLOCKS)
def test_it_says_what_a_dictionary_says(blocks: list[tuple[int, dict[int, int]]]) -> None:
    known: dict[int, str] = {}
    found = Seen()
    for file, values in blocks:
        rows, firsts = sorted(values), {}
        for row in rows:
            identity = f"b:{file}.jsonl:{row}"
            if known.setdefault(values[row], identity) is not identity:
                firsts[row] = known[values[row]]
        assert found.firsts([xxhash.xxh3_128_digest(bytes([values[row]])) for row in rows], f"b:{file}.jsonl", rows) == firsts


def test_a_place_is_no_part_of_a_digest() -> None:
    """The last bytes of a digest give way to it, the eleventh does not."""
    found, one = Seen(), bytes(16)
    assert found.firsts([bytes(10) + b"x" + bytes(5)], "a", [0]) == {}
    assert found.firsts([one], "a", [1]) == {}
    assert found.firsts([one, bytes(11) + b"x" * 5], "a", [2, 2**39]) == {2: "a:1", 2**39: "a:1"}


def test_memory_does_not_grow_with_their_number() -> None:
    def many(count: int) -> None:
        found = Seen()
        for row in range(0, count, 1000):
            rows = range(row, row + 1000)
            assert found.firsts([xxhash.xxh3_128_digest(each.to_bytes(8)) for each in rows], "a", rows) == {}

    assert peak(lambda: many(40_000)) < 1.2 * peak(lambda: many(digests.IN_MEMORY))


def test_duplicates_over_shards_are_those_that_a_dictionary_finds(short_stretches: None) -> None:
    chance = np.random.default_rng(3)
    shards = [shard_of(chance.integers(0, 2**63 - 1, 2)[chance.integers(0, 2, size)], number) for number, size in enumerate((30, 0, 1, 25))]
    shards[0]["low"][:20] = np.arange(20)
    found = duplicates_of(shards)
    first: dict[tuple[int, int], list[int]] = {}
    for shard, mine in zip(shards, found, strict=True):
        wanted = []
        for high, low, *place in zip(*(shard[name].tolist() for name in ("high", "low", "file", "row")), strict=True):
            if (earlier := first.setdefault((high, low), place)) is not place:
                wanted.append([*place, *earlier])
        assert mine.tolist() == wanted
    assert sum(map(len, found)) > 20
    assert duplicates_of([]) == []


def test_duplicates_over_shards_wait_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"STRETCH": 1 << 10, "IN_MEMORY": 1 << 12, "DIGIT": 8}.items():
        monkeypatch.setattr(columns, name, value)
    halves = np.random.PCG64(0).random_raw(20_000) % 12_000

    def over(count: int) -> int:
        shards = [shard_of(each, number) for number, each in enumerate(np.split(halves[: 2_000 * count], count))]
        return peak(lambda: duplicates_of(shards))

    assert over(10) - over(2) < 2 * 16_000


def shard_of(halves: npt.NDArray[Any], number: int) -> dict[str, npt.NDArray[Any]]:
    """What a first pass notes of a shard."""
    count = len(halves)
    return {
        "high": halves.astype(np.uint64),
        "low": halves.astype(np.uint64) % np.uint64(7),
        "file": np.full(count, number, np.int32),
        "row": np.arange(count) + 5,
    }
