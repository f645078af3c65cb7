"""The order of a mixture, worked out here from the definition with PCG64's own outputs."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs.packed import Order, expected_order
from prep_assets.stores import arrays as columns

PLAIN: dict[str, Any] = {"weights": None, "epochs": None, "max_items": None, "seed": 7, "shuffle": False}
LENGTHS = {"b": np.array([5, 6, 7]), "a": np.array([1, 2, 3, 4])}


def listed(order: Order) -> list[tuple[int, int, int]]:
    assert order.source.dtype == order.record.dtype == order.length.dtype == np.int64
    return list(zip(order.source.tolist(), order.record.tolist(), order.length.tolist(), strict=True))


A, B = [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4)], [(1, 0, 5), (1, 1, 6), (1, 2, 7)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, A + B),
        ({"max_items": {"a": 2}}, A[:2] + B),
        ({"max_items": {"a": 9, "b": 1}}, A + B[:1]),
        ({"epochs": {"a": 2.0}}, A + A + B),
        ({"epochs": {"a": 1.5}}, A + A[:2] + B),
        ({"epochs": {"a": 0.125, "b": 0}}, A[:1]),
        ({"epochs": {"a": 0.1}}, B),
        ({"epochs": {"b": 0.5}}, A + B[:2]),
        ({"epochs": {"a": 1.5}, "max_items": {"a": 2}}, A[:2] + A[:1] + B),
        ({"weights": {"a": 1, "b": 1}}, A + B[:2]),  # 10 of a, so 10 of b: 11 is nearer than 5
        ({"weights": {"a": 0, "b": 1}}, B),
        ({"weights": {"a": 1.0, "b": 0.5}}, A + B[:1]),
        ({"weights": {"a": 1, "b": 9}}, A[:1] + B),  # 18 of b, so 2 of a: 1 and 3 are as near, fewer are taken
    ],
)
def test_without_shuffling(options: dict[str, Any], wanted: list[tuple[int, int, int]]) -> None:
    assert listed(expected_order(LENGTHS, {**PLAIN, **options})) == wanted


def test_nothing() -> None:
    for shuffle in (True, False):
        assert listed(expected_order({}, {**PLAIN, "shuffle": shuffle})) == []
        assert listed(expected_order({"a": np.zeros(0, np.int64)}, {**PLAIN, "shuffle": shuffle})) == []


def generator(name: str, seed: int = 7) -> np.random.PCG64:
    return np.random.PCG64(int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest(), "big"))


def permutation(draw: np.random.PCG64, count: int) -> list[int]:
    raw = draw.random_raw(count).tolist()
    return sorted(range(count), key=lambda at: raw[at])


@pytest.mark.parametrize("seed", [7, 8])
def test_shuffled(seed: int) -> None:
    placed = []
    for number, name in enumerate(("a", "b")):
        draw, count = generator(name, seed), len(LENGTHS[name])
        pool = permutation(draw, count)[:3]
        passes = [[pool[at] for at in permutation(draw, 3)] for _ in range(2)]
        records = [*passes[0], *passes[1][:1]]  # 3 × 1.25 = 3.75, rounded
        placed += [(rank, number, record) for rank, record in zip(draw.random_raw(4).tolist(), records, strict=True)]
    wanted = [(number, record, int(LENGTHS["ab"[number]][record])) for _, number, record in sorted(placed)]
    options = {**PLAIN, "seed": seed, "shuffle": True, "max_items": {"a": 3}, "epochs": {"a": 1.25, "b": 1.25}}
    assert listed(expected_order(LENGTHS, options)) == wanted


def test_weights_take_the_nearest_number_of_tokens() -> None:
    draws = np.random.default_rng(3)
    for _ in range(50):
        lengths = {name: draws.integers(1, 9, int(draws.integers(1, 12))) for name in ("a", "b")}
        weights = {"a": float(draws.integers(1, 5)), "b": float(draws.integers(1, 5))}
        found = listed(expected_order(lengths, {**PLAIN, "weights": weights}))
        total = min(Fraction(int(lengths[name].sum())) / Fraction(weights[name]) for name in weights)
        for number, name in enumerate(("a", "b")):
            taken = sum(length for source, _, length in found if source == number)
            target = total * Fraction(weights[name])
            options = [int(lengths[name][:count].sum()) for count in range(len(lengths[name]) + 1)]
            assert abs(taken - target) == min(abs(each - target) for each in options)


def test_a_long_column_is_made_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for stretch in (columns.STRETCH, 2):
        monkeypatch.setattr(columns, "STRETCH", stretch)
        for shuffle in (True, False):
            made = expected_order(LENGTHS, {**PLAIN, "shuffle": shuffle})
            found.append((made.source.tolist(), made.record.tolist(), made.length.tolist()))
    assert found[:2] == found[2:] and len(found[0][0]) == 7


class Falling:
    """Random numbers of 64 bits, each one less than the one before: alike to whatever has less than 64 bits."""

    def __init__(self, seed: int) -> None: ...

    def random_raw(self, count: int) -> Any:
        return np.uint64(2**64 - 1) - np.arange(count, dtype=np.uint64)


def test_all_bits_of_random_numbers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen last to first, passed last to first, and placed last to first."""
    monkeypatch.setattr(np.random, "PCG64", Falling)
    found = expected_order({"a": np.array([5, 6, 7])}, {**PLAIN, "shuffle": True})
    assert (found.record.tolist(), found.length.tolist()) == ([2, 1, 0], [7, 6, 5])
