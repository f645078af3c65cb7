"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets.exports.readable import Options, Readable, Tokens, labelled
from prep_assets.exports.source import Pairs, Source
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import PackedStore


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
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
