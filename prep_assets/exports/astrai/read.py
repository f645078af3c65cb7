"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Options, Readable, Tokens, cut
from prep_assets.exports.source import Pairs, Source
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
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
