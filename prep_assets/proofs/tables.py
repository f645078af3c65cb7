"""Relations between tables: one holds the records of others in another order, or pieces of them; and what must hold of each column, by its role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.proofs.verdict import Verdict, Worst, fails
from prep_assets.stores.arrays import batches, cumulative_sums, predecessors, stretches
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.shards import ATTENTION
from prep_assets.stores.table import MARGIN, Ragged, Role, Table

Array = npt.NDArray[Any]
BLOCK = 1 << 20
"""Elements that are compared at a time."""
NO_TYPES: Mapping[str, str] = {}
_OF_TOKENS: tuple[Role, ...] = ("weight", "attention")

# Values of one table against those of others.


def gather(arrays: Sequence[Any], number: Ints, starts: Ints, ends: Ints) -> Array:
    """Read stretches of several arrays, end to end; adjacent ones at once."""
    begins = np.ones(len(number), bool)
    begins[1:] = (number[1:] != number[:-1]) | (starts[1:] != ends[:-1])
    spans = zip(number[begins].tolist(), starts[begins].tolist(), ends[np.roll(begins, -1)].tolist(), strict=True)
    return np.concatenate([arrays[0][:0], *[arrays[each][start:end] for each, start, end in spans]])


def first_difference(stored: Array, expected: Array) -> int | None:
    """The first place at which arrays differ; NaN equals NaN."""
    wrong = (stored != expected) & ((stored == stored) | (expected == expected))
    return int(wrong.argmax()) if wrong.any() else None


def column_of(table: Table, name: str) -> Ragged:
    """A column; one that the table lacks says the same of every record or token: no margin, attended."""
    if name in table.columns:
        return table.columns[name]
    if name == MARGIN:
        return Ragged(np.broadcast_to(np.float32("nan"), len(table)), np.arange(1, len(table) + 1))
    ends = table.columns["tokens"].ends
    return Ragged(np.broadcast_to(np.uint8(1), int(ends[-1]) if len(ends) else 0), ends)


def spans_of(columns: Sequence[Ragged], number: Ints, record: Ints) -> tuple[Ints, Ints]:
    """Where records of several columns begin and end."""
    starts, ends = np.zeros_like(record), np.zeros_like(record)
    for each, column in enumerate(columns):
        own = np.flatnonzero(number == each)
        chosen = record[own]
        starts[own], ends[own] = np.where(chosen > 0, column.ends[chosen - 1], 0), column.ends[chosen]
    return starts, ends


# Packed tables: every piece is those tokens of its record, with their loss mask and attention.


def check_pieces(packed: Table, tables: Mapping[str, Table]) -> Verdict:
    """Compare every piece of every row with its record, token by token.

    Args:
        tables: by name of the domain.
    """
    assert packed.pieces is not None
    lengths, parts, checked = packed.pieces.fields["length"], [tables[name] for name in packed.pieces.domains], 0
    for part in batches(cumulative_sums(lengths), BLOCK):
        fault = _piece_fault(packed, part, parts)
        checked += int(np.sum(lengths[part.start : part.stop if fault is None else part.start + fault[0]]))
        note_mapped_bytes(8 * int(np.sum(lengths[part])))  # ids and masks, of rows and of records
        if fault is not None:
            row = int(packed.pieces.fields["row"][part.start + fault[0]])
            ids, weights = packed.places(row)
            return fails(f"row {row:,}", fault[1], {"tokens_checked": checked}, ids, () if weights is None else weights, fault[2])
    numbers = {"tokens_checked": checked, "rows_checked": len(packed)}
    return Verdict(True, f"{checked:,} packed tokens equal their records, tokens and mask", numbers)


def _piece_fault(packed: Table, pieces: slice, parts: Sequence[Table]) -> tuple[int, str, int] | None:
    """The first of some pieces that differs from its record: its index, the fault, and the place in its row, -1 for none."""
    assert packed.pieces is not None
    fields = {field: np.asarray(values[pieces], np.int64) for field, values in packed.pieces.fields.items()}
    row, offset, length, source, record, start = (fields[key] for key in ("row", "row_offset", "length", "source", "record", "start"))
    names, width = packed.pieces.domains, packed.width
    known = (source >= 0) & (source < len(parts))
    exists = known & (record >= 0) & (record < np.array([len(part) for part in parts])[np.where(known, source, 0)])
    begin, end = spans_of([part.columns["tokens"] for part in parts], np.where(exists, source, -1), record)
    whole = exists & (start >= 0) & (begin + start + length <= end)
    sound = whole & (offset >= 0) & (length > 0) & (offset + length <= width)
    count = len(sound) if sound.all() else int(sound.argmin())
    at, low, size, number = (each[:count] for each in (row * width + offset, begin + start, length, source))
    faults = list[tuple[int, str, int]]()
    for key in ("tokens", "loss_mask", ATTENTION) if count else ():
        if not any(key in table.columns for table in (packed, *parts)):
            continue
        stored = gather([column_of(packed, key).values], np.zeros_like(number), at, at + size)
        expected = gather([column_of(part, key).values for part in parts], number, low, low + size)
        if (wrong := first_difference(stored, expected)) is not None:
            ends = np.cumsum(size)
            piece = int(np.searchsorted(ends, wrong, "right"))
            place = int(offset[piece] + wrong - (ends[piece] - size[piece]))
            name = f"{names[source[piece]]} record {record[piece]:,}"
            faults.append((piece, f"{key} differs from {name} at place {place} of the row", place))
    if faults or count == len(sound):
        return min(faults, default=None)
    domain = f"{names[source[count]] if known[count] else f'domain {source[count]}'}"
    if not exists[count]:
        what = f"{domain} has no record {record[count]:,}"
    elif start[count] < 0:
        what = f"a piece starts before {domain} record {record[count]:,}"
    else:
        what = (
            f"a piece at {offset[count]} leaves its row" if whole[count] else f"{domain} record {record[count]:,} is shorter than its piece"
        )
    return count, what, -1


# Integrity of rows: types, lengths, ids inside the vocabulary, something trained in each, borders of pieces, padding.


def check_rows(
    table: Table,
    *,
    vocabulary_size: int,
    types: Mapping[str, str] = NO_TYPES,
    eos_id: int | None = None,
    bos_id: int | None = None,
    ended: bool = True,
    longest: int | None = None,
    pad_id: int | None = None,
) -> Verdict:
    """Check the records of a table: columns of the `types` that are named, no empty record and none of more than `longest` tokens, ids inside the vocabulary,
    a mask (if any) of weights that are not negative with something trained in every record, an attention (where there is one) of 0 and 1 with nothing trained
    where it is 0; with `eos_id`, exactly one end-of-text token in each record, its last, or none where not `ended`; with `bos_id`, one begin-of-text token,
    its first. Of packed rows also: pieces that fill each row from its start without gap or overlap; padding after them that is `pad_id`, untrained and
    unattended."""
    [name] = table.has("ids")
    noun, lengths, pieces = table.schema.noun, table.lengths, table.pieces
    numbers = {"records": len(table), "tokens": int(lengths.sum())}
    if pieces is not None:
        numbers = {"rows": len(table), "pieces": len(pieces.fields["row"])}
    stored = {key: table.columns[key].values.dtype for key in types}
    if wrong := [f"{key} is {stored[key]}, and must be {asked}" for key, asked in types.items() if stored[key] != asked]:
        return fails("the table", wrong[0], numbers)
    if pieces is not None and (borders := border_fault(pieces.fields, len(table), table.width)):
        return Verdict(False, borders, numbers, Worst("documents", borders))
    if len(lengths) and lengths.min() < 1:
        return fails(f"{noun} {int(lengths.argmin()):,}", f"{int(lengths.min())} tokens", numbers)
    if longest is not None and len(lengths) and lengths.max() > longest:
        return fails(f"{noun} {int(lengths.argmax()):,}", f"{int(lengths.max()):,} tokens, and the options allow {longest:,}", numbers)
    for records in batches(table.ends(name), BLOCK):
        fault = next(_row_faults(table, name, records, vocabulary_size, ((bos_id, True), (eos_id, ended)), pad_id), None)
        if fault is not None:
            record = records.start + fault[0]
            ids, weights = table.places(record) if table.width else table.joined(record)[:2]
            return fails(f"{noun} {record:,}", fault[1], numbers, ids, () if weights is None else weights)
    if pieces is None:
        return Verdict(True, f"{len(table):,} records, {numbers['tokens']:,} tokens: lengths, ids and mask are sound", numbers)
    sound = f"{len(table):,} rows of {table.width:,}, {numbers['pieces']:,} pieces: borders, padding, ids and mask are sound"
    return Verdict(True, sound, numbers)


def require_filled(filled: Sequence[int], limit: int, sizes: Ints | None = None) -> None:
    """Raise for files that do not hold whole rows, each as many as `limit` allows.

    Args:
        filled: what each file holds: rows, or tokens or bytes of them.
        limit: the most of these that a file may hold; a larger row is alone in its file.
        sizes: of each row, in tokens or bytes.

    Raises:
        StoreError: a file holds more or less, or ends inside a row.
    """
    used, first = np.asarray(filled, np.int64), np.ones(len(filled), np.int64)
    if sizes is not None:
        sums, ends = np.cumsum(np.append(0, sizes[sizes > 0])), np.cumsum(np.append(0, used))
        at = np.searchsorted(sums, ends)
        if sums[-1] != ends[-1] or (sums[at] != ends).any():
            raise StoreError(f"files with {filled[:20]} do not end where rows do")
        first = np.diff(sums)[at[:-1]]
    if ((used > limit) & (used != first)).any() or (used[:-1] + first[1:] <= limit).any():
        raise StoreError(f"files hold {filled[:20]}; each should hold as many rows as {limit:,} allows")


def _row_faults(
    table: Table, name: str, records: slice, size: int, edges: Sequence[tuple[int | None, bool]], pad_id: int | None
) -> Iterator[tuple[int, str]]:
    """Yield the faults of some records, each with its index among them. Begin-of-text and end-of-text tokens, possibly the same token, occur once each, at
    the ends of a record.

    Args:
        edges: begin-of-text and end-of-text token, and whether each is required; `None` for a token that is not checked.
    """
    column, borders = table.columns[name], table.ends(name)
    low = column.starts_of(records)
    span = slice(int(low[0]), int(borders[records.stop - 1]))
    ids, starts = np.asarray(column.values[span]), low - span.start

    def faults(wrong: npt.NDArray[np.bool_], what: str, values: Array = ids) -> Iterator[tuple[int, str]]:
        if wrong.any():
            at = int(wrong.argmax())
            record = int(np.searchsorted(starts, at, "right")) - 1
            yield record, what.format(values[at], at - int(starts[record]))

    yield from faults((ids < 0) | (ids >= size), f"id {{}} is outside the vocabulary of {size:,}")
    ends = np.append(starts, len(ids))
    for (token, needed), places, which, position in zip(edges, (starts, ends[1:] - 1), ("begin", "end"), ("first", "last"), strict=True):
        if token is None:
            continue
        in_place, count = ids[places] == token, np.diff(np.searchsorted(np.flatnonzero(ids == token), ends))
        wrong = (count != sum(edge == token and is_needed for edge, is_needed in edges)) | (needed & ~in_place)
        if wrong.any():
            record = int(wrong.argmax())
            yield record, f"{int(count[record])} {which}-of-text tokens, the {position} token is {'one' if in_place[record] else 'none'}"
    weights = {role: np.asarray(table.columns[key].values[span]) for role in _OF_TOKENS for key in table.has(role)}
    if (mask := weights.get("weight")) is not None:
        yield from faults(~((mask >= 0) & np.isfinite(mask)), "loss weight {} of a token", mask)
        untrained = ~np.logical_or.reduceat(mask > 0, starts)
        if untrained.any():
            yield int(untrained.argmax()), "no token is trained"
    if mask is not None and (attention := weights.get("attention")) is not None:
        yield from faults(attention > 1, "token {1}: an attention of {0}", attention)
        yield from faults((mask > 0) & (attention == 0), "token {1}: trained, and not attended")
    if table.width:
        padding = (np.arange(table.width) >= (column.ends[records] - low)[:, None]).ravel()
        yield from faults(padding & (ids != pad_id), f"padding is token {{}}, and must be {pad_id}")
        for role, values in weights.items():
            yield from faults(padding & (values != 0), "padding is trained" if role == "weight" else "padding is attended")


_before = partial(predecessors, first=-1)  # no row and no record has this number


def border_fault(pieces: Mapping[str, Array], rows: int, width: int) -> str | None:
    """What is wrong with the borders of pieces: they fill each row from its start, without gap or overlap, and none lies inside a record."""
    row, offset, length, source, record, start = (
        np.asarray(pieces[field]) for field in ("row", "row_offset", "length", "source", "record", "start")
    )
    rows_with_pieces = 0
    for part in stretches(len(row)):
        steps = row[part] - _before(row, part)
        if (steps < 0).any():
            return f"pieces are not in the order of their rows: one of row {int(row[part.start + (steps < 0).argmax() - 1]):,} stands before a lower row"
        rows_with_pieces += int(np.count_nonzero(steps))
    if rows_with_pieces != rows or (len(row) and (row[0] < 0 or row[-1] >= rows)):
        return f"pieces lie in {rows_with_pieces:,} rows, the table has {rows:,}"
    for part in stretches(len(row)):
        first, end = row[part] != _before(row, part), offset[part] + length[part]
        expected = np.where(first, 0, _before(offset, part) + _before(length, part))
        wrong = (offset[part] != expected) | (length[part] < 1) | (end > width)
        if wrong.any():
            at, place = part.start + int(wrong.argmax()), int(expected[wrong.argmax()])
            return f"row {int(row[at]):,}: a piece at {int(offset[at])} of {int(length[at])} tokens, where {place} was the next free place"
        follows = ~first & (source[part] == _before(source, part)) & (record[part] == _before(record, part))
        follows &= start[part] == _before(start, part) + _before(length, part)
        if follows.any():
            at = part.start + int(follows.argmax())
            return f"row {int(row[at]):,}: a border at place {int(offset[at])}, inside record {int(record[at]):,} of its domain"
    return None


def check_positions(positions: Any, table: Table) -> Verdict:
    """Check position ids of all places of a packed table: they count from 0 in each piece, and are 0 in the padding.

    Args:
        positions: flat, read in slices.
    """
    assert table.pieces is not None
    row, offset, length = (np.asarray(table.pieces.fields[field]) for field in ("row", "row_offset", "length"))
    numbers = {"positions": len(table) * table.width}
    for rows in batches(np.arange(1, len(table) + 1) * table.width, BLOCK):
        first, stop = rows.start * table.width, rows.stop * table.width
        pieces, block = slice(*np.searchsorted(row, [rows.start, rows.stop]).tolist()), np.asarray(positions[first:stop])
        lengths, wanted = length[pieces], np.zeros(stop - first, np.int64)
        counted = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        wanted[np.repeat(row[pieces] * table.width + offset[pieces] - first, lengths) + counted] = counted
        if (at := first_difference(block, wanted)) is not None:
            number, place = divmod(first + at, table.width)
            what = f"position id {int(block[at])} at place {place}, its piece begins {int(wanted[at])} before"
            return fails(f"row {number:,}", what, numbers)
    return Verdict(True, f"{numbers['positions']:,} position ids count from 0 in each piece", numbers)
