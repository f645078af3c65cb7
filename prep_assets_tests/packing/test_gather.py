from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError
from prep_assets.packing import gather_rows, pack
from prep_assets.stores.guards import Segmented
from prep_assets_tests.effort import examples
from prep_assets_tests.packing.reference import LENGTHS, ROW_LEN, rows_of

ALL = slice(None)


@settings(max_examples=examples(150))
@given(LENGTHS, ROW_LEN, st.sampled_from(["concat", "simple", "ffd", "bfd_split"]), st.integers(0, 5), st.integers(0, 60))
def test_every_token_stands_where_the_plan_says(lengths: list[int], row_len: int, strategy: Any, first: int, stop: int) -> None:
    plan = pack(lengths, row_len, strategy, **({"overlong": "truncate"} if strategy in ("simple", "ffd") else {}))
    values = {(record, token): 1000 * record + token for record, n in enumerate(lengths) for token in range(n)}
    order = sorted(range(len(lengths)), reverse=True)  # the store has the records in another order than the plan
    flat = np.array([values[record, token] for record in order for token in range(lengths[record])], dtype=np.uint32)
    starts = np.array([sum(lengths[other] for other in order[: order.index(record)]) for record in range(len(lengths))], dtype=np.int64)
    block = gather_rows(flat, starts, plan, slice(first, stop), 7)
    expected = [[values[token] for token in row] + [7] * (row_len - len(row)) for row in rows_of(plan)[first:stop]]
    assert block.tolist() == expected
    assert (block.dtype, block.shape) == (np.dtype(np.uint32), (len(expected), row_len))


@pytest.mark.parametrize(
    "dtype", [np.dtype("int32").newbyteorder("<"), np.dtype(">i4"), np.dtype("float16"), np.dtype("bool"), np.dtype("complex64")], ids=str
)
@pytest.mark.parametrize("offset", [0, 1])
def test_any_type_wherever_it_begins_in_the_file(tmp_path: Path, dtype: np.dtype[Any], offset: int) -> None:
    values = np.array([1, 0, 3, 0, 5, 6, 0]).astype(dtype)
    (tmp_path / "values.bin").write_bytes(b"x" * offset + values.tobytes())
    flat = np.memmap(tmp_path / "values.bin", dtype=dtype, mode="r", offset=offset)
    block = gather_rows(flat, np.array([0, 3]), pack([3, 4], 5, "simple"), ALL, 0)
    assert block.dtype == dtype
    assert block.tolist() == np.array([[1, 0, 3, 0, 0], [0, 5, 6, 0, 0]]).astype(dtype).tolist()


class TwoParts:
    """An array in two parts that is read in slices, as one; it cannot be indexed otherwise."""

    dtype = np.dtype(np.uint16)

    def __init__(self, *parts: list[int]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, part: slice) -> list[int]:
        return [value for values in self.parts for value in values][part]


def test_reads_anything_that_gives_slices() -> None:
    block = gather_rows(TwoParts([5, 6], [7, 8, 9]), np.array([3, 0]), pack([2, 3], 4, "simple"), ALL, 0)
    assert (block.dtype, block.tolist()) == (np.dtype(np.uint16), [[8, 9, 0, 0], [5, 6, 7, 0]])


class Parts(Segmented):
    """Arrays in parts, which can be had one by one."""

    def __getitem__(self, part: int | slice) -> Any:
        raise AssertionError("its parts are read")


def test_reads_the_parts_of_what_has_some() -> None:
    block = gather_rows(
        Parts([np.array(part, np.uint16) for part in ([5, 6], [], [7, 8, 9])]), np.array([2, 0]), pack([3, 2], 4, "simple"), ALL, 0
    )
    assert (block.dtype, block.tolist()) == (np.dtype(np.uint16), [[7, 8, 9, 0], [5, 6, 0, 0]])


def test_a_record_across_parts_and_parts_of_other_dtypes_are_read_in_slices() -> None:
    whole = Segmented([np.array([5, 6, 7], np.uint16), np.array([8, 9], np.uint16)])
    assert gather_rows(whole, np.array([1, 0]), pack([3, 1], 4, "simple"), ALL, 0).tolist() == [[6, 7, 8, 5]]
    mixed = Segmented([np.array([1, 0], np.uint8), np.array([0.5, 1], np.float32)])
    mixed.dtype = np.dtype(np.float32)
    block = gather_rows(mixed, np.array([2, 0]), pack([2, 2], 5, "simple"), ALL, 0)
    assert (block.dtype, block.tolist()) == (np.dtype(np.float32), [[0.5, 1, 1, 0, 0]])


def test_members_over_one_another_are_refused() -> None:
    plan = replace(pack([2, 2], 4, "simple"), row_offset=np.array([0, 1]))
    with pytest.raises(ConfigError, match="stand over one another"):
        gather_rows(np.zeros(4), np.array([0, 2]), plan, ALL, 0)


@pytest.mark.parametrize(("dtype", "fill"), [(np.uint16, -100), (np.uint8, 256), (np.int8, 128)])
def test_a_fill_that_is_no_value_of_the_dtype(dtype: Any, fill: int) -> None:
    with pytest.raises(ConfigError, match=f"fill {fill} does not fit into {np.dtype(dtype)}"):
        gather_rows(np.zeros(3, dtype=dtype), np.array([0]), pack([3], 4, "simple"), ALL, fill)


def test_records_beyond_the_store() -> None:
    with pytest.raises(ConfigError, match="reach to token 4, the flat array has 3"):
        gather_rows(np.zeros(3), np.array([0, 2]), pack([2, 2], 4, "simple"), ALL, 0)
