"""Readers of indexed and raw binary exports, written from the formats' descriptions.

`prep_assets.stores.open` reads Megatron's and AstrAI's files, NumPy the others.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.source import Pairs, Source
from prep_assets.pipelines.exporting.rows import Options, Readable, Tokens, cut, labelled
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.segmented import Segmented
from prep_assets.stores.tokens import TokenStore


def megatron(folder: Path, source: Source, options: Options) -> Readable:
    store = open_store(folder, "megatron")

    def row(number: int) -> tuple[Tokens, ...]:
        if "sequence" in store.keys:
            return (Tokens(np.asarray(store.fetch_record(number, "sequence"), np.int64)),)
        found = store.fetch_record(number, store.keys)
        if isinstance(source, Pairs):
            return tuple(labelled(found[f"{side}_input_ids"], found[f"{side}_labels"]) for side in ("chosen", "rejected"))
        document = found["attention_mask"] if options["neat"] and isinstance(source, PackedStore) else None
        starts = None if document is None else np.flatnonzero(np.diff(document, prepend=0) > 0)
        return (labelled(found["input_ids"], found["labels"], starts),)

    return Readable(store.num_records, row)


def astrai(folder: Path, source: Source, options: Options) -> Readable:
    store = open_store(folder, "bin")
    if isinstance(source, Pairs):

        def pair(number: int) -> tuple[Tokens, ...]:
            found = store.fetch_record(number, store.keys)
            return tuple(Tokens(found[side].astype(np.int64), found[f"{side}_mask"] != 0) for side in ("chosen", "rejected"))

        return Readable(store.num_records, pair)
    if isinstance(source, GroupStore):

        def group(number: int) -> tuple[Tokens, ...]:
            found = store.fetch_record(number, ("prompts", "responses", "masks", "rewards"))
            responses = [Tokens(ids.astype(np.int64), mask != 0) for ids, mask in zip(found["responses"], found["masks"], strict=True)]
            return (Tokens(found["prompts"].astype(np.int64)), *responses, Tokens(found["rewards"]))

        return Readable(store.num_records, group)
    assert isinstance(source, PackedStore | TokenStore)
    # one token more than the rows of a packed table: a window must have a next token
    expected = len(source) * source.row_len + 1 if isinstance(source, PackedStore) else source.tokens
    if len(store) != expected:
        raise StoreError(f"{len(store):,} tokens, {expected:,} are expected")
    arrays = store.data.arrays
    return Readable(len(source), cut(arrays["sequence"], arrays.get("loss_mask"), source))


def olmo(folder: Path, source: Source, options: Options) -> Readable:
    size = options["vocab_size"]
    kind = "<u4" if size is None else next(f"<u{width}" for width in (1, 2, 4, 8) if size <= 256**width)
    parts = []
    for path in sorted(folder.glob("token_ids_part_*.npy")):
        ids, mask = np.memmap(path, kind, "r"), path.with_name(path.name.replace("token_ids", "labels_mask"))
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
            borders = np.array([line.split(",") for line in lines], np.int64)
        parts.append((ids, np.memmap(mask, np.uint8, "r") if mask.exists() else None, borders))
    ends = np.cumsum([len(borders) for _, _, borders in parts])

    def row(number: int) -> tuple[Tokens]:
        part = int(np.searchsorted(ends, number, "right"))
        ids, mask, borders = parts[part]
        start, end = borders[number - (int(ends[part - 1]) if part else 0)]
        return (Tokens(ids[start:end].astype(np.int64), None if mask is None else mask[start:end] != 0),)

    return Readable(int(ends[-1]), row, documents=True)


def nanotron(folder: Path, source: Source, options: Options) -> Readable:
    path = folder / f"{options['name']}.ds"
    width = int(path.with_name(f"{path.name}.metadata").read_text("utf-8").split("\n")[0].rpartition("|")[2])
    ids, ends = np.memmap(path, f"<u{width}", "r"), np.fromfile(path.with_name(f"{path.name}.index"), "<u8").astype(np.int64)
    loss = path.with_name(f"{path.name}.loss")
    mask = np.memmap(loss, np.uint8, "r") if loss.exists() else None
    if len(ids) != ends[-1] or (mask is not None and len(mask) != len(ids)):
        raise StoreError(f"{path.name}: {len(ids):,} tokens, its index ends at {ends[-1]:,}")

    def row(number: int) -> tuple[Tokens]:
        part = slice(int(ends[number - 1]) if number else 0, int(ends[number]))
        return (Tokens(ids[part].astype(np.int64), None if mask is None else mask[part] != 0),)

    return Readable(len(ends), row, documents=True)


def litdata(folder: Path, source: Source, options: Options) -> Readable:
    assert isinstance(source, TokenStore)
    chunks = []
    for entry in json.loads((folder / "index.json").read_text("utf-8"))["chunks"]:
        items, first, end = np.fromfile(folder / entry["filename"], "<u4", 3).tolist()
        if (items, first, end - first) != (1, 12, 4 * entry["dim"]):
            raise StoreError(f"{entry['filename']}: {items} items from byte {first} to {end}, the index says {entry['dim']:,} tokens")
        chunks.append(np.memmap(folder / entry["filename"], "<i4", "r", offset=12, shape=(entry["dim"],)))
    tokens = Segmented(chunks)
    whole = source.tokens // options["block_size"] * options["block_size"]
    if len(tokens) != whole:
        raise StoreError(f"{len(tokens):,} tokens, {whole:,} are expected: the stream without the rest after its last whole block")
    # that rest is not in the files; it is taken from the store, so that the last records can be compared whole
    return Readable(len(source), cut(Segmented([*chunks, np.asarray(source.arrays["tokens"][whole : source.tokens])]), None, source))


def mds(folder: Path, source: Source, options: Options) -> Readable:
    shards = json.loads((folder / "index.json").read_text("utf-8"))["shards"]
    ends = np.cumsum([shard["samples"] for shard in shards])

    def row(number: int) -> tuple[Tokens]:
        which = int(np.searchsorted(ends, number, "right"))
        shard = shards[which]
        data = np.memmap(folder / shard["raw_data"]["basename"], np.uint8, "r")
        at = int(data[4 * (1 + number - (int(ends[which - 1]) if which else 0)) :][:4].view("<u4")[0])
        names = shard["column_names"]
        sizes = data[at : at + 4 * len(names)].view("<u4").tolist()
        found, at = {}, at + 4 * len(names)
        for name, size in zip(names, sizes, strict=True):
            # a byte with the number of axes and the type of the shape, the shape of one axis, the values
            header = 1 + (1, 2, 4)[int(data[at]) & 3]
            found[name] = np.frombuffer(data[at + header : at + size].tobytes(), "<i4").astype(np.int64)
            at += size
        if "tokens" in found:
            return (Tokens(found["tokens"]),)
        return (labelled(found["input_ids"], found["labels"], np.flatnonzero(found["position_ids"] == 0)),)

    return Readable(int(ends[-1]), row)
