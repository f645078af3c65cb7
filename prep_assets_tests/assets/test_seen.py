"""Digests that came before: those that a dictionary finds, in a tenth of its memory."""

from __future__ import annotations

import tracemalloc

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.assets.reading import seen
from prep_assets.assets.reading.seen import Seen

RECORDS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.integers(0, 10**6)), max_size=200)


@given(RECORDS)
def test_it_says_what_a_dictionary_says(records: list[tuple[int, int, int]]) -> None:
    known: dict[int, str] = {}
    found = Seen()
    for value, file, row in records:
        identity = f"b:{file}.jsonl:{row}"
        first = known.get(value)
        known.setdefault(value, identity)
        assert found.first(xxhash.xxh3_128_digest(bytes([value])), identity) == first


def test_digests_that_hold_each_other_are_told_apart() -> None:
    """A part of one entry and of the next may be another digest."""
    found, one = Seen(), bytes(16)
    assert found.first(bytes(3) + b"x" + bytes(12), "a:0") is None
    assert found.first(one, "a:1") is None
    assert found.first(one, "a:2") == "a:1"


def test_a_record_takes_twenty_bytes_at_most() -> None:
    found, count = Seen(), 40_000
    tracemalloc.start()
    for row in range(count):
        found.first(xxhash.xxh3_128_digest(row.to_bytes(8)), f"a:{row}")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 20.5 * count
    assert len(found._buckets) > 4 * seen._FULL
