"""Rows of stores as people look at them: lines, records of tokens, rows of packed tables, groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from prep_assets.errors import ConfigError
from prep_assets.pipeline.asset import FromRows, Store
from prep_assets.pipeline.groups import splits
from prep_assets.pipeline.sources import read_sources
from prep_assets.stores.groups import open_groups
from prep_assets.stores.lines import open_lines
from prep_assets.stores.packed import open_packed
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.text.vocabulary import Vocabulary


class Preview(Struct, frozen=True):
    """A row of tokens.

    Attributes:
        title: what and where it is.
        tokens: text of each token; parts of one character that lie in several tokens are shown as the bytes' hex, e.g. ``⟨f0⟩``.
        weights: loss weight of each token, below 0 where it is not attended; empty where the store has no mask.
        positions: position of each token in its document.
        origins: (first token, record id) of each document in the row.
        ids: id of each token, where the row is not a record of one stream.
    """

    title: str
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    positions: tuple[int, ...]
    origins: tuple[tuple[int, str], ...]
    ids: tuple[int, ...] = ()


def token_texts(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    """The text of each token for display; ``⟨no token 7⟩`` for ids outside the vocabulary, as in a damaged store."""
    return tuple(_text(vocabulary, token) if 0 <= token < vocabulary.size else f"⟨no token {token}⟩" for token in ids)


def _text(vocabulary: Vocabulary, token: int) -> str:
    if vocabulary.token_bytes is None:
        return vocabulary.decode([token])
    piece = vocabulary.token_bytes[token]
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02x}⟩" if byte >= 0x80 else chr(byte) for byte in piece)


def record_name(store: Store, domain: str, file: int, row: int) -> str:
    """``<domain>/<file>:<row>`` of a record that a store numbers by file."""
    published = store.workspace.published(store.raw, domain)
    if published is None:
        return f"{domain}/file {file}:{row}"
    sources = read_sources(published)
    names = [entry["name"] for which in ("files", "test_files") for entry in sources[which]]
    return f"{domain}/{names[file]}:{row}" if file < len(names) else f"{domain}/file {file}:{row}"


def check_row(store: Store, row: int, count: int) -> None:
    """Raises:
    ConfigError: there is no such row.
    """
    if not 0 <= row < count:
        raise ConfigError(f"row {row:,} of {store.asset.name}: there are {count:,}, numbered from 0")


def chosen_stream(store: Store, stream: str | None, names: Sequence[str]) -> str:
    """The stream that is asked for, else the first.

    Raises:
        ConfigError: the store has no such stream.
    """
    if stream is not None and stream not in names:
        raise ConfigError(f"{store.published.where} has no stream {stream!r}; it has {', '.join(names)}")
    return stream or names[0]


def line_preview(store: Store, row: int, stream: str | None, limit: int) -> dict[str, Any]:
    """Line `row` of the file `stream`, else of the first that the store has."""
    listed = (name for name in store.asset.streams if (store.directory / f"{name}.jsonl").is_file())
    lines = open_lines(store.directory, stream or next(listed))
    check_row(store, row, len(lines))
    return next(content for number, content in enumerate(lines) if number == row)


def group_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Group `row` of ``train`` or ``test``, of each sequence at most `limit` tokens."""
    folders = splits(store.directory)
    split = chosen_stream(store, stream, list(folders))
    groups = open_groups(folders[split])
    check_row(store, row, len(groups))
    origin = record_name(store, groups.sources[groups.source[row]], int(groups.prompts.file[row]), int(groups.prompts.row[row]))
    prompt = groups.prompts.record(row, "tokens")
    ids, weights, positions, origins = [prompt[:limit]], [np.zeros(len(prompt[:limit]))], [np.arange(len(prompt[:limit]))], [(0, origin)]
    responses, rewards = groups.responses_of(row), groups.rewards.record(row, "rewards")
    for number, (response, reward) in enumerate(zip(responses, rewards.tolist(), strict=True)):
        origins.append((sum(map(len, ids)), f"response {number}, reward {reward:g}"))
        ids.append(groups.responses.record(response, "tokens")[:limit])
        weights.append(groups.responses.record(response, "loss_mask")[:limit].astype(np.float64))
        positions.append(len(prompt) + np.arange(len(ids[-1])))
    flat = np.concatenate(ids).tolist()
    title = f"{store.asset.name} {split} group {row:,} of {len(groups):,}: a prompt of {len(prompt):,} tokens, {len(responses)} responses"
    texts = token_texts(store.vocabulary, flat)
    numbers = [np.concatenate(parts).tolist() for parts in (weights, positions)]
    return Preview(f"{title}, from {origin}", texts, tuple(numbers[0]), tuple(numbers[1]), tuple(origins), tuple(flat))


def record_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Record `row` of a token stream, at most `limit` tokens of it."""
    streams = store.streams()
    name = chosen_stream(store, stream, list(streams))
    tokens = streams[name]
    check_row(store, row, len(tokens))
    ids = tokens.record(row, "tokens")[:limit]
    weights = tokens.weights(row)[:limit].astype(float).tolist() if "loss_mask" in tokens.arrays else ()
    origin = f"line {int(tokens.row[row])}"
    if isinstance(store.asset.source, FromRows):
        origin = record_name(store, store.partition, int(tokens.file[row]), int(tokens.row[row])) + _answer(tokens, row)
    title = f"{store.asset.name} {name} record {row:,} of {len(tokens):,}: {len(tokens.record(row, 'tokens')):,} tokens, from {origin}"
    return Preview(title, token_texts(store.vocabulary, ids.tolist()), tuple(weights), tuple(range(len(ids))), ((0, origin),))


def packed_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Row `row` of a packed table, without its padding."""
    name = stream or next(iter(store.asset.streams))
    table = open_packed(store.directory, name)
    check_row(store, row, len(table))
    ids, weights = np.asarray(table.tokens[row]), table.weights(row)
    positions = np.zeros(table.row_len, np.int64)
    origins = []
    used = 0
    for piece in range(*table.pieces(row).indices(len(table.documents["row"]))):
        start, length = int(table.documents["row_offset"][piece]), int(table.documents["length"][piece])
        positions[start : start + length] = np.arange(length)
        domain = table.sources[int(table.documents["source"][piece])]
        origins.append((start, _origin(store, domain, int(table.documents["record"][piece]), name)))
        used = start + length
    title = f"{name} row {row:,} of {len(table):,}: {used:,} of {table.row_len:,} places used, {int((weights > 0).sum()):,} trained"
    texts = token_texts(store.vocabulary, ids[:used].tolist())
    return Preview(title, texts, tuple(weights[:used].astype(float).tolist()), tuple(positions[:used].tolist()), tuple(origins))


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
