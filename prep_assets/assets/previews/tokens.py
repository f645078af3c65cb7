"""Records of token streams and rows of packed tables, ready to be looked at."""

from __future__ import annotations

import numpy as np

from prep_assets.assets.previews.row import Preview, check_row, chosen_stream, record_name, token_texts
from prep_assets.assets.stage import FromRows, Store
from prep_assets.stores.packed import open_packed
from prep_assets.stores.tokens import TokenStore, open_tokens


def record_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Record `row` of a token stream, at most `limit` tokens of it."""
    streams = store.streams()
    name = chosen_stream(store, stream, list(streams))
    tokens = streams[name]
    check_row(store, row, len(tokens))
    ids = tokens.record(row, "tokens")[:limit]
    weights = tokens.record(row, "loss_mask")[:limit].astype(float).tolist() if "loss_mask" in tokens.arrays else ()
    where = f"line {int(tokens.row[row])}"
    if isinstance(store.asset.source, FromRows):
        where = record_name(store, store.partition, int(tokens.file[row]), int(tokens.row[row])) + _answer(tokens, row)
    title = f"{store.asset.name} {name} record {row:,} of {len(tokens):,}: {len(tokens.record(row, 'tokens')):,} tokens, from {where}"
    return Preview(title, token_texts(store.vocabulary, ids.tolist()), tuple(weights), tuple(range(len(ids))), ((0, where),))


def packed_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Row `row` of a packed table, without its padding."""
    name = stream or next(iter(store.asset.streams))
    table = open_packed(store.directory, name)
    check_row(store, row, len(table))
    ids, mask = np.asarray(table.tokens[row]), np.asarray(table.loss_mask[row])
    positions = np.zeros(table.row_len, np.int64)
    origins = []
    used = 0
    for piece in range(*table.pieces(row).indices(len(table.documents["row"]))):
        start, length = int(table.documents["row_offset"][piece]), int(table.documents["length"][piece])
        positions[start : start + length] = np.arange(length)
        domain = table.sources[int(table.documents["source"][piece])]
        origins.append((start, _origin(store, domain, int(table.documents["record"][piece]), name)))
        used = start + length
    title = f"{name} row {row:,} of {len(table):,}: {used:,} of {table.row_len:,} places used, {int((mask != 0).sum()):,} trained"
    texts = token_texts(store.vocabulary, ids[:used].tolist())
    return Preview(title, texts, tuple(mask[:used].astype(float).tolist()), tuple(positions[:used].tolist()), tuple(origins))


def _origin(store: Store, domain: str, record: int, table: str) -> str:
    published = store.workspace.published("sft_tokens", domain)
    if published is None:
        return f"{domain} record {record:,}"
    tokens = open_tokens(published.directory, "dev" if table == "sft_dev_packed" else "train")
    return record_name(store, domain, int(tokens.file[record]), int(tokens.row[record])) + _answer(tokens, record)


def _answer(tokens: TokenStore, record: int) -> str:
    """Which answer of its source row a record ends with, where that row became several."""
    number, count = tokens.part(record)
    return f", answer {number} of {count}" if count > 1 else ""
