"""Corruptions of packed tables, and the checks that must see them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import SHIPPED
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.corruption import Mutation, Spoil
from prep_assets_tests.proofs.spoiled_records import EOS, PAD, one_more

FIELDS = ("row", "row_offset", "length", "source", "record", "start")


def on_packed(key: str, change: Any) -> Spoil:
    """Change a table in place: `change(rows, used)`, `used` being the number of places taken in each row."""

    def spoil(published: Published) -> None:
        folder = published.directory / "sft_packed.documents"
        table = corruption.packed(published, key)
        change(table, np.bincount(np.load(folder / "row.npy"), np.load(folder / "length.npy")).astype(int))
        table.flush()  # type: ignore[attr-defined]

    return spoil


def assign(row: int, place: Any, value: Any) -> Any:
    def change(table: npt.NDArray[Any], used: npt.NDArray[Any]) -> None:
        where = int(used[row]) if place == "padding" else place
        table[row, where] = value

    return change


def swap_two(table: npt.NDArray[Any], _: npt.NDArray[Any]) -> None:
    at = int(np.flatnonzero(np.diff(table[0]))[0])
    table[0, [at, at + 1]] = table[0, [at + 1, at]]


def roll_row(table: npt.NDArray[Any], _: npt.NDArray[Any]) -> None:
    table[0] = np.roll(table[0], 1)


def swap_rows(table: npt.NDArray[Any], _: npt.NDArray[Any]) -> None:
    table[[0, 1]] = table[[1, 0]]


def on_documents(**changes: Any) -> Spoil:
    return lambda published: corruption.documents(published, **changes)


def on_blend(column: str, change: Any) -> Spoil:
    def spoil(published: Published) -> None:
        path = published.directory / "blend" / f"{column}.npy"
        np.save(path, change(np.load(path)))

    return spoil


def at(place: int, step: int) -> Any:
    def change(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values[place] += step
        return values

    return change


def border_moved(published: Published) -> None:
    """Piece 0 is one token longer and piece 1 one shorter, which adds up in every way."""
    corruption.documents(published, length=lambda v: at(1, -1)(at(0, 1)(v)), row_offset=at(1, 1))


def pieces_swapped(published: Published) -> None:
    """The first piece of row 1 stands before the last of row 0, so that rows are not in order."""
    rows = np.load(published.directory / "sft_packed.documents" / "row.npy")
    second = int((rows == 1).argmax())
    order = np.arange(len(rows))
    order[[second - 1, second]] = order[[second, second - 1]]
    corruption.documents(published, **{field: lambda values: values[order] for field in FIELDS})


def alias_of_the_record_before(published: Published) -> None:
    """A piece is said to begin before a record, at the very tokens of the one before."""
    folder = published.directory / "sft_packed.documents"
    records, starts, lengths = (np.load(folder / f"{field}.npy") for field in ("record", "start", "length"))
    sources = json.loads((folder / "sources.json").read_text())["sources"]
    source = np.load(folder / "source.npy")
    tokens = published.directory.parents[2] / "sft_tokens"
    sizes = {number: len(np.load(tokens / name / "current" / "train.index" / "ends.npy")) for number, name in enumerate(sources)}
    piece = int(np.flatnonzero((starts == 0) & (records + 1 < np.array([sizes[int(number)] for number in source])))[0])
    ends = np.load(tokens / sources[source[piece]] / "current" / "train.index" / "ends.npy")
    size = int(np.diff(ends, prepend=0)[records[piece]])
    assert lengths[piece] <= size
    corruption.documents(published, record=at(piece, 1), start=at(piece, -size))


def rows_exchanged(published: Published) -> None:
    """The first two rows stand in each other's place, with their documents."""
    for key in ("sequence", "loss_mask", "position_ids"):
        table = corruption.packed(published, key)
        table[[0, 1]] = table[[1, 0]]
        table.flush()  # type: ignore[attr-defined]
    row = np.load(published.directory / "sft_packed.documents" / "row.npy")
    moved = np.where(row < 2, 1 - row, row)
    order = np.argsort(moved, kind="stable")
    changes: dict[str, Any] = {field: lambda values: values[order] for field in FIELDS}
    corruption.documents(published, **{**changes, "row": lambda _: moved[order]})


def of_type(stream: str, key: str, dtype: str) -> Spoil:
    """An array holds the same numbers in another type."""

    def spoil(published: Published) -> None:
        for meta in sorted((published.directory / stream).glob("shard_*/meta.json")):
            about = json.loads(meta.read_text())
            path = meta.with_name(f"{key}.bin")
            np.fromfile(path, about[key]["dtype"]).astype(dtype).tofile(path)
            about[key]["dtype"] = dtype
            meta.write_text(json.dumps(about))

    return spoil


def empty_shard(stream: str) -> Spoil:
    """A shard without a record stands before the first one."""

    def spoil(published: Published) -> None:
        first = published.directory / stream / "shard_0000"
        about = json.loads((first / "meta.json").read_text())
        first.rename(first.with_name("shard_0001"))
        first.mkdir()
        for key in about:
            (first / f"{key}.bin").touch()
        (first / "meta.json").write_text(json.dumps({key: {**each, "shape": [0]} for key, each in about.items()}))

    return spoil


def said_to_be_aligned(published: Published) -> None:
    """The rows are said to have room for documents of multiples of a place that all have."""
    path = published.directory / "sft_packed.documents" / "sources.json"
    lengths = np.load(path.with_name("length.npy"))
    row = np.load(path.with_name("row.npy"))
    about = json.loads(path.read_text())
    fits = [n for n in (2, 4) if (np.bincount(row, -(-lengths // n) * n) <= about["row_len"]).all()]
    path.write_text(json.dumps({**about, "align": fits[0] if fits else about["row_len"] + 1}))


def packed_twice(published: Published) -> None:
    """One record's tokens, mask and origin stand in the place of another piece as well."""
    folder = published.directory / "sft_packed.documents"
    row, offset, length, start = (np.load(folder / f"{field}.npy") for field in ("row", "row_offset", "length", "start"))
    whole = np.flatnonzero(start == 0)
    order = whole[np.argsort(length[whole], kind="stable")]
    one, two = next((int(a), int(b)) for a, b in pairwise(order) if length[a] == length[b])
    for key in ("sequence", "loss_mask"):
        table = corruption.packed(published, key)
        n = int(length[one])
        table[row[two], offset[two] : offset[two] + n] = table[row[one], offset[one] : offset[one] + n]
        table.flush()  # type: ignore[attr-defined]

    def copy(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values[two] = values[one]
        return values

    corruption.documents(published, source=copy, record=copy)


def last_row_lost(published: Published) -> None:
    """The table ends one row early, and its documents with it; the manifest still counts it."""
    folder = published.directory / "sft_packed" / "shard_0000"
    row_len = SHIPPED["sft"]["packing"]["row_len"]
    meta = json.loads((folder / "meta.json").read_text())
    for key, entry in meta.items():
        path = folder / f"{key}.bin"
        values = np.fromfile(path, entry["dtype"])[:-row_len]
        values.tofile(path)
        entry["shape"] = [len(values)]
    (folder / "meta.json").write_text(json.dumps(meta))
    rows = np.load(published.directory / "sft_packed.documents" / "row.npy")
    kept = rows < rows.max()
    corruption.documents(published, **{field: lambda values: values[kept] for field in FIELDS})


def on_positions(change: Any) -> Spoil:
    """Change the position ids of the table: `change(ids of a row)`."""

    def spoil(published: Published) -> None:
        table = corruption.packed(published, "position_ids")
        table[:] = np.apply_along_axis(change, 1, np.array(table))
        table.flush()  # type: ignore[attr-defined]

    return spoil


def with_false_border(published: Published) -> None:
    """A document of the table is two, and position ids begin anew inside it."""
    folder = published.directory / "sft_packed.documents"
    fields = {field: np.load(folder / f"{field}.npy") for field in ("row", "row_offset", "length", "source", "record", "start")}
    piece = int(fields["length"].argmax())
    size = int(fields["length"][piece])
    first, second = size // 2, size - size // 2
    cut = {field: np.insert(values, piece + 1, values[piece]) for field, values in fields.items()}
    cut["length"][[piece, piece + 1]] = first, second
    cut["row_offset"][piece + 1] += first
    cut["start"][piece + 1] += first
    corruption.documents(published, **{field: lambda _, field=field: cut[field] for field in cut})
    positions = corruption.packed(published, "position_ids")
    place = int(fields["row_offset"][piece]) + first
    positions[int(fields["row"][piece]), place : place + second] = np.arange(second)
    positions.flush()  # type: ignore[attr-defined]


def document_as_padding(published: Published) -> None:
    """The last document of a row is padding instead, and the manifest counts it as left out."""
    folder = published.directory / "sft_packed.documents"
    fields = {field: np.load(folder / f"{field}.npy") for field in ("row", "row_offset", "length", "source", "record", "start")}
    row = fields["row"]
    piece = next(at for at in range(1, len(row)) if row[at] == row[at - 1] and (at + 1 == len(row) or row[at + 1] != row[at]))
    here = int(row[piece]), slice(int(fields["row_offset"][piece]), int(fields["row_offset"][piece] + fields["length"][piece]))
    trained = int((corruption.packed(published, "loss_mask")[here] != 0).sum())
    for key, value in (("sequence", PAD), ("loss_mask", 0), ("position_ids", 0)):
        table = corruption.packed(published, key)
        table[here] = value
        table.flush()  # type: ignore[attr-defined]
    corruption.documents(published, **{field: lambda values: np.delete(values, piece) for field in fields})
    length = int(fields["length"][piece])
    by = {"tokens": -length, "trained_tokens": -trained, "tokens_left_out": length}
    corruption.counts(published, **{key: lambda value, step=step: value + step for key, step in by.items()})


SPOILED = [
    Mutation("said to be aligned", "sft_packed", "mixture", said_to_be_aligned),
    Mutation("token replaced", "sft_packed", "mask_alignment", on_packed("sequence", assign(0, 7, 300))),
    Mutation("tokens swapped", "sft_packed", "mask_alignment", on_packed("sequence", swap_two)),
    *(
        Mutation(name, asset, "mixture", on_blend(column, change))
        for asset in ("pretrain_blend", "sft_blend")
        for name, column, change in (
            ("an item used twice", "item", lambda items: np.where(np.arange(len(items)) < 40, items[0], items)),
            ("a domain that does not exist", "domain", at(3, 99)),
            ("an item that does not exist", "item", at(3, 1 << 20)),
            ("domains one after another", "domain", np.sort),
            ("two items exchanged", "item", lambda items: np.concatenate([items[1::-1], items[2:]])),
        )
    ),
    Mutation("rows swapped", "sft_packed", "mask_alignment", on_packed("sequence", swap_rows)),
    Mutation("mask shifted", "sft_packed", "mask_alignment", on_packed("loss_mask", roll_row)),
    Mutation("mask all ones", "sft_packed", "mask_alignment", on_packed("loss_mask", assign(0, slice(None), 1))),
    Mutation("border moved", "sft_packed", "mask_alignment", border_moved),
    Mutation("another record", "sft_packed", "mask_alignment", on_documents(record=at(3, 1))),
    Mutation("another domain", "sft_packed", "mask_alignment", on_documents(source=lambda v: (v + 1) % 4)),
    Mutation("a domain that does not exist", "sft_packed", "mask_alignment", on_documents(source=at(0, 99))),
    Mutation("another start", "sft_packed", "mask_alignment", on_documents(start=at(0, 1))),
    Mutation("a start before the record", "sft_packed", "mask_alignment", alias_of_the_record_before),
    Mutation("record packed twice", "sft_packed", "mixture", packed_twice),
    Mutation("rows exchanged", "sft_packed", "mixture", rows_exchanged),
    *(
        Mutation(f"{key} as {dtype}", asset, "row_integrity", of_type(stream, key, dtype))
        for asset, stream, key, dtype in (
            ("sft_packed", "sft_packed", "sequence", "int64"),
            ("sft_packed", "sft_packed", "loss_mask", "float32"),
            ("sft_tokens", "train", "sequence", "int64"),
            ("sft_tokens", "dev", "loss_mask", "float32"),
            ("pretrain_tokens", "docs_train", "sequence", "uint32"),
            ("preference_tokens", "chosen", "sequence", "uint16"),
            ("rl_groups_by_domain", "responses", "sequence", "int64"),
        )
    ),
    *(
        Mutation("an empty shard", asset, "row_integrity", empty_shard(stream))
        for asset, stream in (("sft_packed", "sft_packed"), ("sft_tokens", "train"), ("rl_groups", "prompts"))
    ),
    Mutation("id outside", "sft_packed", "row_integrity", on_packed("sequence", assign(0, 7, 1 << 20))),
    Mutation("negative id", "sft_packed", "row_integrity", on_packed("sequence", assign(0, 7, -100))),
    Mutation("padding trained", "sft_packed", "row_integrity", on_packed("loss_mask", assign(-1, "padding", 1))),
    Mutation("padding is no padding", "sft_packed", "row_integrity", on_packed("sequence", assign(-1, "padding", EOS))),
    Mutation("row untrained", "sft_packed", "row_integrity", on_packed("loss_mask", assign(2, slice(None), 0))),
    Mutation("negative weight", "sft_packed", "row_integrity", on_packed("loss_mask", assign(2, 9, -1))),
    Mutation("gap", "sft_packed", "row_integrity", on_documents(row_offset=at(1, 1))),
    Mutation("overlap", "sft_packed", "row_integrity", on_documents(length=at(0, 1))),
    Mutation("overflow", "sft_packed", "row_integrity", on_documents(length=at(-1, 1 << 20))),
    Mutation("empty piece", "sft_packed", "row_integrity", on_documents(length=lambda v: v * 0)),
    Mutation("pieces out of order", "sft_packed", "row_integrity", pieces_swapped),
    Mutation("a row without a piece", "sft_packed", "row_integrity", on_documents(row=lambda v: np.minimum(v, v.max() - 1))),
    Mutation("position ids run on", "sft_packed", "row_integrity", on_positions(lambda row: np.arange(len(row)))),
    Mutation("position ids all zero", "sft_packed", "row_integrity", on_positions(np.zeros_like)),
    Mutation("position ids from 1", "sft_packed", "row_integrity", on_positions(lambda row: row + 1)),
    Mutation("a border inside a document", "sft_packed", "row_integrity", with_false_border),
    Mutation("a document replaced by padding", "sft_packed", "mixture", document_as_padding),
    Mutation("another record", "sft_packed", "mixture", on_documents(record=at(3, 1))),
    Mutation("a piece cut short", "sft_packed", "mixture", on_documents(length=at(-1, -1))),
    *(
        Mutation(f"{key} wrong", "sft_packed", "mixture", one_more(key))
        for key in ("tokens_left_out", "tokens_in_untrained_rows", "dev_tokens_left_out")
    ),
    Mutation("last row lost", "sft_packed", "accounting", last_row_lost),
    *(
        Mutation(f"{key} wrong", "sft_packed", "accounting", one_more(key))
        for key in ("rows", "tokens", "trained_tokens", "tokens_left_out", "dev_rows", "dev_tokens_left_out")
    ),
    Mutation("a piece cut short", "sft_packed", "accounting", on_documents(length=at(-1, -1))),
]
