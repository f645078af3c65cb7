"""Records and packed tables on tiny arrays, with expectations that can be seen at a glance."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from prep_assets.proofs.packed_mask import check_pieces
from prep_assets.proofs.rows import check_packed, check_records
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

EOS, PAD, SIZE = 0, 3, 10


def store(*records: list[int], masks: list[list[float]] | None = None) -> TokenStore:
    """A token store of these records."""
    lengths = np.array([len(record) for record in records], np.int64)
    arrays: dict[str, npt.NDArray[Any]] = {"tokens": np.array(list(chain(*records)), np.int32)}
    if masks is not None:
        arrays["loss_mask"] = np.array(list(chain(*masks)), np.float32)
    return TokenStore(arrays, np.cumsum(lengths), np.zeros(len(records), np.int32), np.arange(len(records)))


@pytest.mark.parametrize(
    ("records", "where"),
    [
        ([[5, 6, EOS], [7, EOS]], None),
        ([[5, 6, EOS], [EOS]], None),
        ([[5, SIZE, EOS], [7, EOS]], "record 0"),
        ([[5, 6, EOS], [-1, EOS]], "record 1"),
        ([[5, 6, 7], [7, EOS]], "record 0"),
        ([[5, 6, EOS], [EOS, EOS]], "record 1"),
        ([[5, EOS, 6], [7, EOS]], "record 0"),
        ([[5, EOS], [], [7, EOS]], "record 1"),
    ],
)
def test_documents(records: list[list[int]], where: str | None) -> None:
    verdict = check_records(store(*records), vocabulary_size=SIZE, eos_id=EOS)
    assert (verdict.worst.where if verdict.worst else None) == where
    assert verdict.passed == (where is None)
    assert verdict.numbers == {"records": len(records), "tokens": sum(map(len, records))}


@pytest.mark.parametrize(
    ("masks", "where"),
    [
        ([[0, 1], [1, 1, 1]], None),
        ([[0, 0.5], [2, 0, 0]], None),
        ([[0, 0], [1, 1, 1]], "record 0"),
        ([[0, 1], [0, 0, 0]], "record 1"),
        ([[0, 1], [0, -1, 1]], "record 1"),
        ([[0, float("nan")], [0, 1, 1]], "record 0"),
        ([[0, 1], [float("inf"), 1, 1]], "record 1"),
    ],
)
def test_masks_of_records(masks: list[list[float]], where: str | None) -> None:
    verdict = check_records(store([5, 6], [7, 8, 9], masks=masks), vocabulary_size=SIZE)
    assert (verdict.worst.where if verdict.worst else None) == where


def test_a_fault_beyond_the_first_block_is_found_at_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.proofs.rows.BLOCK", 4)
    records = [[5, EOS] for _ in range(20)]
    assert check_records(store(*records), vocabulary_size=SIZE, eos_id=EOS).passed
    records[13] = [5, 5]
    verdict = check_records(store(*records), vocabulary_size=SIZE, eos_id=EOS)
    assert verdict.worst is not None and (verdict.worst.where, verdict.worst.ids) == ("record 13", (5, 5))


def test_an_empty_stream_is_sound() -> None:
    empty = TokenStore({"tokens": np.zeros(0, np.int32)}, *(np.zeros(0, np.int64),) * 3)  # type: ignore[arg-type]
    assert check_records(empty, vocabulary_size=SIZE, eos_id=EOS).passed


TOKENS = [[5, 6, 7], [8, 9], [5, 5, 5, 5]]
MASKS = [[0.0, 1.0, 1.0], [0.0, 1.0], [1.0, 0.0, 0.0, 1.0]]


def table(**changes: list[Any]) -> PackedStore:
    """Rows of 5: records 0 and 1 in the first, record 2 and one place of padding in the second."""
    rows = {"tokens": [[5, 6, 7, 8, 9], [5, 5, 5, 5, PAD]], "loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 1, 0]]}
    pieces = {"row": [0, 0, 1], "row_offset": [0, 3, 0], "length": [3, 2, 4], "source": [0, 0, 0], "record": [0, 1, 2], "start": [0, 0, 0]}
    found = {key: np.array(changes.get(key, value)) for key, value in (rows | pieces).items()}
    return PackedStore(found["tokens"], found["loss_mask"], {key: found[key] for key in pieces}, ("a",), 5)


def proven(packed: PackedStore, *, once: bool = True) -> Verdict:
    return check_pieces(packed, {"a": store(*TOKENS, masks=MASKS)}, once=once)


def test_a_sound_table() -> None:
    assert check_packed(table(), vocabulary_size=SIZE, pad_id=PAD).passed
    assert proven(table()).numbers == {"tokens_checked": 9, "rows_checked": 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokens": [[5, 6, 7, 8, 9], [5, 5, 5, 5, EOS]]}, f"padding is not token {PAD}"),
        ({"tokens": [[5, 6, SIZE, 8, 9], [5, 5, 5, 5, PAD]]}, "outside the vocabulary"),
        ({"loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 1, 1]]}, "padding is trained"),
        ({"loss_mask": [[0, 0, 0, 0, 0], [1, 0, 0, 1, 0]]}, "no token is trained"),
        ({"loss_mask": [[0, -1, 1, 0, 1], [1, 0, 0, 1, 0]]}, "negative"),
        ({"row_offset": [0, 2, 0]}, "row 0: a piece at 2 of 2 tokens, where 3 was the next free place"),
        ({"row_offset": [0, 4, 0]}, "row 0: a piece at 4"),
        ({"row_offset": [0, 3, 1]}, "row 1: a piece at 1"),
        ({"length": [3, 3, 4]}, "row 0: a piece at 3 of 3 tokens"),
        ({"length": [3, 0, 4]}, "of 0 tokens"),
        ({"row": [0, 0, 0]}, "pieces lie in 1 rows, the table has 2"),
        ({"row": [0, 0, 2]}, "pieces lie in 2 rows"),
        ({"row": [0, 1, 0], "row_offset": [0, 0, 3], "length": [3, 2, 1]}, "not in the order of their rows"),
    ],
)
def test_a_table_that_is_not_sound(changes: dict[str, list[Any]], says: str) -> None:
    verdict = check_packed(table(**changes), vocabulary_size=SIZE, pad_id=PAD)
    assert not verdict.passed and says in verdict.summary


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokens": [[5, 6, 7, 9, 8], [5, 5, 5, 5, PAD]]}, "tokens differs from a record 1 at place 3 of the row"),
        ({"loss_mask": [[1, 1, 1, 0, 1], [1, 0, 0, 1, 0]]}, "loss_mask differs from a record 0 at place 0 of the row"),
        ({"record": [0, 1, 3]}, "a has no record 3"),
        ({"record": [0, 1, -1]}, "a has no record -1"),
        ({"record": [0, 2, 1], "start": [0, 0, -2]}, "differs"),
        ({"record": [0, 1, 1], "start": [0, 0, 0]}, "a record 1 is shorter than its piece"),
        ({"record": [1, 1, 2], "start": [-3, 0, 0]}, "a piece starts before a record 1"),
    ],
)
def test_pieces_that_are_not_their_records(changes: dict[str, list[Any]], says: str) -> None:
    verdict = proven(table(**changes))
    assert not verdict.passed and says in verdict.summary
    assert verdict.worst is not None and len(verdict.worst.ids) == 5


def test_a_record_may_be_used_twice_only_where_that_was_asked_for() -> None:
    twice = table(
        tokens=[[8, 9, 8, 9, PAD], [5, 5, 5, 5, PAD]],
        loss_mask=[[0, 1, 0, 1, 0], [1, 0, 0, 1, 0]],
        row_offset=[0, 2, 0],
        length=[2, 2, 4],
        record=[1, 1, 2],
    )
    assert not proven(twice).passed and "twice" in proven(twice).summary
    assert proven(twice, once=False).passed


def test_pieces_of_one_record_that_do_not_overlap_are_one_use() -> None:
    cut = table(row=[0, 1, 1], row_offset=[0, 0, 1], length=[3, 1, 3], record=[0, 2, 2], start=[0, 0, 1])
    assert "twice" not in proven(cut).summary
