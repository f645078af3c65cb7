"""Selftest of merged and packed tables: corruptions of their columns, by role, of their records and of their pieces, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from msgspec import structs

from prep_assets.array_types import Array
from prep_assets.checks.of_packed import mixture_of
from prep_assets.extensions.lines.merged import merged_streams
from prep_assets.extensions.selftest.mutations import MASK, NAME
from prep_assets.extensions.selftest.mutations import ROWS as INTEGRITY
from prep_assets.extensions.selftest.trials import Judge, Trial, clean, trials_of, tried
from prep_assets.pipeline.asset import Store
from prep_assets.proofs.mutations import Change, Mutation
from prep_assets.proofs.tables import check_pieces, check_positions, check_rows
from prep_assets.stores.arrays import rounded_up
from prep_assets.stores.table import POSITIONS, Pieces, Ragged, Role, Table, open_stream, packed_table

# Merged tables: records lost, twice, exchanged, of another origin; one value of a column altered.


def _in_order(table: Table, order: Sequence[int]) -> Table:
    """The records with these numbers, in this order."""
    columns, chosen = dict[str, Ragged](), np.array(order, np.int64)
    for name, column in table.columns.items():
        values = [array for at in order for array in column.arrays(at)]
        columns[name] = Ragged(np.concatenate([np.asarray(column.values[:0]), *values]), np.cumsum([len(array) for array in values]))
    origins = {name: np.asarray(getattr(table.origins, name))[chosen] for name in ("domain", "file", "row")}
    return replace(table, count=len(order), columns=columns, origins=structs.replace(table.origins, **origins))


def _neighbours_exchanged(table: Table, at: int) -> Table | None:
    order = list(range(len(table)))
    order[at], order[(at + 1) % len(order)] = order[(at + 1) % len(order)], order[at]
    return _in_order(table, order) if len(order) > 1 else None


def _contents_exchanged(table: Table, at: int) -> Table | None:
    """With the origins they had, so that only their values tell."""
    changed = _neighbours_exchanged(table, at)
    if changed is None or all(np.array_equal(column.values, table.columns[name].values) for name, column in changed.columns.items()):
        return None
    return replace(changed, origins=table.origins)


def _of_another(field: str) -> Change:
    def changed(table: Table, at: int) -> Table:
        origins = {name: np.array(getattr(table.origins, name)) for name in ("domain", "file", "row")}
        origins[field][at] += 1
        return replace(table, origins=structs.replace(table.origins, **origins))

    return changed


def _value_changed(name: str, role: Role) -> Change:
    """Change the last value of a record; of a line, its last byte but the line break."""

    def changed(table: Table, at: int) -> Table | None:
        column = table.columns[name]
        place, values = int(column.ends[at]) - 1 - (role == "json"), np.array(column.values)
        if column.ends[at] == column.starts_of(slice(at, at + 1))[0] or np.isnan(values[place]):
            return None
        values[place] = not values[place] if role in ("weight", "attention") else values[place] + 1
        return replace(table, columns={**table.columns, name: replace(column, values=values)})

    return changed


def _border_moved(table: Table, at: int) -> Table | None:
    if at + 1 == len(table):
        return None
    moved = np.arange(len(table)) == at
    return replace(table, columns={name: replace(column, ends=np.asarray(column.ends) - moved) for name, column in table.columns.items()})


def copy_mutations(table: Table, *, has_domains: bool) -> Iterator[Mutation]:
    """Corruptions of a merged table."""
    noun = "line" if table.has("json") else "record"
    yield Mutation(f"a {noun} lost", NAME, lambda table, at: _in_order(table, [each for each in range(len(table)) if each != at]))
    yield Mutation(f"a {noun} twice", NAME, lambda table, at: _in_order(table, [*range(len(table)), at]))
    yield Mutation(f"two {noun}s exchanged", NAME, _contents_exchanged)
    yield Mutation("another order", NAME, _neighbours_exchanged)
    yield from (
        Mutation(f"a {noun} of another {field}", NAME, _of_another(field)) for field in ("domain", "file", "row")[not has_domains :]
    )
    roles = {column.name: column.role for column in table.schema.columns}
    yield from (Mutation(f"another value in {name}", NAME, _value_changed(name, roles.get(name, "value"))) for name in table.columns)
    yield Mutation("a border moved", NAME, _border_moved)


def merged_trials(store: Store) -> list[Trial]:
    """Corrupt the streams or files of a merged store."""
    trials: list[Trial] = []
    for stream in merged_streams(store):
        columns = {name: replace(column, values=np.array(column.values[:])) for name, column in stream.table.columns.items()}
        held, corruptions = (
            replace(stream.table, columns=columns),
            copy_mutations(stream.table, has_domains=stream.copies.domain is not None),
        )
        trials += trials_of(held, len(held), corruptions, {NAME: stream.verdict}, what=f"{NAME} ({stream.name})")
    return trials


# Packed tables: masks shifted, borders moved, padding trained, pieces exchanged.


def packed_trials(store: Store) -> list[Trial]:
    """Corrupt a whole table in memory."""
    vocabulary, table = store.vocabulary, open_stream(store.directory, "sft_packed")
    assert table.pieces is not None
    domains, fields = table.pieces.domains, {field: np.array(values) for field, values in table.pieces.fields.items()}
    tokens = {name: open_stream(store.above("sft_tokens", name).directory, "train") for name in domains}
    values = {name: np.array(column.values[:]).reshape(-1, table.width) for name, column in table.columns.items()}
    # formats that do not store positions compute them
    counted = np.zeros_like(values["tokens"], np.int64)
    for row, offset, length in table.pieces.read(slice(None), "row", "row_offset", "length"):
        counted[row, offset : offset + length] = np.arange(length)

    checks: dict[str, Judge] = {
        INTEGRITY: lambda changed: check_rows(changed, vocabulary_size=vocabulary.size, pad_id=vocabulary.pad_id),
        MASK: lambda changed: check_pieces(changed, tokens),
        "mixture": lambda changed: mixture_of(store, "sft_packed", changed.pieces.fields, changed.align),
    }

    def changed(pieces: Mapping[str, Array] = fields, columns: Mapping[str, Array | None] = {}, align: int = table.align) -> Table:
        """The table with other pieces, columns or alignment."""
        flat = {name: each.reshape(-1) for name, each in {**values, **columns}.items() if each is not None and name != POSITIONS}
        return packed_table("", flat, Pieces(domains, pieces), len(table), table.width, align=align)

    def padded(name: str, value: int | None) -> Table:
        """The last piece as padding, with a fault in one column."""
        row, offset, length = (int(fields[field][-1]) for field in ("row", "row_offset", "length"))
        rows, sound = {key: each.copy() for key, each in values.items()}, {"tokens": vocabulary.pad_id}
        for key, each in rows.items():
            each[row, offset : offset + length] = value if key == name else sound.get(key, 0)
        return changed({field: each[:-1] for field, each in fields.items()}, rows)

    corrupted = [
        *(
            (what, check, changed(columns={name: wrong}))
            for name in values
            for what, check, wrong in _columns_changed(name, values, vocabulary.size)
        ),
        *((what, check, changed(wrong)) for what, check, wrong in _pieces_changed(fields, len(table))),
        ("documents said to be aligned by one place more", "mixture", changed(align=table.align + 1)),
        *([("the alignment lost", "mixture", changed(align=1))] if table.align > 1 else []),
        *(
            (what, "mixture", changed(wrong))
            for what, wrong in _rows_changed(fields, table.width, table.align, store.recipe["packing"].get("balance"))
        ),
        ("padding trained", INTEGRITY, padded("loss_mask", 1)),
        ("padding of another token", INTEGRITY, padded("tokens", vocabulary.pad_id + 1)),
        *([("padding attended", INTEGRITY, padded("attention_mask", 1))] if "attention_mask" in values else []),
    ]
    of_ids = partial(check_positions, table=table)
    positions = {"run on": np.tile(np.arange(table.width), (len(table), 1)), "all zero": counted * 0, "from 1": counted + 1}
    return [
        clean("every check", [*(check(changed()) for check in checks.values()), of_ids(counted.reshape(-1))]),
        *(tried(name, check, [checks[check](wrong)]) for name, check, wrong in corrupted),
        *(tried(f"position ids {name}", INTEGRITY, [of_ids(ids.reshape(-1))]) for name, ids in positions.items()),
    ]


def _columns_changed(name: str, values: Mapping[str, Array], size: int) -> Iterator[tuple[str, str, Array | None]]:
    """Corruptions of one column of all rows, and the check for each."""
    column = values[name]
    if name == "tokens":
        middle = len(column) // 2
        yield (
            "a token replaced",
            MASK,
            np.where(np.arange(column.size).reshape(column.shape) == middle * column.shape[1], (column + 1) % size, column),
        )
    elif name == "loss_mask":
        yield from ((f"mask shifted by {by:+d} in every row", MASK, np.roll(column, by, axis=1)) for by in (1, -1))
        yield "mask all ones", MASK, np.ones_like(column)
        yield "mask all zeros", INTEGRITY, np.zeros_like(column)
    elif name == "attention_mask":
        yield "attention lost", MASK, None
        yield "attention shifted by +1 in every row", MASK, np.roll(column, 1, axis=1)
        yield "attention inverted", MASK, 1 - column
        yield "trained tokens not attended", INTEGRITY, column * (values["loss_mask"] == 0)


def _rows_changed(fields: Mapping[str, Array], width: int, align: int, ranks: int | None) -> Iterator[tuple[str, dict[str, Array]]]:
    """Corruptions of what a trainer of several ranks asks of rows."""
    row, length = fields["row"], fields["length"]
    rooms, rows = rounded_up(length, align), int(row[-1]) + 1
    free, used = width - np.bincount(row, rooms, rows), np.bincount(row, length, rows)
    for piece in np.flatnonzero(np.diff(row, append=rows)):  # the last of each row
        fits = (used + length[piece] <= width) & (free < rooms[piece]) & (np.arange(rows) != row[piece])
        if align > 1 and fits.any():
            target = int(fits.argmax())
            moved = np.where(np.arange(len(row)) == piece, target, row)
            order = np.argsort(moved, kind="stable")
            offset = np.where(np.arange(len(row)) == piece, int(used[target]), fields["row_offset"])
            yield (
                "a document without room for its padding",
                {field: values[order] for field, values in {**fields, "row": moved, "row_offset": offset}.items()},
            )
            break
    if ranks is not None and rows > ranks:
        exchanged = np.where(row == 0, ranks, np.where(row == ranks, 0, row))
        order = np.argsort(exchanged, kind="stable")
        yield "rows of two steps exchanged", {field: values[order] for field, values in {**fields, "row": exchanged}.items()}


def _pieces_changed(fields: Mapping[str, Array], rows: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Corruptions of pieces, and the check for each."""
    number, longest = np.arange(len(fields["row"])), int(fields["length"].argmax())
    piece = number == len(number) // 2
    swapped = np.where(number == 0, number[-1], np.where(number == number[-1], 0, number))

    def chosen(which: Any, **changes: Array) -> dict[str, Array]:
        return {field: values[which] for field, values in {**fields, **changes}.items()}

    yield "documents' borders moved", INTEGRITY, chosen(number, row_offset=fields["row_offset"] + piece)
    yield "two documents exchanged", MASK, chosen(number, **{field: fields[field][swapped] for field in ("source", "record")})
    first, second = fields["length"][longest] // 2, np.arange(len(number) + 1) == longest + 1
    halves = chosen(np.sort(np.append(number, longest)))
    halves["length"] = np.where(second, halves["length"] - first, np.where(np.roll(second, -1), first, halves["length"]))
    yield (
        "a border inside a document",
        INTEGRITY,
        {**halves, **{field: halves[field] + second * first for field in ("row_offset", "start")}},
    )
    yield "a document replaced by padding", "mixture", chosen(~piece)
    yield "a domain missing", "mixture", chosen(fields["source"] > 0)
    yield "a record used again", "mixture", chosen(np.append(number, number[piece]))
    yield "a record replaced by another", "mixture", chosen(number, record=fields["record"] + piece)
    yield "a record cut short", "mixture", chosen(number, length=fields["length"] - piece)
    if rows > 1:
        turned = np.argsort(-fields["row"], kind="stable")
        yield "rows in another order", "mixture", chosen(turned, row=fields["row"].max() - fields["row"])
