"""`prep-assets inspect`: one row of a store, with what is trained in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from prep_assets.cli.console import counted, err, has_colour, near_url, number, out, size, table
from prep_assets.cli.find import AssetName, Partition, Stream, one_store, opened, reading
from prep_assets.cli.tokens import flowing, listed, visible
from prep_assets.errors import ConfigError, nearest

if TYPE_CHECKING:
    from prep_assets.assets.previews import Preview
    from prep_assets.assets.workspace import Workspace
    from prep_assets.stores.published import Published

LIMIT = 4096
"""Tokens of a record that are shown; a pretraining document may have millions."""
MOST_COUNTED = 10_000_000
"""Tokens of the largest store whose documents are counted by engine, which takes about half a second."""


def inspect(
    asset: AssetName,
    partition: Partition = None,
    row: Annotated[int, typer.Option("--row", "-r", help="Row, record or line, counted from 0.")] = 0,
    stream: Stream = None,
    ids: Annotated[bool, typer.Option("--ids", help="One token a line, with its id, position and loss weight.")] = False,
) -> None:
    """Show a row: trained tokens bold and green (in ⟦ ⟧ where there is no colour), masked ones dim, │ where a document begins."""
    workspace = opened()
    published = one_store(workspace, asset, partition)
    show_row(out(), workspace, published, row, stream=stream, ids=ids)


def show_row(
    console: Console,
    workspace: Workspace,
    published: Published,
    row: int,
    *,
    stream: str | None = None,
    ids: bool = False,
    most: int | None = None,
) -> None:
    """Print a row of a store; of a row of tokens, the first `most`.

    Raises:
        ConfigError: no such row or stream.
        StoreError: the payload cannot be read.
    """
    from prep_assets.assets.by_engine import by_engine
    from prep_assets.assets.graph import store_of
    from prep_assets.assets.previews import Preview
    from prep_assets.lineage.opened import streams

    with reading(published):
        names = streams(published)
        if stream is not None and stream not in names:
            hint = nearest(stream, names) or "."
            raise ConfigError(f"{published.manifest.asset} has no stream {stream!r}{hint} There are: {', '.join(names) or 'none'}")
        chosen = stream or (names[0] if names else None)
        store = store_of(workspace, published)
        shown = store.preview(row, stream=chosen, limit=LIMIT)
        engines = by_engine(store, MOST_COUNTED) if isinstance(shown, Preview) else {}
        numbers = _ids(published, chosen, row, shown) if ids and isinstance(shown, Preview) and chosen else []
    if isinstance(shown, Preview):
        _show_tokens(console, shown, numbers, most, engines)
    elif "files" in shown and not names:
        _show_files(console, published, shown)
    else:
        err().print(f"{chosen}.jsonl, line {row:,} counted from 0", style="dim")
        console.print_json(data=shown, ensure_ascii=False)


def _ids(published: Published, stream: str, row: int, shown: Preview) -> list[int]:
    from prep_assets.lineage.opened import open_stream
    from prep_assets.stores.packed import PackedStore
    from prep_assets.stores.tokens import TokenStore

    if shown.ids:
        return list(shown.ids)
    store = open_stream(published, stream)
    assert isinstance(store, PackedStore | TokenStore)
    found = store.tokens[row] if isinstance(store, PackedStore) else store.record(row, "tokens")
    return [int(token) for token in found[: len(shown.tokens)]]


def _show_tokens(console: Console, shown: Preview, ids: list[int], most: int | None, engines: Mapping[str, int]) -> None:
    tokens, weights = shown.tokens[:most], shown.weights[:most]
    borders = {at: name for at, name in shown.origins if at < len(tokens)}
    colour = has_colour(console)
    console.print(visible(shown.title), style="bold")
    console.print()
    with_ids = listed(tokens, weights, shown.positions, ids, borders, colour=colour) if ids else None
    text = with_ids or flowing(tokens, weights, borders, colour=colour)
    console.print(text, end="" if text.plain.endswith("\n") else "\n")
    console.print()
    if len(tokens) < len(shown.tokens):
        console.print(f"… and {len(shown.tokens) - len(tokens):,} tokens more", style="dim")
    console.print(_footer(shown, engines, colour), style="dim")


def _footer(shown: Preview, engines: Mapping[str, int], colour: bool) -> str:
    parts = [counted(len(shown.tokens), "position")]
    if shown.weights:
        trained, unattended = (sum(weight * sign > 0 for weight in shown.weights) for sign in (1, -1))
        how = "bold and green" if colour else "in ⟦ ⟧"
        parts.append(f"{trained:,} trained ({trained / max(1, len(shown.tokens)):.1%}, {how})")
        parts += [f"{unattended:,} not attended ({'struck through' if colour else 'in ⟪ ⟫'})"] if unattended else []
    else:
        parts.append("no loss mask")
    parts.append(counted(len(shown.origins) - 1, "response") if shown.ids else counted(len(shown.origins), "document"))
    parts += [f"the store's documents: {', '.join(f'{count:,} by {name}' for name, count in engines.items())}"] if engines else []
    return "── " + " · ".join(parts)


def _show_files(console: Console, published: Published, sources: dict[str, Any]) -> None:
    manifest = published.manifest
    rows = [
        (visible(entry["name"]), used, number(entry["rows"]), size(entry["size"]), entry["sha256"][:16])
        for which, used in (("files", "training"), ("test_files", "testing"))
        for entry in sources[which]
    ]
    headings = ("file", "used for", "records", "size", "sha256")
    console.print(table(*headings, rows=rows, numbers=("records", "size"), title=manifest.label))
    counts = counted(manifest.counts["files"], "file"), counted(manifest.counts["read"], "record")
    console.print(f"── {' · '.join(counts)} · {near_url(published.where)}", style="dim")
