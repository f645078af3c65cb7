"""One row of any store as people look at it: a line, a record of tokens, a row of a packed table, a group, an item of a blend."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, require_known, require_number
from prep_assets.extensions.blends.store import BLEND
from prep_assets.extensions.explain.rows import Blend, Row, read, record_names
from prep_assets.extensions.explain.rows import title as title_of
from prep_assets.extensions.explain.streams import stream_of
from prep_assets.extensions.explain.verdicts import first_row
from prep_assets.graph.graph import EVERY, one_partition, streams, tables_of
from prep_assets.pipeline.sources import read_sources
from prep_assets.pipeline.verdicts import LEAKS, QUALITY, VERDICTS, read_verdicts
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import Preview, token_texts, visible

if TYPE_CHECKING:
    from rich.console import Console


def preview(
    workspace: Workspace, published: Published, row: int, *, stream: str | None = None, limit: int = 4096
) -> Preview | dict[str, Any]:
    """One row: a `Preview` of tokens, or the JSON object of a line, of source files, or of a verdict. Sequences are cut after `limit` tokens.

    Raises:
        ConfigError: there is no such row or stream, or the store has no rows to show.
    """
    name, recipe = published.manifest.asset, published.manifest.recipe
    if name not in EVERY:
        hint = f"; look at the same ones in {recipe['from']}: prep-assets inspect {recipe['from']}"
        raise ConfigError(f"{name} has rows in a trainer's format{hint}")
    asset = EVERY[name]
    if asset.stage == "raw":
        return dict(read_sources(published))
    if asset.stage in (QUALITY, LEAKS):
        verdicts = read_verdicts(published)
        require_number("row", row, name, verdicts.num_rows)
        return dict(verdicts.slice(row, 1).to_pylist()[0])
    if asset.stage == BLEND:
        blend = Blend(workspace, published)
        require_known(f"{name} has no stream", stream or BLENDED, (BLENDED,))
        require_number("row", row, name, len(blend.store))
        found = blend.read(row, limit)
        return _tokens(workspace, published, blend.title(name, found), found)
    tables = {table.name: table for table in tables_of(published)}
    if not tables:
        raise ConfigError(f"{name} has no rows")
    stream = stream_of(published, None) if stream is None else stream
    require_known(f"{name} has no stream", stream, tables)
    table = tables[stream]
    require_number("row", row, name, len(table))
    [found] = read(table, [row], limit)
    if found.line is not None:
        return found.line
    return _tokens(workspace, published, title_of(name, table, found), found, named=table.pieces is None)


BLENDED = "item"
"""The one stream of a blend."""


def _tokens(workspace: Workspace, published: Published, title: str, row: Row, *, named: bool = False) -> Preview:
    """A row of tokens; `named`: its title says which record it is of."""
    asset, name = EVERY[published.manifest.asset], record_names(workspace, published)
    texts = token_texts(workspace.vocabulary(workspace.family(FAMILIES[asset.family])), row.ids)
    starts, positions = [piece.start for piece in row.pieces], np.arange(len(row.ids))
    for piece in row.pieces:
        positions[piece.start :] = np.arange(piece.position, piece.position + len(row.ids) - piece.start)
    names = [piece.note or name(piece.origin) for piece in row.pieces]
    return Preview(
        f"{title}, from {names[0]}" if named else title,
        texts,
        tuple(row.weights or ()),
        tuple(positions.tolist()),
        tuple(zip(starts, names, strict=True)),
        tuple(row.ids),
    )


# The same as a notebook shows it.

_STYLES = {1: "background:#2e7d3244;border-bottom:2px solid #2e7d32", 0: "opacity:.6", -1: "opacity:.6;text-decoration:line-through"}
"""Of tokens that are trained, not trained, not attended."""
_FRAME = '<p><b>{}</b></p><div style="white-space:pre-wrap;font-family:monospace">{}</div>'


class ShownRow(Struct, frozen=True):
    """A row of a store; notebooks show it with trained tokens in green.

    Attributes:
        row: a `Preview` of tokens, or the JSON object of a line.
        published, number, stream: the store, the number of the row, and the stream that was asked for.
    """

    row: Preview | dict[str, Any]
    published: Published
    number: int
    stream: str | None = None

    def _repr_html_(self) -> str:
        if isinstance(self.row, dict):
            rows = "".join(f"<tr><th>{escape(key)}</th><td>{escape(visible(str(value)))}</td></tr>" for key, value in self.row.items())
            return f"<table>{rows}</table>"
        weights, begins, shown = self.row.weights or (0.0,) * len(self.row.tokens), dict(self.row.origins), list[str]()
        for at, (token, weight) in enumerate(zip(self.row.tokens, weights, strict=True)):
            if at in begins:
                shown.append(f'<span title="{escape(visible(begins[at]))}" style="border-left:3px solid #888"></span>')
            text = escape(visible(token))
            shown.append(f'<span title="{at}: weight {weight:g}" style="{_STYLES[(weight > 0) - (weight < 0)]}">{text}</span>')
        return _FRAME.format(escape(visible(self.row.title)), "".join(shown))

    def show(self, console: Console, *, ids: bool = False, most: int | None = None) -> None:
        """Print it on a terminal: up to `most` tokens, with `ids` one a line."""
        from prep_assets.cli.terminal import err
        from prep_assets.extensions.explain.shown import show_files, show_tokens

        names = streams(self.published)
        if isinstance(self.row, Preview):
            show_tokens(console, self.row, most, self.published.manifest.counts.get("unserved_prompts", 0), ids=ids)
        elif "files" in self.row and not names:
            show_files(console, self.published, self.row)
        else:
            place = f"{self.stream or stream_of(self.published, None)}.jsonl, line" if names else f"{VERDICTS}, row"
            err().print(f"{place} {self.number:,} counted from 0", style="dim")
            console.print_json(data=self.row, ensure_ascii=False)


def row(
    workspace: Workspace,
    asset: str | Published,
    number: int | None = None,
    *,
    partition: str | None = None,
    stream: str | None = None,
    limit: int = 4096,
) -> ShownRow:
    """A row of a published store, with at most `limit` tokens of a sequence.

    Args:
        asset: an asset's name, or one version of its store.
        number: of the row; `None`: the first, or of verdicts the first that found anything.

    Raises:
        ConfigError: no such asset, row or stream.
        StoreError: there is no store; the message has the command that builds it.
    """
    if isinstance(asset, str):
        definition, key = one_partition(workspace, asset, partition)
        asset = workspace.built(definition.name, key)
    number = first_row(asset) if number is None else number
    return ShownRow(preview(workspace, asset, number, stream=stream, limit=limit), asset, number, stream)
