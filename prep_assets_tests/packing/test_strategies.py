from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.packing import PackPlan, pack
from prep_assets_tests.effort import examples
from prep_assets_tests.packing import reference
from prep_assets_tests.packing.reference import LENGTHS, ROW_LEN, dropped_of, problems, rows_of

pytestmark = pytest.mark.usefixtures("short_stretches")

OVERLONG = st.sampled_from(["truncate", "drop", "split"])


def records(plan: PackPlan) -> list[list[int]]:
    return [plan.record[plan.row == row].tolist() for row in range(plan.rows)]


def decreasing(lengths: Sequence[int], row_len: int, overlong: str, *, best: bool) -> list[reference.Row]:
    pieces, _ = reference.documents(lengths, row_len, overlong)
    sizes = [len(piece) if overlong == "split" else lengths[piece[0][0]] for piece in pieces]
    return reference.decreasing(pieces, sizes, row_len, best=best)


# vectors of the projects whose packing these strategies are


def test_concat_is_pack_examples_of_train_llm_from_scratch() -> None:
    plan = pack([3, 4, 1], 3, "concat", tail="drop")
    flat = np.array([1, 2, 3, 4, 5, 6, 7, 8])
    starts = [0, 3, 7]
    assert [[int(flat[starts[record] + token]) for record, token in row] for row in rows_of(plan)] == [[1, 2, 3], [4, 5, 6]]
    assert plan.dropped.tolist() == [[1, 3, 1], [2, 0, 1]]


def test_bfd_is_astrai_bfd() -> None:
    plan = pack([3, 7, 5, 2, 10, 4, 12], 10, "bfd", overlong="truncate")
    assert records(plan) == [[6], [4], [1, 0], [2, 5], [3]]
    assert plan.length.tolist() == [10, 10, 7, 3, 5, 4, 2]
    assert plan.dropped.tolist() == [[6, 10, 2]]
    assert plan.fill == 41 / 50
    assert records(pack([5, 5, 5, 5], 10, "bfd")) == [[0, 1], [2, 3]]


# every strategy against the obvious one


@settings(max_examples=examples(150))
@given(LENGTHS, ROW_LEN)
def test_concat(lengths: list[int], row_len: int) -> None:
    expected = reference.concat(lengths, row_len)
    padded = pack(lengths, row_len, "concat")
    assert rows_of(padded) == expected
    assert dropped_of(padded) == []
    full = [row for row in expected if len(row) == row_len]
    cut = pack(lengths, row_len, "concat", tail="drop")
    assert rows_of(cut) == full
    assert dropped_of(cut) == reference.stream(lengths)[len(full) * row_len :]
    for plan in (padded, cut):
        assert problems(plan, lengths) == []
        plan.check(lengths)


@settings(max_examples=examples(150))
@given(LENGTHS, ROW_LEN, OVERLONG)
def test_simple(lengths: list[int], row_len: int, overlong: Any) -> None:
    pieces, dropped = reference.documents(lengths, row_len, overlong)
    plan = pack(lengths, row_len, "simple", overlong=overlong)
    assert rows_of(plan) == reference.next_fit(pieces, row_len)
    assert dropped_of(plan) == dropped
    assert problems(plan, lengths) == []
    plan.check(lengths)


@settings(max_examples=examples(300))
@given(LENGTHS, ROW_LEN, OVERLONG, st.booleans())
def test_decreasing(lengths: list[int], row_len: int, overlong: Any, best: bool) -> None:
    plan = pack(lengths, row_len, "bfd" if best else "ffd", overlong=overlong)
    assert rows_of(plan) == decreasing(lengths, row_len, overlong, best=best)
    assert dropped_of(plan) == reference.documents(lengths, row_len, overlong)[1]
    assert problems(plan, lengths) == []
    plan.check(lengths)


@settings(max_examples=examples(100))
@given(LENGTHS, ROW_LEN)
def test_bfd_split(lengths: list[int], row_len: int) -> None:
    plan = pack(lengths, row_len, "bfd_split")
    assert rows_of(plan) == decreasing(lengths, row_len, "split", best=True)
    assert plan.dropped.shape == (0, 3)
    assert problems(plan, lengths) == []
    plan.check(lengths)


@settings(max_examples=examples(150))
@given(LENGTHS, ROW_LEN, st.lists(st.integers(1, 40), max_size=3, unique=True), st.sampled_from(["ffd", "bfd", "bfd_split"]))
def test_buckets_are_packed_one_after_another(lengths: list[int], row_len: int, borders: list[int], strategy: Any) -> None:
    """As if the documents of each bucket were all that there are."""
    overlong: Any = "raise" if strategy == "bfd_split" else "truncate"
    plan = pack(lengths, row_len, strategy, buckets=sorted(borders), overlong=overlong)
    expected = []
    for low, high in pairwise([0, *sorted(borders), 1 << 40]):
        members = [record for record, length in enumerate(lengths) if low < length <= high]
        alone = pack([lengths[record] for record in members], row_len, strategy, overlong=overlong)
        expected += [[(members[record], token) for record, token in row] for row in rows_of(alone)]
    assert rows_of(plan) == expected
    plan.check(lengths)


@settings(max_examples=examples(40))
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80), st.sampled_from([5000, 8191, 8192, 65537]), st.booleans())
def test_decreasing_with_long_rows(lengths: list[int], row_len: int, best: bool) -> None:
    """Spaces that are spread over many words of the bitmask."""
    plan = pack(lengths, row_len, "bfd" if best else "ffd")
    spaces: list[int] = []
    bins: list[list[int]] = []
    for record in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [b for b, space in enumerate(spaces) if space >= lengths[record]]
        chosen = (min(fitting, key=spaces.__getitem__) if best else fitting[0]) if fitting else len(bins)
        if chosen == len(bins):
            bins.append([])
            spaces.append(row_len)
        bins[chosen].append(record)
        spaces[chosen] -= lengths[record]
    assert records(plan) == bins


@pytest.mark.parametrize("strategy", ["ffd", "bfd"])
def test_decreasing_on_many_lengths(strategy: Any) -> None:
    lengths = np.clip(np.random.default_rng(5).lognormal(4.0, 1.0, 1500), 1, 256).astype(np.int64).tolist()
    plan = pack(lengths, 256, strategy)
    assert rows_of(plan) == decreasing(lengths, 256, "truncate", best=strategy == "bfd")


@pytest.mark.parametrize("strategy", ["concat", "simple", "ffd", "bfd", "bfd_split"])
def test_no_records_make_no_rows(strategy: Any) -> None:
    plan = pack([], 8, strategy)
    assert (plan.rows, plan.row.size, plan.dropped.shape, plan.fill) == (0, 0, (0, 3), 0.0)
    plan.check([])


@pytest.mark.parametrize("strategy", ["concat", "simple", "ffd", "bfd", "bfd_split"])
def test_arrays_are_int64(strategy: Any) -> None:
    plan = pack(np.array([3, 2, 4], dtype=np.uint16), 4, strategy)
    arrays = (plan.row, plan.record, plan.start, plan.length, plan.row_offset, plan.dropped)
    assert {array.dtype for array in arrays} == {np.dtype(np.int64)}


# refusals


@pytest.mark.parametrize("strategy", ["simple", "ffd", "bfd"])
def test_overlong_documents_stop_the_build_unless_told_what_to_do(strategy: Any) -> None:
    with pytest.raises(
        PrepAssetsError, match=r"2 of 3 documents are longer than a row of 4 tokens; the longest is record 2 with 9.*bfd_split"
    ):
        pack([5, 4, 9], 4, strategy)


@pytest.mark.parametrize("strategy", ["concat", "simple", "ffd", "bfd", "bfd_split"])
def test_records_without_tokens_are_named(strategy: Any) -> None:
    with pytest.raises(PrepAssetsError, match=r"2 of 4 records have no tokens \(records 1, 3\)"):
        pack([3, 0, 2, 0], 4, strategy)


@pytest.mark.parametrize(
    ("lengths", "row_len", "strategy", "options", "error", "message"),
    [
        ([1], 4, "bdf", {}, ConfigError, "'bdf' is not one of .* did you mean 'bfd'"),
        ([1], 4, "concat", {"tail": "cut"}, ConfigError, "tail 'cut' is not one of pad, drop"),
        ([1], 4, "bfd", {"overlong": "keep"}, ConfigError, "overlong 'keep' is not one of"),
        ([1], 0, "bfd", {}, ConfigError, "got row_len 0"),
        ([1], 4, "bfd", {"tail": "drop"}, ConfigError, "last, short row of 'concat'"),
        ([1], 4, "concat", {"overlong": "truncate"}, ConfigError, "has no effect with 'concat'"),
        ([1], 4, "bfd_split", {"overlong": "drop"}, ConfigError, "has no effect with 'bfd_split'"),
        ([1], 4, "concat", {"buckets": [2]}, ConfigError, "buckets have no effect with 'concat'"),
        ([1], 4, "simple", {"buckets": [2]}, ConfigError, "buckets have no effect with 'simple'"),
        ([1], 4, "bfd", {"buckets": [3, 3]}, ConfigError, "must be ascending lengths"),
        ([1], 4, "bfd", {"buckets": [0, 3]}, ConfigError, "must be ascending lengths"),
        ([[1]], 4, "bfd", {}, PrepAssetsError, "one-dimensional array of integers"),
        ([1.5], 4, "bfd", {}, PrepAssetsError, "one-dimensional array of integers"),
    ],
)
def test_meaningless_requests(lengths: Any, row_len: int, strategy: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pack(lengths, row_len, strategy, **options)
