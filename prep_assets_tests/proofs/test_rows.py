"""Records and packed tables on tiny arrays, with expectations that can be seen at a glance."""

from __future__ import annotations

from dataclasses import replace
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs import rows as positions
from prep_assets.proofs.packed import check_pieces
from prep_assets.proofs.rows import (
    Line,
    _border_fault,
    check_lines,
    check_packed,
    check_positions,
    check_records,
    lines_verdict,
)
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores import arrays as columns
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets_tests.proofs.tables import EOS, MASKS, PAD, SIZE, TOKENS, store, table


@pytest.mark.parametrize(
    ("records", "bos", "where"), [([[5, 6], [7, EOS]], None, "record 1"), ([[4, 5, 6], [4, 7]], 4, None), ([[4, 5, 6], [7]], 4, "record 1")]
)
def test_documents_that_nothing_ends(records: list[list[int]], bos: int | None, where: str | None) -> None:
    verdict = check_records(store(*records), vocabulary_size=SIZE, eos_id=EOS, bos_id=bos, ended=False)
    assert (verdict.worst.where if verdict.worst else None) == where


def test_a_fault_beyond_the_first_block_is_found_at_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.proofs.rows.BLOCK", 4)
    records = [[5, EOS] for _ in range(20)]
    assert check_records(store(*records), vocabulary_size=SIZE, eos_id=EOS).passed
    records[13] = [5, 5]
    verdict = check_records(store(*records), vocabulary_size=SIZE, eos_id=EOS)
    assert verdict.worst is not None and (verdict.worst.where, verdict.worst.ids) == ("record 13", (5, 5))


def plain_fault(record: list[int], mask: list[float] | None, eos: int | None, bos: int | None) -> tuple[int, str] | None:
    """What is wrong with one record by a plain loop, and how early it is looked at."""
    for token in record:
        if not 0 <= token < SIZE:
            return 0, f"id {token} is outside the vocabulary of {SIZE:,}"
    for rank, (own, at, name, where) in enumerate([(bos, 0, "begin", "first"), (eos, -1, "end", "last")], 1):
        if own is not None and (record[at] != own or record.count(own) != 1 + (bos == eos)):
            return rank, f"{record.count(own)} {name}-of-text tokens, the {where} token is {'one' if record[at] == own else 'none'}"
    for weight in mask or []:
        if not 0 <= weight < float("inf"):
            return 3, f"loss weight {np.float32(weight)} of a token"
    return None if mask is None or any(mask) else (4, "no token is trained")


@given(st.data())
def test_records_as_a_plain_loop_finds_them(data: st.DataObject) -> None:
    eos, bos = data.draw(st.sampled_from([(None, None), (EOS, None), (EOS, 1), (None, 1), (EOS, EOS)]))
    token = st.sampled_from([EOS, 1, 5, 6, 5, 6, 5, 6, 5, 6, SIZE - 1, SIZE, -1])
    ends = ([] if bos is None else [bos]), ([] if eos is None else [eos])
    wrapped = st.lists(st.integers(2, SIZE - 1), max_size=3).map(lambda inner: [*ends[0], *inner, *ends[1]] or [5])
    records = data.draw(st.lists(wrapped | wrapped | wrapped | st.lists(token, min_size=1, max_size=4), min_size=1, max_size=6))
    weight = st.sampled_from([0.0, 1.0, 0.0, 1.0, 0.5, 0.0, 1.0, 2.0, -1.0, float("nan"), float("inf")])
    masks = (
        [data.draw(st.lists(weight, min_size=len(record), max_size=len(record))) for record in records]
        if data.draw(st.booleans())
        else None
    )
    each = [plain_fault(record, masks[at] if masks else None, eos, bos) for at, record in enumerate(records)]
    found = min((fault[0], at) for at, fault in enumerate(each) if fault) if any(each) else None
    kept = store(*records, masks=masks)
    verdict = check_records(kept, vocabulary_size=SIZE, eos_id=eos, bos_id=bos)
    numbers = {"records": len(records), "tokens": sum(map(len, records))}
    if found is None:
        summary = f"{len(records):,} records, {numbers['tokens']:,} tokens: lengths, ids and mask are sound"
        assert verdict == Verdict(True, summary, numbers)
        return
    # of a record with several faults the one that is looked at first counts, which may not be the first by place
    at, fault = found[1], each[found[1]]
    assert fault is not None
    weights = tuple(float(np.float32(value)) for value in masks[at]) if masks else ()
    assert (verdict.passed, verdict.summary, verdict.numbers) == (False, f"record {at:,}: {fault[1]}", numbers)
    assert verdict.worst is not None and verdict.worst.where == f"record {at:,}" and verdict.worst.note == fault[1]
    assert verdict.worst.ids == tuple(records[at])
    np.testing.assert_array_equal(verdict.worst.weights, weights)


def test_an_empty_record_is_named() -> None:
    verdict = check_records(store([5], [], [6]), vocabulary_size=SIZE)
    numbers = {"records": 3, "tokens": 2}
    assert verdict == Verdict(False, "record 1: 0 tokens", numbers, Worst("record 1", "0 tokens"))
    assert check_records(store([5]), vocabulary_size=SIZE).passed


def test_types_that_are_asked_for() -> None:
    types = {"tokens": "int64", "loss_mask": "int64"}
    assert check_packed(table(), vocabulary_size=SIZE, pad_id=PAD, types=types).passed
    verdict = check_packed(table(), vocabulary_size=SIZE, pad_id=PAD, types={**types, "loss_mask": "int8"})
    assert verdict.worst == Worst("the table", "loss_mask is int64, and must be int8")
    records = store([5, 6], [7], masks=[[0, 1], [1]])
    assert check_records(records, vocabulary_size=SIZE, types={"tokens": "int32"}).passed
    found = check_records(records, vocabulary_size=SIZE, types={"tokens": "uint16"})
    assert found == Verdict(
        False,
        "the store: tokens is int32, and must be uint16",
        {"records": 2, "tokens": 3},
        Worst("the store", "tokens is int32, and must be uint16"),
    )


def test_a_faulty_row_is_shown() -> None:
    packed = table(loss_mask=[[0, 1, 1, 0, 1], [1, 0, 0, 0.5, 1]])
    numbers = {"rows": 2, "pieces": 3}
    worst = Worst("row 1", "padding is trained", (5, 5, 5, 5, PAD), (1.0, 0.0, 0.0, 0.5, 1.0))
    summary = "padding is trained: row 1 and 0 more in its block"
    assert check_packed(packed, vocabulary_size=SIZE, pad_id=PAD) == Verdict(False, summary, numbers, worst)
    both = table(loss_mask=[[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    assert check_packed(both, vocabulary_size=SIZE, pad_id=PAD).summary == "no token is trained: row 0 and 1 more in its block"


# pieces: row, place, length, source, record, start
SAME = [(0, 0, 2, 0, 4, 0), (0, 2, 1, 0, 4, 2), (0, 3, 2, 0, 7, 0), (1, 0, 1, 0, 8, 0)]


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        (SAME, "row 0: a border at place 2, inside record 4 of its domain"),
        ([SAME[0], (0, 2, 1, 1, 4, 2), *SAME[2:]], None),  # a record of another source
        ([SAME[0], (0, 2, 1, 0, 5, 2), *SAME[2:]], None),  # another record
        ([SAME[0], (0, 2, 1, 0, 4, 3), *SAME[2:]], None),  # a gap between the two
        ([(0, 0, 2, 0, 4, 0), (1, 0, 1, 0, 4, 2)], None),  # goes on in the next row
        ([(0, 0, 1, 0, 2, 0), (0, 1, 1, 0, 3, 0), (0, 2, 1, 0, 3, 1)], "row 0: a border at place 2, inside record 3 of its domain"),
        ([(0, 0, 1, 0, 3, 0), (0, 1, 1, 0, 3, 5), (0, 2, 1, 0, 3, 1)], None),
        ([(0, 0, 1, 0, 1, 0), (1, 0, 2, 0, 2, 0), (1, 2, 2, 0, 2, 2)], "row 1: a border at place 2, inside record 2 of its domain"),
        (
            [(0, 0, 1, 0, 1, 0), (1, 0, 2, 0, 2, 0), (2, 0, 1, 0, 3, 0), (1, 2, 1, 0, 4, 0)],
            "pieces are not in the order of their rows: one of row 2 stands before a lower row",
        ),
        (
            [(0, 0, 1, 0, 1, 0), (0, 1, 1, 0, 2, 0), (1, 0, 1, 0, 3, 0), (0, 2, 1, 0, 4, 0)],
            "pieces are not in the order of their rows: one of row 1 stands before a lower row",
        ),
        ([(0, 0, 1, 0, 1, 0), (0, 1, 1, 0, 2, 0), (1, 0, 1, 0, 3, 0)], None),
        ([(0, 0, 1, 0, 3, 0), (0, 1, 1, 1, 3, 1), (0, 2, 1, 0, 3, 2)], None),
        ([(0, 0, 5, 0, 1, 0), (1, 0, 6, 0, 2, 0)], "row 1: a piece at 0 of 6 tokens, where 0 was the next free place"),
    ],
)
@pytest.mark.parametrize("stretch", [1 << 16, 1, 2])
def test_borders(monkeypatch: pytest.MonkeyPatch, stretch: int, pieces: list[tuple[int, ...]], says: str | None) -> None:
    monkeypatch.setattr(columns, "STRETCH", stretch)
    names = ("row", "row_offset", "length", "source", "record", "start")
    documents = {name: np.array(values) for name, values in zip(names, zip(*pieces, strict=True), strict=True)}
    assert _border_fault(documents, len(set(documents["row"].tolist())), 5) == says


@pytest.mark.parametrize(("row", "rows"), [([-1, 0], 1), ([0, 2], 2), ([1], 1)])
def test_rows_that_the_table_does_not_have(row: list[int], rows: int) -> None:
    count = len(row)
    documents = {name: np.zeros(count, int) for name in ("row_offset", "source", "start")}
    documents |= {"row": np.array(row), "length": np.ones(count, int), "record": np.arange(count)}
    assert str(_border_fault(documents, rows, 5)).startswith("pieces lie in ")


def test_a_packed_table_is_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is where it is whichever row a block begins with."""
    sound = table()
    monkeypatch.setattr(PackedStore, "blocks", partialmethod(PackedStore.blocks, tokens=1))
    assert check_packed(sound, vocabulary_size=SIZE, pad_id=PAD).passed
    wrong = table(tokens=[[8, 9, 8, 9, PAD], [5, 5, 5, 5, 6]])
    worst = check_packed(wrong, vocabulary_size=SIZE, pad_id=PAD).worst
    assert worst is not None and (worst.where, worst.note) == ("row 1", f"padding is not token {PAD}")


@pytest.mark.parametrize(
    ("attention", "says"),
    [
        ([1, 0, 1, 1, 1, 1, 1, 1, 0], None),
        ([1, 1, 1, 1, 0, 1, 1, 1, 1], "record 1: token 1: trained, and not attended"),
        ([1, 1, 1, 1, 1, 1, 1, 1, 2], "record 2: token 3: an attention of 2"),
    ],
)
def test_records_with_attention(attention: list[int], says: str | None) -> None:
    """A token that is not attended is not trained; the mask has 0 and 1."""
    masks = [[0.0, 0.0, 1.0], [0.0, 0.5], [1.0, 0.0, 0.0, 0.0]]
    records = store(*TOKENS, masks=masks)
    with_it = TokenStore({**records.arrays, "attention_mask": np.array(attention, np.uint8)}, records.ends, records.file, records.row)
    verdict = check_records(with_it, vocabulary_size=SIZE)
    assert verdict.passed == (says is None) and (says is None or verdict.summary == says)


SEEN = [[1, 1, 1, 0, 1], [1, 0, 1, 1, 0]]


@pytest.mark.parametrize(
    ("attention", "says"),
    [
        (SEEN, None),
        ([[1, 1, 1, 0, 1], [1, 0, 1, 1, 1]], "padding is attended: row 1 "),
        ([[1, 1, 0, 0, 1], [1, 0, 1, 1, 0]], "a trained token is not attended: row 0 "),
        ([[1, 1, 1, 0, 1], [1, 0, 1, 0, 0]], "a trained token is not attended: row 1 and 0 more"),
        ([[1, 1, 1, 0, 1], [1, 0, 2, 1, 0]], "an attention is neither 0 nor 1: row 1 "),
    ],
)
def test_a_table_with_attention(attention: list[list[int]], says: str | None) -> None:
    verdict = check_packed(replace(table(), attention_mask=np.array(attention, np.uint8)), vocabulary_size=SIZE, pad_id=PAD)
    assert verdict.passed == (says is None) and (says is None or verdict.summary.startswith(says))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (SEEN, None),
        (None, "row 0: attention_mask differs from a record 1 at place 3 of the row"),
        ([[0, 1, 1, 1, 1], [1, 0, 1, 1, 0]], "row 0: attention_mask differs from a record 0 at place 0 of the row"),
        ([[1, 1, 1, 0, 1], [1, 1, 1, 1, 0]], "row 1: attention_mask differs from a record 2 at place 1 of the row"),
    ],
)
def test_pieces_have_the_attention_of_their_records(changed: list[list[int]] | None, says: str | None) -> None:
    records = store(*TOKENS, masks=MASKS)
    own = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1], np.uint8)
    tokens = {"a": TokenStore({**records.arrays, "attention_mask": own}, records.ends, records.file, records.row)}
    packed = replace(table(), attention_mask=None if changed is None else np.array(changed, np.uint8))
    verdict = check_pieces(packed, tokens)
    assert verdict.passed == (says is None) and (says is None or verdict.summary == says)
    all_seen = check_pieces(replace(table(), attention_mask=np.array(SEEN, np.uint8)), {"a": records})
    assert all_seen.summary == "row 0: attention_mask differs from a record 1 at place 3 of the row"


# -- Position ids of a packed table, place by place and block by block --------------------------------------------------------------------

DOCUMENTS = {"row": np.array([0, 0, 1, 2]), "row_offset": np.array([0, 3, 0, 0]), "length": np.array([3, 2, 1, 6])}
RIGHT = np.array([[0, 1, 2, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]], np.int32)


@pytest.mark.parametrize("rows", [1, 2, 4096])
def test_right_positions(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(positions, "BLOCK", rows * 6)
    assert check_positions(RIGHT, DOCUMENTS, 6).passed


@pytest.mark.parametrize("rows", [1, 2, 4096])
@pytest.mark.parametrize(
    ("row", "place", "value", "right"), [(0, 3, 3, 0), (0, 4, 0, 1), (0, 2, 0, 2), (0, 5, 2, 0), (1, 1, 1, 0), (2, 5, 4, 5)]
)
def test_a_wrong_position(monkeypatch: pytest.MonkeyPatch, rows: int, row: int, place: int, value: int, right: int) -> None:
    monkeypatch.setattr(positions, "BLOCK", rows * 6)
    wrong = RIGHT.copy()
    wrong[row, place] = value
    says = f"position id {value} at place {place}, its piece begins {right} before"
    size = wrong[row - row % rows : row - row % rows + rows].size
    assert check_positions(wrong, DOCUMENTS, 6) == Verdict(False, f"row {row}: {says}", {"positions": size}, Worst(f"row {row}", says))


# -- Lines against their rows: each difference, in the words of the verdict ---------------------------------------------------------------

ROW = {"prompt": "p", "chosen": [{"role": "assistant", "content": "c"}], "gold": 2.0}
PLAIN = {"prompt": "p", "chosen": "c"}


def line(stored: dict[str, Any], made: dict[str, Any] | None = ROW, plain: dict[str, str] | None = None) -> Line:
    return Line("a:0", stored, made, plain)


def test_lines_of_their_rows() -> None:
    numbers = {"lines_checked": 2, "lines_failed": 0, "lines_read_twice": 1}
    assert lines_verdict([check_lines([line(dict(ROW)), line(dict(ROW), plain=PLAIN)])], stored=2) == Verdict(
        True, "2 lines are those of their rows, 1 also by a second reading", numbers
    )
    thousands = lines_verdict([check_lines([line(dict(ROW), plain=PLAIN)] * 2000)], stored=2000)
    assert thousands.summary == "2,000 lines are those of their rows, 2,000 also by a second reading"


LONG = "x" * 300


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (line(dict(ROW), None), "its row gives no line"),
        (line({**ROW, "prompt": "q"}), 'prompt is "q", its row gives "p"'),
        (line({**ROW, "gold": 2}), "gold is 2, its row gives 2.0"),
        (line({**ROW, "more": "é"}), 'more is "é", its row gives missing'),
        (line({"gold": 2.0, "prompt": "p"}, {"prompt": "p", "gold": 2.0}), "order of fields is missing, its row gives missing"),
        (line({"n": LONG}, {"n": LONG + "y"}), f'n is "{LONG[:199]}, its row gives "{LONG[:199]}'),
        (line(dict(ROW), plain={"prompt": "q"}), "prompt is \"p\", by a second reading its row says 'q'"),
        (
            line({**ROW, "prompt": LONG}, {**ROW, "prompt": LONG}, {"prompt": "q"}),
            f"prompt is \"{LONG[:199]}, by a second reading its row says 'q'",
        ),
        (line(dict(ROW), plain={"prompt": "p", "chosen": LONG}), None),
    ],
)
def test_a_line_that_differs(given: Line, says: str | None) -> None:
    if says is None:
        written = '[{"role": "assistant", "content": "c"}]'
        says = f"chosen is {written}, by a second reading its row says {LONG[:200]!r}"
    verdict = lines_verdict([check_lines([line(dict(ROW)), given, given])], stored=3)
    numbers = {"lines_checked": 3, "lines_failed": 2, "lines_read_twice": 2 * (given.plain is not None)}
    assert verdict == Verdict(False, f"2 of 3 lines differ from their rows; first a:0: {says}", numbers, Worst("a:0", says))


def test_lines_without_a_row() -> None:
    says = "2,000 lines are stored, 1,000 rows of the sources are theirs"
    numbers = {"lines_checked": 1000, "lines_failed": 0, "lines_read_twice": 0}
    assert lines_verdict([check_lines([line(dict(ROW))] * 1000)], stored=2000) == Verdict(False, says, numbers, Worst("index", says))
    wrong = lines_verdict([check_lines([line(dict(ROW), None)])], stored=2)
    assert wrong.worst == Worst("a:0", "its row gives no line")
    assert lines_verdict([check_lines([line(dict(ROW), None)] * 1000)], stored=1000).summary.startswith("1,000 of 1,000 lines differ")
