"""Merged lines and records against those of the domains, in the words of the verdict."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import merged as module
from prep_assets.proofs.merged import Asked, MergedRows, check_merged_lines, check_merged_records
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.tokens import TokenStore
from prep_assets_tests.peak import peak

LINES = [b'{"a": 0}\n', b'{"b": 0}\n', b'{"b": 1}\n', b'{"c": 7}\n']
ORIGIN = np.array([[0, 0, 4], [1, 0, 2], [1, 1, 2], [3, 0, 9]])
PARTS = MergedRows(ORIGIN, LINES)


def in_order(*order: int) -> MergedRows:
    return MergedRows(ORIGIN[list(order)], [LINES[at] for at in order])


def lines(merged: MergedRows, seed: int | None = None) -> Verdict:
    return check_merged_lines("f", merged, PARTS, seed)


def failed(where: str, what: str, numbers: dict[str, int]) -> Verdict:
    return Verdict(False, f"{where}: {what}", numbers, Worst(where, what))


def test_lines_end_to_end_or_in_the_order_of_the_seed() -> None:
    sound = Verdict(True, "4 lines of f are those of their domains, in their order", {"lines_checked": 4})
    order = [0, 1, 2, 3]
    random.Random(5).shuffle(order)
    assert order != [0, 1, 2, 3]
    assert lines(in_order(0, 1, 2, 3)) == lines(in_order(*order), 5) == sound
    assert not lines(in_order(0, 1, 2, 3), 5).passed and not lines(in_order(*order)).passed


@pytest.mark.parametrize(
    ("merged", "where", "what"),
    [
        (in_order(0, 1, 2), "f", "it has 3 lines, its domains have 4"),
        (in_order(0, 2, 1, 3), "f line 2", "is of (domain, file, row) (1, 1, 2), and must be of (1, 0, 2)"),
        (MergedRows(ORIGIN, [*LINES[:3], b'{"c": 8}\n']), "f line 4", "is not as its domain has it: b'{\"c\": 8}\\n'"),
        (MergedRows(ORIGIN, [LINES[0], LINES[2], LINES[1], LINES[3]]), "f line 2", "is not as its domain has it: b'{\"b\": 1}\\n'"),
        (MergedRows(ORIGIN, [b"x" * 300, *LINES[1:]]), "f line 1", f"is not as its domain has it: {b'x' * 200!r}"),
    ],
)
def test_lines_that_are_not_those_of_the_domains(merged: MergedRows, where: str, what: str) -> None:
    assert lines(merged) == failed(where, what, {"lines_checked": len(merged.origin)})


def test_origins_of_all_lines_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some at a time; here the lines are as they must be, and one of them is said to be of another row."""
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    origin = np.array([[0, 0, row] for row in range(9)])
    parts = MergedRows(origin, [b"x"] * 9)
    assert check_merged_lines("f", MergedRows(origin.copy(), [b"x"] * 9), parts, None).passed
    for at in range(9):
        other = origin.copy()
        other[at, 2] = 77
        found = check_merged_lines("f", MergedRows(other, [b"x"] * 9), parts, None)
        assert found.summary == f"f line {at + 1}: is of (domain, file, row) (0, 0, 77), and must be of (0, 0, {at})"


def store(*records: list[int], rows: list[int], file: int = 0, **more: list[int]) -> TokenStore:
    flat = np.array([token for record in records for token in record])
    arrays: dict[str, Any] = {"tokens": flat, **{key: np.array(values) for key, values in more.items()}}
    return TokenStore(arrays, np.cumsum([len(record) for record in records]), np.full(len(records), file, np.int32), np.array(rows))


PIECES = (store([5, 6], [7], rows=[0, 2]), store([8, 9, 5], rows=[1]))
MERGED = store([8, 9, 5], [5, 6], [7], rows=[0, 1, 3])
ASKED = Asked(*(np.array(each) for each in ([1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 3])))


def records(merged: TokenStore, source: list[int] | None = None) -> Verdict:
    return check_merged_records("s", merged, PIECES, ASKED, None if source is None else np.array(source, np.int32))


def test_records_of_several_stores() -> None:
    sound = Verdict(True, "3 records of s are those of their domains", {"records_checked": 3, "tokens_checked": 6})
    assert records(MERGED) == records(MERGED, [1, 0, 0]) == sound


NUMBERS = {"records_checked": 3, "tokens_checked": 6}


@pytest.mark.parametrize(
    ("merged", "where", "what", "numbers"),
    [
        (store([8, 9, 5], [5, 6], rows=[0, 1]), "s", "it has 2 records, and must have 3", {"records_checked": 2, "tokens_checked": 5}),
        (store([8, 9, 5], [5, 6], [7], rows=[0, 1, 3], file=1), "s record 0", "has the file 1, and must have 0", NUMBERS),
        (store([8, 9, 5], [5, 6], [7], rows=[0, 1, 2]), "s record 2", "has the row 2, and must have 3", NUMBERS),
        (store([8, 9, 5], [5, 4], [7], rows=[0, 1, 3]), "s record 1", "tokens differs from its part at place 1: 4, there 6", NUMBERS),
        (store([8, 9], [5, 5, 6], [7], rows=[0, 1, 3]), "s record 0", "has 2 tokens, its part has 3", NUMBERS),
        (
            store([8, 9, 5], [5, 6], [7], rows=[0, 1, 3], loss_mask=[1] * 6),
            "s",
            "it has ['loss_mask', 'tokens'], its parts have [['tokens'], ['tokens']]",
            NUMBERS,
        ),
    ],
)
def test_records_that_are_not_those_of_the_domains(merged: TokenStore, where: str, what: str, numbers: dict[str, int]) -> None:
    assert records(merged) == failed(where, what, numbers)


def test_a_record_that_is_said_to_be_of_another_domain() -> None:
    assert records(MERGED, [1, 1, 0]) == failed("s record 1", "has the domain 1, and must have 0", NUMBERS)


def test_every_array_counts() -> None:
    masked = [replace(each, arrays={**each.arrays, "loss_mask": np.ones(each.tokens, int)}) for each in (MERGED, *PIECES)]
    assert check_merged_records("s", masked[0], masked[1:], ASKED).passed
    other = replace(masked[0], arrays={**masked[0].arrays, "tokens": masked[0].arrays["tokens"] + 1})
    assert check_merged_records("s", other, masked[1:], ASKED).summary == "s record 0: tokens differs from its part at place 0: 9, there 8"
    masked[0].arrays["loss_mask"][4] = 0
    said = check_merged_records("s", masked[0], masked[1:], ASKED)
    assert said == failed("s record 1", "loss_mask differs from its part at place 1: 0, there 1", NUMBERS)


def test_memory_does_not_grow_with_the_number_of_lines() -> None:
    """A digest, a number and a place were Python's objects for each line: 150 bytes."""
    count = 20_000
    origin = np.zeros((count, 3), np.int64)
    origin[:, 2] = np.arange(count)
    order = list(range(count))
    random.Random(7).shuffle(order)
    merged, parts = (MergedRows(of, (b"%d" % row for row in of[:, 2])) for of in (origin[order], origin))
    assert peak(lambda: check_merged_lines("f", merged, parts, 7)) < 2_000_000
    wrong = MergedRows(origin[order], (b"%d" % (row + (row == order[15_000])) for row in origin[order][:, 2]))
    verdict = check_merged_lines("f", wrong, MergedRows(origin, (b"%d" % row for row in range(count))), 7)
    assert verdict.worst is not None and verdict.worst.where == "f line 15,001"
