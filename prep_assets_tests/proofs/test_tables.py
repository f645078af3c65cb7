"""Relations between tables on tiny arrays, with expectations that can be seen at a glance, in the words of the verdict."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.extensions.lines import proofs as of_lines
from prep_assets.extensions.lines.merged import Merged
from prep_assets.extensions.lines.proofs import Copies, check_copies
from prep_assets.proofs import tables as module
from prep_assets.proofs.tables import border_fault, check_pieces, check_positions, check_rows, first_difference, gather
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores import arrays as columns
from prep_assets.stores.table import MARGIN, Ragged, Table
from prep_assets_tests.peak import peak
from prep_assets_tests.proofs.tables import EOS, MASKS, PAD, RECORDS, SIZE, lines, packed, store, table, with_column

# -- Merged tables ------------------------------------------------------------------------------------------------------------------------

LINES = [b'{"a": 0}\n', b'{"b": 0}\n', b'{"b": 1}\n', b'{"c": 7}\n']
ORIGIN = np.array([[0, 0, 4], [1, 0, 2], [1, 1, 2], [3, 0, 9]])
PARTS = (lines(LINES[:1], ORIGIN[:1]), lines(LINES[1:3], ORIGIN[1:3]), lines(LINES[3:], ORIGIN[3:]))


def order_of(*order: int) -> Copies:
    part, record = (np.array(each)[list(order)] for each in ([0, 1, 1, 2], [0, 0, 1, 0]))
    domain, file, row = ORIGIN[list(order)].T
    return Copies(part, record, file, row, domain)


IN_ORDER = order_of(0, 1, 2, 3)


def merged(*order: int) -> Table:
    return lines([LINES[at] for at in order], ORIGIN[list(order)])


def failed(where: str, what: str, numbers: dict[str, int]) -> Verdict:
    return Verdict(False, f"{where}: {what}", numbers, Worst(where, what))


def test_lines_in_their_order() -> None:
    sound = Verdict(True, "4 lines of f are those of their domains, in their order", {"lines_checked": 4})
    assert (
        check_copies("f", merged(0, 1, 2, 3), PARTS, IN_ORDER)
        == check_copies("f", merged(2, 0, 3, 1), PARTS, order_of(2, 0, 3, 1))
        == sound
    )
    assert not check_copies("f", merged(2, 0, 3, 1), PARTS, IN_ORDER).passed


@pytest.mark.parametrize("size", [1, 3, 1 << 13])
def test_origins_of_all_records_are_compared(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Some at a time; here the lines are as they must be, and one of them is said to be of another row."""
    monkeypatch.setattr(columns, "STRETCH", size)
    rows = np.arange(9)
    copies, part = Copies(np.zeros(9, int), rows, np.zeros(9, int), rows), lines([b"x"] * 9, np.zeros(27))
    assert check_copies("f", lines([b"x"] * 9, [[5, 0, row] for row in rows]), [part], copies).passed
    for at in rows:
        found = check_copies("f", lines([b"x"] * 9, [[0, 0, 77 if row == at else row] for row in rows]), [part], copies)
        assert found.summary == f"f line {at + 1}: has the row 77, and must have {at}"


PIECES = (store([5, 6], [7], rows=[0, 2]), store([8, 9, 5], rows=[1]))
MERGED = store([8, 9, 5], [5, 6], [7], rows=[0, 1, 3])
COPIES = Copies(*(np.array(each) for each in ([1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 3])))
NUMBERS = {"records_checked": 3, "tokens_checked": 6}


@pytest.fixture(params=[1, 2, 4, 1 << 20])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (module, of_lines):
        monkeypatch.setattr(each, "BLOCK", request.param)


def test_every_column_counts() -> None:
    masked = [with_column(each, "loss_mask", np.ones(len(each.columns["tokens"].values), int)) for each in (MERGED, *PIECES)]
    assert check_copies("s", masked[0], masked[1:], COPIES).passed
    other = with_column(masked[0], "tokens", masked[0].columns["tokens"].values + 1)
    assert check_copies("s", other, masked[1:], COPIES).summary == "s record 0: tokens differs from its part at place 0: 9, there 8"
    masked[0].columns["loss_mask"].values[4] = 0
    said = check_copies("s", masked[0], masked[1:], COPIES)
    assert said == failed("s record 1", "loss_mask differs from its part at place 1: 0, there 1", NUMBERS)


def test_a_part_without_margins_has_none_of_them() -> None:
    def with_margins(table: Table, *margins: float) -> Table:
        return replace(table, columns={**table.columns, MARGIN: Ragged(np.array(margins), np.arange(len(margins)) + 1)})

    parts, none = [with_margins(PIECES[0], 0.5, 1.5), PIECES[1]], float("nan")
    for table, says in (
        (with_margins(MERGED, none, 0.5, 1.5), None),
        (with_margins(MERGED, none, 0.5, none), "s record 2: margin differs from its part at place 0: nan, there 1.5"),
        (with_margins(MERGED, 2.0, 0.5, 1.5), "s record 0: margin differs from its part at place 0: 2.0, there nan"),
        (MERGED, "s record 1: margin differs from its part at place 0: nan, there 0.5"),
    ):
        verdict = check_copies("s", table, parts, COPIES)
        assert (None if verdict.passed else verdict.summary) == says


def test_a_stream_that_lost_its_only_record() -> None:
    """An empty table is false: the sound one was judged in its place."""
    stream = Merged("s", store([5]), [store([5])], Copies(*(np.zeros(1, int) for _ in range(4))))
    assert stream.verdict().passed and not stream.verdict(store()).passed


def test_memory_does_not_grow_with_the_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_lines, "BLOCK", 1 << 14)
    count = 20_000
    order = list(range(count))
    random.Random(7).shuffle(order)
    ends, rows = np.arange(1, count + 1) * 8, np.arange(count)
    part = replace(lines([], []), count=count, columns={"line": Ragged(rows.view(np.uint8), ends)})
    origin = np.stack([rows * 0, rows * 0, rows[order]], axis=1)
    values = rows[order].copy()
    table = replace(lines([], origin), count=count, columns={"line": Ragged(values.view(np.uint8), ends)})
    copies = Copies(rows * 0, np.array(order), rows * 0, rows[order])
    assert peak(lambda: check_copies("f", table, [part], copies)) < 2_000_000
    values[15_000] += 1
    assert check_copies("f", table, [part], copies).worst == Worst(
        "f line 15,001", f"is not as its domain has it: {values[15_000].tobytes()!r}"
    )


# -- Packed tables against their records --------------------------------------------------------------------------------------------------


def proven(**changes: list[Any]) -> Verdict:
    return check_pieces(table(**changes), {"a": store(*RECORDS, masks=MASKS)})


@pytest.mark.usefixtures("block")
def test_a_sound_table() -> None:
    summary, numbers = "9 packed tokens equal their records, tokens and mask", {"tokens_checked": 9, "rows_checked": 2}
    assert proven() == Verdict(True, summary, numbers)


@pytest.mark.parametrize(
    ("changes", "row", "what", "checked", "place"),
    [
        ({"tokens": [[5, 6, 7, 8, 4], [5, 5, 5, 5, PAD]]}, 0, "tokens differs from a record 1 at place 4 of the row", 3, 4),
        ({"tokens": [[5, 6, 7, 8, 9], [5, 5, 4, 5, PAD]]}, 1, "tokens differs from a record 2 at place 2 of the row", 5, 2),
        ({"loss_mask": [[0, 1, 1, 1, 1], [1, 0, 0, 1, 0]]}, 0, "loss_mask differs from a record 1 at place 3 of the row", 3, 3),
        # the first piece that differs in any column
        (
            {"tokens": [[5, 6, 7, 8, 4], [5, 5, 5, 5, PAD]], "loss_mask": [[1, 1, 1, 0, 1], [1, 0, 0, 1, 0]]},
            0,
            "loss_mask differs from a record 0 at place 0 of the row",
            0,
            0,
        ),
        ({"source": [0, 1, 0]}, 0, "domain 1 has no record 1", 3, -1),
        ({"source": [0, 0, -1]}, 1, "domain -1 has no record 2", 5, -1),
        ({"record": [0, 1, 3]}, 1, "a has no record 3", 5, -1),
        ({"record": [0, 1, -1]}, 1, "a has no record -1", 5, -1),
        ({"record": [0, 1, 1000]}, 1, "a has no record 1,000", 5, -1),
        ({"start": [0, -1, 0]}, 0, "a piece starts before a record 1", 3, -1),
        ({"start": [0, 1, 0]}, 0, "a record 1 is shorter than its piece", 3, -1),
        ({"row_offset": [0, 4, 0]}, 0, "a piece at 4 leaves its row", 3, -1),
        ({"row_offset": [0, 3, -1]}, 1, "a piece at -1 leaves its row", 5, -1),
        ({"length": [3, 0, 4]}, 0, "a piece at 3 leaves its row", 3, -1),
        # what stands before is compared first
        (
            {"tokens": [[5, 6, 4, 8, 9], [5, 5, 5, 5, PAD]], "record": [0, 1, 3]},
            0,
            "tokens differs from a record 0 at place 2 of the row",
            0,
            2,
        ),
    ],
)
@pytest.mark.usefixtures("block")
def test_a_piece_that_is_not_of_its_record(changes: dict[str, list[Any]], row: int, what: str, checked: int, place: int) -> None:
    spoiled = table(**changes)
    ids, weights = spoiled.places(row)
    assert weights is not None
    worst = Worst(f"row {row}", what, tuple(map(int, ids)), tuple(map(float, weights)), place)
    assert proven(**changes) == Verdict(False, f"row {row}: {what}", {"tokens_checked": checked}, worst)


@pytest.mark.usefixtures("block")
def test_pieces_of_one_token_and_of_none() -> None:
    """Rows of 2: a record each place, the second row of another domain; and a table without rows."""
    rows = {"tokens": [[5, 6], [7, 8]]}
    pieces = {"row": [0, 0, 1, 1], "row_offset": [0, 1, 0, 1], "length": [1] * 4, "source": [0, 0, 1, 1], "record": [0, 1, 0, 1]}
    parts = {"a": store([5], [6]), "b": store([7], [8])}
    numbers = {"tokens_checked": 4, "rows_checked": 2}
    whole = check_pieces(packed(rows, {**pieces, "start": [0] * 4}, ("a", "b")), parts)
    assert whole == Verdict(True, "4 packed tokens equal their records, tokens and mask", numbers)
    swapped = check_pieces(packed(rows, {**pieces, "start": [0] * 4, "record": [0, 1, 1, 0]}, ("a", "b")), parts)
    assert swapped.summary == "row 1: tokens differs from b record 1 at place 0 of the row"
    beyond = check_pieces(packed(rows, {**pieces, "start": [0] * 4, "record": [0, 1, 0, 7]}, ("a", "b")), parts)
    assert beyond.summary == "row 1: b has no record 7"
    none = packed({"tokens": np.zeros((0, 5), int)}, {field: [] for field in (*pieces, "start")})
    assert check_pieces(none, {"a": store([5])}).numbers == {"tokens_checked": 0, "rows_checked": 0}


def test_stretches_of_several_arrays() -> None:
    """End to end in the order in which they are asked for, whichever of them are neighbours."""
    draw, arrays = random.Random(5), [np.arange(10), 100 + np.arange(10)]
    for _ in range(300):
        asked = [(draw.randrange(2), *sorted((draw.randrange(11), draw.randrange(11)))) for _ in range(draw.randrange(6))]
        number, starts, ends = np.array(asked, int).reshape(-1, 3).T
        expected = [value for which, start, end in asked for value in arrays[which][start:end].tolist()]
        assert gather(arrays, number, starts, ends).tolist() == expected, asked


@pytest.mark.parametrize(
    ("stored", "expected", "at"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 5, 4], 1),
        ([], [], None),
        *(([1.0, one], [1.0, other], at) for one, other, at in (("nan", "nan", None), ("nan", 2.0, 1), (2.0, "nan", 1))),
    ],
)
def test_the_first_place_at_which_values_differ(stored: list[Any], expected: list[Any], at: int | None) -> None:
    assert first_difference(np.array(stored, float), np.array(expected, float)) == at


COUNTED = [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]


@pytest.mark.usefixtures("block")
def test_positions_count_from_the_begin_of_each_piece() -> None:
    sound = Verdict(True, "10 position ids count from 0 in each piece", {"positions": 10})
    assert check_positions(np.array(COUNTED, np.int32), table()) == sound
    for at, right in enumerate(COUNTED):
        for wrong in {0, 1, 4, -1} - {right}:
            what = f"position id {wrong} at place {at % 5}, its piece begins {right} before"
            found = check_positions(np.array([*COUNTED[:at], wrong, *COUNTED[at + 1 :]]), table())
            assert found == failed(f"row {at // 5}", what, {"positions": 10})


SEEN = [[1, 1, 1, 0, 1], [1, 0, 1, 1, 0]]


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
    records = store(*RECORDS, masks=MASKS)
    tokens = {"a": with_column(records, "attention_mask", np.array([1, 1, 1, 0, 1, 1, 0, 1, 1], np.uint8))}
    verdict = check_pieces(table(**({} if changed is None else {"attention_mask": changed})), tokens)
    assert verdict.passed == (says is None) and (says is None or verdict.summary == says)
    all_seen = check_pieces(table(attention_mask=SEEN), {"a": records, "none": store()})
    assert all_seen.summary == "row 0: attention_mask differs from a record 1 at place 3 of the row"


# -- Integrity of records and rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "bos", "where"), [([[5, 6], [7, EOS]], None, "record 1"), ([[4, 5, 6], [4, 7]], 4, None), ([[4, 5, 6], [7]], 4, "record 1")]
)
def test_documents_that_nothing_ends(records: list[list[int]], bos: int | None, where: str | None) -> None:
    verdict = check_rows(store(*records), vocabulary_size=SIZE, eos_id=EOS, bos_id=bos, ended=False)
    assert (verdict.worst.where if verdict.worst else None) == where


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([[1, 5, EOS], [1, EOS]], None),
        ([[1, 5, EOS], [1, 5]], "record 1: 0 end-of-text tokens, the last token is none"),
        ([[1, EOS, 5]], "record 0: 1 end-of-text tokens, the last token is none"),
        ([[1, EOS, EOS]], "record 0: 2 end-of-text tokens, the last token is one"),
        ([[5, EOS]], "record 0: 0 begin-of-text tokens, the first token is none"),
        ([[1, EOS], [5, 1, EOS]], "record 1: 1 begin-of-text tokens, the first token is none"),
        ([[1, 1, EOS]], "record 0: 2 begin-of-text tokens, the first token is one"),
        ([[1, EOS], []], "record 1: 0 tokens"),
    ],
)
def test_first_and_last_tokens(records: list[list[int]], says: str | None) -> None:
    verdict = check_rows(store(*records), vocabulary_size=SIZE, eos_id=EOS, bos_id=1)
    assert (None if verdict.passed else verdict.summary) == says


def test_types_of_columns() -> None:
    records, numbers = store([5], [6, 7], masks=[[1.0], [1.0, 1.0]]), {"records": 2, "tokens": 3}
    right = {"tokens": "int32", "loss_mask": "float32"}
    sound = Verdict(True, "2 records, 3 tokens: lengths, ids and mask are sound", numbers)
    assert check_rows(records, vocabulary_size=SIZE, types=right) == sound
    for wrong, says in (
        ({"tokens": "int64"}, "tokens is int32, and must be int64"),
        ({"loss_mask": "uint8"}, "loss_mask is float32, and must be uint8"),
    ):
        assert check_rows(records, vocabulary_size=SIZE, types={**right, **wrong}) == failed("the table", says, numbers)


@pytest.mark.usefixtures("block")
def test_a_fault_is_found_at_its_record() -> None:
    records = [[5, EOS] for _ in range(20)]
    assert check_rows(store(*records), vocabulary_size=SIZE, eos_id=EOS).passed
    records[13] = [5, 5]
    verdict = check_rows(store(*records), vocabulary_size=SIZE, eos_id=EOS)
    assert verdict.worst is not None and (verdict.worst.where, verdict.worst.ids) == ("record 13", (5, 5))


def test_an_empty_stream_is_sound() -> None:
    assert check_rows(store(), vocabulary_size=SIZE, eos_id=EOS, longest=2).passed


def test_lengths_that_no_option_allows() -> None:
    records = store([5, 6, 7], [5, 6])
    assert check_rows(records, vocabulary_size=10, longest=3).passed
    assert check_rows(records, vocabulary_size=10, longest=2).summary == "record 0: 3 tokens, and the options allow 2"


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
    verdict = check_rows(store(*records, masks=masks), vocabulary_size=SIZE, eos_id=eos, bos_id=bos)
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
    verdict = check_rows(store([5], [], [6]), vocabulary_size=SIZE)
    numbers = {"records": 3, "tokens": 2}
    assert verdict == Verdict(False, "record 1: 0 tokens", numbers, Worst("record 1", "0 tokens"))
    assert check_rows(store([5]), vocabulary_size=SIZE).passed


def test_a_sound_table_is_counted() -> None:
    summary = "2 rows of 5, 3 pieces: borders, padding, ids and mask are sound"
    assert check_rows(table(), vocabulary_size=SIZE, pad_id=PAD) == Verdict(True, summary, {"rows": 2, "pieces": 3})


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 0.5, 1]]}, "row 1: padding is trained"),
        ({"loss_mask": [[0, 1, 1, 0, 1], [0, 0, 0, 0, 0]]}, "row 1: no token is trained"),
        ({"loss_mask": [[0, 1, -1, 0, 1], [1, 0, 0, 0, 0]]}, "row 0: loss weight -1 of a token"),
        ({"loss_mask": [[0, 1, 1, 0, 1], [1, float("inf"), 0, 0, 0]]}, "row 1: loss weight inf of a token"),
        ({"tokens": [[8, 9, 8, 9, PAD], [5, 5, 5, 5, 6]]}, f"row 1: padding is token 6, and must be {PAD}"),
        ({"tokens": [[5, 6, 7, 8, SIZE], [5, 5, 5, 5, PAD]], "attention_mask": SEEN}, "row 0: id 10 is outside the vocabulary of 10"),
        ({"attention_mask": SEEN}, None),
        ({"attention_mask": [[1, 1, 1, 0, 1], [1, 0, 1, 1, 1]]}, "row 1: padding is attended"),
        ({"attention_mask": [[1, 1, 0, 0, 1], [1, 0, 1, 1, 0]]}, "row 0: token 2: trained, and not attended"),
        ({"attention_mask": [[1, 1, 1, 0, 1], [1, 0, 1, 0, 0]]}, "row 1: token 3: trained, and not attended"),
        ({"attention_mask": [[1, 1, 1, 0, 1], [1, 0, 2, 1, 0]]}, "row 1: token 2: an attention of 2"),
        ({"row_offset": [0, 4, 0]}, "row 0: a piece at 4 of 2 tokens, where 3 was the next free place"),
    ],
)
def test_a_faulty_row(changes: dict[str, list[Any]], says: str | None) -> None:
    made = table(**changes)
    verdict = check_rows(made, vocabulary_size=SIZE, pad_id=PAD)
    assert verdict.passed == (says is None)
    if says and "row_offset" not in changes:
        row = int(says[4])
        ids, weights = (tuple(each.tolist()) for each in made.places(row) if each is not None)
        signed = "attention_mask" in changes
        worst = verdict.worst
        assert verdict.summary == says and worst is not None and (worst.where, worst.ids) == (f"row {row}", ids)
        assert signed or worst.weights == weights
    elif says:
        assert verdict.summary == says and verdict.worst == Worst("documents", says)


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
        *(
            ([(0, 0, 2, 0, 1, 0), (0, at, length, 0, 2, 0)], f"row 0: a piece at {at} of {length} tokens, where 2 was the next free place")
            for at, length in ((3, 1), (1, 2), (2, 0), (2, -1), (2, 4))
        ),
        ([(0, 0, 2, 0, 1, 0), (1, 1, 2, 0, 2, 0)], "row 1: a piece at 1 of 2 tokens, where 0 was the next free place"),
    ],
)
@pytest.mark.parametrize("stretch", [1 << 16, 1, 2])
def test_borders(monkeypatch: pytest.MonkeyPatch, stretch: int, pieces: list[tuple[int, ...]], says: str | None) -> None:
    monkeypatch.setattr(columns, "STRETCH", stretch)
    names = ("row", "row_offset", "length", "source", "record", "start")
    documents = {name: np.array(values) for name, values in zip(names, zip(*pieces, strict=True), strict=True)}
    assert border_fault(documents, len(set(documents["row"].tolist())), 5) == says


@pytest.mark.parametrize(("row", "rows"), [([-1, 0], 1), ([0, 2], 2), ([1], 1)])
def test_rows_that_the_table_does_not_have(row: list[int], rows: int) -> None:
    count = len(row)
    documents = {name: np.zeros(count, int) for name in ("row_offset", "source", "start")}
    documents |= {"row": np.array(row), "length": np.ones(count, int), "record": np.arange(count)}
    assert str(border_fault(documents, rows, 5)).startswith("pieces lie in ")


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
    records = store(*RECORDS, masks=[[0.0, 0.0, 1.0], [0.0, 0.5], [1.0, 0.0, 0.0, 0.0]])
    verdict = check_rows(with_column(records, "attention_mask", np.array(attention, np.uint8)), vocabulary_size=SIZE)
    assert verdict.passed == (says is None) and (says is None or verdict.summary == says)


# -- Position ids of a packed table, place by place and block by block --------------------------------------------------------------------
