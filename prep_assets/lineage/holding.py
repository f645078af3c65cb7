"""A row of a source → the rows of each store that hold it, by the indexes that stores keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from prep_assets.assets.graph import asset_named, lines_of, with_parts
from prep_assets.lineage.opened import Opened, is_export
from prep_assets.lineage.rows import Origin, Piece, Place, read_row, streams
from prep_assets.stores.packed import PackedStore


def pieces_of(opened: Opened, asset: str, partition: str, origin: Origin) -> Iterator[tuple[Place, Piece]]:
    """Each stretch of a store that comes from a row of a source, with the row of the store that it is in.

    Raises:
        StoreError: the store is missing or out of date.
    """
    for place in places_of(opened, asset, partition, origin):
        for piece in read_row(opened, place).pieces:
            if piece.origin == origin:
                yield place, piece


def places_of(opened: Opened, asset: str, partition: str, origin: Origin) -> list[Place]:
    """The rows of a store that hold a row of a source."""
    if is_export(asset):
        return _exported(opened, asset, partition, origin)
    if asset not in _ROWS:
        return []
    names = streams(opened.published(asset, partition))
    return [
        Place(asset, partition, stream, row) for stream in names for row in _ROWS[asset](opened, Place(asset, partition, stream, 0), origin)
    ]


def _records(opened: Opened, place: Place, origin: Origin) -> list[int]:
    store = opened.tokens(place.asset, place.partition, place.stream)
    if place.partition != origin.domain:
        return []
    return _numbers((store.file == origin.file) & (store.row == origin.row))


def _packed(opened: Opened, place: Place, origin: Origin) -> list[int]:
    table = opened.packed(place.stream)
    entries = packed_entries(opened, place.stream, origin)
    rows: list[int] = np.unique(np.asarray(table.documents["row"])[entries]).tolist()
    return rows


def packed_entries(opened: Opened, stream: str, origin: Origin) -> list[int]:
    """The pieces of a packed table that come from a row of a source: numbers of entries in `PackedStore.documents`."""
    table = opened.packed(stream)
    if origin.domain not in table.sources:
        return []
    split = "dev" if stream == "sft_dev_packed" else "train"
    records = _records(opened, Place("sft_tokens", origin.domain, split, 0), origin)
    source = np.asarray(table.documents["source"]) == table.sources.index(origin.domain)
    return _numbers(source & np.isin(table.documents["record"], records))


def _lines(opened: Opened, place: Place, origin: Origin) -> list[int]:
    lines = opened.lines(place.asset, place.partition, place.stream)
    if origin.domain not in lines.sources:
        return []
    index = lines.index
    source = lines.sources.index(origin.domain)
    return _numbers((index["source"] == source) & (index["file"] == origin.file) & (index["row"] == origin.row))


def _tokenized_lines(opened: Opened, place: Place, origin: Origin) -> list[int]:
    made_of = lines_of(place.asset, place.stream)
    if made_of is None or made_of[0] == "arithmetic_prompts":  # which no source has
        return []
    lines = _lines(opened, Place(made_of[0], place.partition, made_of[1], 0), origin)
    return _numbers(np.isin(opened.tokens(place.asset, place.partition, place.stream).row, lines))


def _groups(opened: Opened, place: Place, origin: Origin) -> list[int]:
    store = opened.groups(place.asset, place.partition, place.stream)
    if origin.domain not in store.sources:
        return []
    source = store.sources.index(origin.domain)
    return _numbers((store.source == source) & (store.prompts.file == origin.file) & (store.prompts.row == origin.row))


def _numbers(holds: Any) -> list[int]:
    found: list[int] = np.flatnonzero(holds).tolist()
    return found


def _exported(opened: Opened, asset: str, partition: str, origin: Origin) -> list[Place]:
    export = opened.export(asset, partition)
    if export.read.documents and isinstance(export.source, PackedStore):
        rows = packed_entries(opened, export.streams[0], origin)
    else:
        [above] = asset_named(asset, opened.workspace).upstream
        rows = [place.row for place in places_of(opened, above, partition, origin) if place.stream in export.streams]
    return [Place(asset, partition, "", row) for row in dict.fromkeys(rows)]


_ROWS: Mapping[str, Callable[[Opened, Place, Origin], list[int]]] = {
    "pretrain_tokens": _records,
    "sft_tokens": _records,
    "sft_packed": _packed,
    **dict.fromkeys(with_parts("preferences", "rl_prompts"), _lines),
    **dict.fromkeys(with_parts("preference_tokens", "rl_tokens"), _tokenized_lines),
    "contrastive": _lines,
    **dict.fromkeys(with_parts("rl_groups"), _groups),
}
