"""Digests that came before, against a plain set; and what they take."""

from __future__ import annotations

import os
import struct
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.stores import files as digests
from prep_assets.stores.files import Digests
from prep_assets_tests.peak import peak

HALVES = st.one_of(st.integers(0, 5), st.integers(0, 5).map(lambda n: n << 20), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(HALVES, HALVES), max_size=200))
def test_they_are_a_set(numbers: list[tuple[int, int]]) -> None:
    """Many share a slot; halves of some are 0."""
    found, plain = Digests(), set[bytes]()
    for low, high in numbers:
        digest = struct.pack("<QQ", 2 * low, high)
        assert (digest in found) == (digest in plain)
        assert found.add(digest) == (digest not in plain)
        plain.add(digest)
    assert len(found) == len(plain) and all(digest in found for digest in plain)


@given(st.lists(st.lists(st.tuples(HALVES, HALVES), max_size=60), max_size=6), st.sampled_from([2, 1 << 14]))
def test_many_at_once_are_numbered_as_a_dictionary_does(blocks: list[list[tuple[int, int]]], slots: int) -> None:
    """Of a digest with a number, the upper bits of its second half are gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "IN_MEMORY", slots)
        found, known, number = Digests(numbered=True), dict[tuple[int, int], int](), 0
        for block in blocks:
            expected = []
            for low, high in block:
                first = known.setdefault((max(low, 1), high % 2**24), number)
                expected.append(-1 if first == number else first)
                number += 1
            numbers = np.arange(number - len(block), number)
            assert found.firsts([struct.pack("<QQ", *halves) for halves in block], numbers).tolist() == expected
        assert len(found) == len(known)


def test_numbers_take_forty_bits() -> None:
    found, digest = Digests(numbered=True), bytes(range(16))
    assert found.firsts([digest], np.array([2**40 - 1])).tolist() == [-1]
    assert found.firsts([digest], np.array([0])).tolist() == [2**40 - 1]


def many(count: int) -> Digests:
    found = Digests()
    for number in range(count):
        assert found.add(blake2b(number.to_bytes(8, "little"), digest_size=16).digest())
    return found


@pytest.mark.parametrize("slots", [2, 1 << 14])
def test_a_table_grows_into_a_file(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    monkeypatch.setattr(digests, "IN_MEMORY", slots)
    found = many(15_000)
    assert len(found) == 15_000
    assert not any(found.add(blake2b(number.to_bytes(8, "little"), digest_size=16).digest()) for number in range(0, 15_000, 7))
    assert blake2b(b"else", digest_size=16).digest() not in found


def test_memory_does_not_grow_with_their_number() -> None:
    """A set takes a hundred bytes for each."""
    assert peak(lambda: many(40_000)) < 2 * 16 * digests.IN_MEMORY


def test_a_full_disk_is_told_and_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"No space left on device: '.+'"):
        many(15_000)
