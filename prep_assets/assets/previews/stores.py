"""One row of a store, ready to be looked at: its tokens as text, which are trained, where documents begin."""

from __future__ import annotations

from typing import Any

import numpy as np

from prep_assets.assets.previews.groups import group_preview
from prep_assets.assets.previews.row import Preview, record_name, token_texts
from prep_assets.assets.raw import read_sources
from prep_assets.assets.rl_groups import GROUPS, splits
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Sft
from prep_assets.errors import ConfigError
from prep_assets.stores.lines import open_lines
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore, open_tokens


def streams_of(asset: str, partition: str) -> tuple[str, ...]:
    """The token streams that an asset's store may have."""
    return {
        "pretrain_tokens": (f"{partition}_train", f"{partition}_dev"),
        "sft_tokens": ("train", "dev"),
        "preference_tokens": ("chosen", "rejected"),
        "rl_tokens": ("prompts", "arithmetic"),
    }.get(asset, ())


def preview(
    workspace: Workspace, published: Published, row: int, *, stream: str | None = None, limit: int = 4096
) -> Preview | dict[str, Any]:
    """A row of a published store: a `Preview` of token stores and packed tables, the JSON object of a JSONL store.

    Raises:
        ConfigError: there is no such row or stream, or the store has no rows to show.
    """
    asset, partition = published.manifest.asset, published.manifest.partition
    if published.manifest.recipe.get("stage") == "export":
        source = published.manifest.recipe["from"]
        raise ConfigError(f"{asset} has rows in a trainer's format; look at the same ones in {source}: prep-assets inspect {source}")
    if asset == GROUPS:
        names = list(splits(published))
        if stream is not None and stream not in names:
            raise ConfigError(f"{published.directory} has no groups {stream!r}; it has {', '.join(names)}")
        return group_preview(workspace, published, row, stream or names[0], limit)
    if asset == "sft_packed":
        return _packed_row(workspace, published, row, stream or "sft_packed")
    names = [name for name in streams_of(asset, partition) if (published.directory / f"{name}.index").is_dir()]
    if names:
        if stream is not None and stream not in names:
            raise ConfigError(f"{published.directory} has no stream {stream!r}; it has {', '.join(names)}")
        return _record(workspace, published, row, stream or names[0], limit)
    # held-out files come last
    lines = sorted((path.stem for path in published.directory.glob("*.jsonl")), key=lambda name: (name.endswith("_test"), name))
    if lines:
        return _line(published, row, stream or lines[0])
    sources: dict[str, Any] = dict(read_sources(published))
    return sources


def _packed_row(workspace: Workspace, published: Published, row: int, name: str) -> Preview:
    store = open_packed(published.directory, name)
    _in_range(row, len(store), published)
    ids, mask = np.asarray(store.tokens[row]), np.asarray(store.loss_mask[row])
    positions = np.zeros(store.row_len, np.int64)
    origins = []
    used = 0
    for piece in range(*store.pieces(row).indices(len(store.documents["row"]))):
        start, length = int(store.documents["row_offset"][piece]), int(store.documents["length"][piece])
        positions[start : start + length] = np.arange(length)
        domain = store.sources[int(store.documents["source"][piece])]
        origins.append((start, _origin(workspace, domain, int(store.documents["record"][piece]), name)))
        used = start + length
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    title = f"{name} row {row:,} of {len(store):,}: {used:,} of {store.row_len:,} places used, {int((mask != 0).sum()):,} trained"
    texts = token_texts(vocabulary, ids[:used].tolist())
    return Preview(title, texts, tuple(mask[:used].astype(float).tolist()), tuple(positions[:used].tolist()), tuple(origins))


def _origin(workspace: Workspace, domain: str, record: int, table: str) -> str:
    tokens = workspace.published("sft_tokens", domain)
    if tokens is None:
        return f"{domain} record {record:,}"
    store = open_tokens(tokens.directory, "dev" if table == "sft_dev_packed" else "train")
    return record_name(workspace, "sft_raw", domain, int(store.file[record]), int(store.row[record])) + _answer(store, record)


def _record(workspace: Workspace, published: Published, row: int, stream: str, limit: int) -> Preview:
    asset, partition = published.manifest.asset, published.manifest.partition
    store = open_tokens(published.directory, stream)
    _in_range(row, len(store), published)
    family = asset.partition("_")[0]
    ids = store.record(row, "tokens")[:limit]
    weights = store.record(row, "loss_mask")[:limit].astype(float).tolist() if "loss_mask" in store.arrays else ()
    vocabulary = workspace.vocabulary(workspace.family(FAMILIES[family]))
    where = f"line {int(store.row[row])}"
    if partition:
        where = record_name(workspace, f"{family}_raw", partition, int(store.file[row]), int(store.row[row])) + _answer(store, row)
    title = f"{asset} {stream} record {row:,} of {len(store):,}: {len(store.record(row, 'tokens')):,} tokens, from {where}"
    return Preview(title, token_texts(vocabulary, ids.tolist()), tuple(weights), tuple(range(len(ids))), ((0, where),))


def _answer(store: TokenStore, record: int) -> str:
    """Which answer of its source row a record ends with, where that row became several."""
    number, count = store.part(record)
    return f", answer {number} of {count}" if count > 1 else ""


def _line(published: Published, row: int, name: str) -> dict[str, Any]:
    lines = open_lines(published.directory, name)
    _in_range(row, len(lines), published)
    return next(content for number, content in enumerate(lines) if number == row)


def _in_range(row: int, count: int, published: Published) -> None:
    if not 0 <= row < count:
        raise ConfigError(f"row {row:,} of {published.manifest.asset}: there are {count:,}, numbered from 0")
