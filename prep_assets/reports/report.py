"""A report: the page of an asset's stores, gathered from their files, their manifests and, for the second derivation, their sources."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
from markupsafe import Markup

from prep_assets import __version__
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import PrepAssetsError
from prep_assets.lineage.opened import family_of
from prep_assets.reports import charts
from prep_assets.reports.address import TRACES
from prep_assets.reports.chunks import Filter, NamedRow, index, matching, row_chunks, vocabulary_of
from prep_assets.reports.facts import accounting, is_export, lineage, made_from, measure, refusals, shares, total_counts
from prep_assets.reports.opened import Names, streams
from prep_assets.reports.page import Page, render
from prep_assets.reports.proof import proofs
from prep_assets.reports.rows import Row, Stream, sampled
from prep_assets.reports.visible import one_line, visible
from prep_assets.stores.published import Published
from prep_assets.tokenization.vocabulary import Vocabulary

ROWS = 1000
"""Rows on a page by default."""
TOKENS = 4_000_000
"""Tokens that a page holds at most; of longer rows it holds fewer."""
REFUSED = 1000
"""Refused records that a page holds."""


@dataclass(frozen=True)
class _Opened:
    """A store, its streams, and the names of its records."""

    published: Published
    streams: list[Stream]
    names: Names


def report(
    workspace: Workspace, stores: Sequence[Published], *, rows: int = ROWS, served: Filter | None = None, candidate: bool = False
) -> str:
    """The page of one asset's stores, as HTML.

    Args:
        stores: at least one, all of one asset.
        rows: how many rows it holds at most.
        served: a server answers what the page asks for, and this is what it was asked for; rows are of the whole store then.
        candidate: the stores are not published, so nothing can trace their rows.

    Raises:
        StoreError: a payload cannot be read.
    """
    asset, only = stores[0].manifest.asset, stores[0].manifest.partition if len(stores) == 1 else ""
    opened = [_Opened(each, [] if is_export(each) else streams(each), Names(workspace, each)) for each in stores]
    every = [(each, stream) for each in opened for stream in each.streams]
    notes: list[str] = []
    vocabulary = _vocabulary(workspace, asset, every, notes)
    shown = list(_matching(every, served, rows, vocabulary) if served else _shown(every, rows))
    found = _proofs(workspace, opened, shown, vocabulary, notes)
    chain = made_from(workspace, stores)
    steps = accounting(chain)
    refused = list(refusals(chain))
    lengths = [int(stream.lengths[each.row.number]) for each in shown for stream in [every[each.stream][1]]]
    trained = [_trained(every[each.stream][1], each.row.number) for each in shown]
    chunks = list(row_chunks(shown, found))
    columns = {**index(shown, trained, lengths), "chunks": np.cumsum([0, *map(len, chunks[:-1])]).tolist()}
    return render(
        Page(
            title=f"{asset}[{only}]" if only else asset,
            summary=_summary(stores),
            figures=_figures(stores, every),
            checks=[(each.manifest.label, name, *result) for each in stores for name, result in (each.results or {}).items()],
            measured=measure([stream for _, stream in every]),
            pictures=list(_pictures(stores, every)),
            steps=steps,
            waterfall=charts.waterfall(steps),
            stages=lineage(chain),
            files=[(name, entry["bytes"], entry["sha256"]) for each in stores for name, entry in each.manifest.files.items()],
            recipe=[
                (each.manifest.label, json.dumps(each.manifest.recipe, indent=1, ensure_ascii=False, sort_keys=True)) for each in stores
            ],
            commands=_commands(asset, only),
            shown=len(shown),
            total=sum(len(stream.lengths) for _, stream in every),
            refused=min(REFUSED, len(refused)),
            refused_total=len(refused),
            notes=notes,
            data={
                "index": columns,
                "streams": [
                    {
                        "name": one_line(_stream_name(each, stream)),
                        "unit": stream.unit,
                        **({} if candidate else _trace(each.published, stream.name, served=served is not None)),
                    }
                    for each, stream in every
                ],
                "vocabulary": vocabulary_of(shown, vocabulary),
                "refused": [
                    [
                        store,
                        one_line(each.id),
                        one_line(f"{each.stage}/{each.reason}"),
                        one_line(each.detail),
                        visible(each.payload),
                        each.payload_length,
                    ]
                    for store, each in refused[:REFUSED]
                ],
            },
            chunks=chunks,
            served=served,
        )
    )


def _vocabulary(workspace: Workspace, asset: str, every: Sequence[Any], notes: list[str]) -> Vocabulary | None:
    if not any(stream.unit == "tokens" for _, stream in every):
        return None
    try:
        return workspace.vocabulary(family_of(workspace, asset))
    except PrepAssetsError as error:
        notes.append(f"Tokens are shown by number, because the tokenizer cannot be opened: {error}")
        return None


def _shown(every: Sequence[tuple[_Opened, Stream]], rows: int) -> Iterator[NamedRow]:
    """The rows that the page holds, with the names of their records."""
    total = sum(len(stream.lengths) for _, stream in every)
    longest = max((float(stream.lengths.mean()) for _, stream in every if len(stream.lengths) and stream.unit == "tokens"), default=1.0)
    want = min(rows, max(20, int(TOKENS / max(1.0, longest)))) if total else 0
    chosen = sampled({number: len(stream.lengths) for number, (_, stream) in enumerate(every)}, want)
    for number, numbers in chosen.items():
        yield from _named(every, number, every[number][1].rows(numbers))


def _named(every: Sequence[tuple[_Opened, Stream]], number: int, rows: Iterable[Row]) -> Iterator[NamedRow]:
    """Rows of one stream, with the names of their records."""
    names = every[number][0].names
    for row in rows:
        yield NamedRow(number, row, tuple(names.name(piece.origin) for piece in row.pieces))


def _matching(every: Sequence[tuple[_Opened, Stream]], wanted: Filter, rows: int, vocabulary: Vocabulary | None) -> Iterator[NamedRow]:
    def text(ids: Sequence[int]) -> str:
        return "" if vocabulary is None else vocabulary.decode([each for each in ids if 0 <= each < vocabulary.size])

    return matching([stream for _, stream in every], wanted, rows, lambda number, found: _named(every, number, found), text)


def _proofs(
    workspace: Workspace, opened: Sequence[_Opened], shown: Sequence[NamedRow], vocabulary: Vocabulary | None, notes: list[str]
) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    if vocabulary is None:
        return found
    first = 0
    for each in opened:
        own = range(first, first + len(each.streams))
        first += len(each.streams)
        origins = [piece.origin for row in shown if row.stream in own for piece in row.row.pieces]
        more, missing = proofs(workspace, each.published, origins, vocabulary)
        found |= more
        notes += [f"The second derivation is not shown for {reason}" for reason in missing]
    return found


def _trained(stream: Stream, number: int) -> int | None:
    return None if stream.trained is None else int(stream.trained[number])


def _trace(published: Published, stream: str, *, served: bool) -> dict[str, str]:
    """How a row of a stream is traced: the address that a server answers to, which the page adds the row to, or the command."""
    manifest = published.manifest
    if served:
        return {
            "traced": TRACES + quote("/".join(filter(None, (manifest.asset, manifest.partition)))) + "?" + urlencode({"stream": stream})
        }
    partition = f" -p {manifest.partition}" if manifest.partition else ""
    return {"trace": f"prep-assets trace {manifest.asset}{partition} --stream {stream}"}


def _stream_name(opened: _Opened, stream: Stream) -> str:
    manifest = opened.published.manifest
    if stream.name.startswith(manifest.asset) or stream.name.startswith(f"{manifest.partition}_"):
        return stream.name
    return f"{manifest.partition} {stream.name}" if manifest.partition else stream.name


def _summary(stores: Sequence[Published]) -> str:
    manifest = stores[0].manifest
    what = f"{len(stores)} stores, one for each domain" if len(stores) > 1 else f"One store, content {manifest.content_hash[:16]}"
    return f"{what}. Made by prep-assets {__version__}; this page holds its data and needs no network."


def _figures(stores: Sequence[Published], every: Sequence[tuple[_Opened, Stream]]) -> list[tuple[str, str]]:
    counts = {key: value for key, value in total_counts(stores).items() if value}
    names = {
        "rows": "rows",
        "records": "records",
        "kept": "records kept",
        "tokens": "tokens",
        "trained_tokens": "trained tokens",
        "files": "source files",
    }
    found = [(name, f"{counts[key]:,}") for key, name in names.items() if key in counts]
    if counts.get("tokens") and "trained_tokens" in counts:
        found.append(("trained share", f"{counts['trained_tokens'] / counts['tokens']:.1%}"))
    fill = stores[0].manifest.metrics.get("fill_rate")
    if fill is not None:
        found.append(("rows are full to", f"{fill:.1%}"))
    refused = sum(sum(each.manifest.counts.get("refused", {}).values()) for each in stores)
    return [
        *found,
        ("refused here", f"{refused:,}"),
        ("size", _size(sum(entry["bytes"] for each in stores for entry in each.manifest.files.values()))),
    ]


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _pictures(stores: Sequence[Published], every: Sequence[tuple[_Opened, Stream]]) -> Iterator[tuple[str, Markup, str]]:
    for unit in dict.fromkeys(stream.unit for _, stream in every):
        parts = [part.lengths for _, stream in every if stream.unit == unit for part in stream.parts()]
        lengths = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if len(lengths):
            yield f"Length of documents in {unit}", charts.histogram(lengths, unit), f"{len(lengths):,} documents"
    realised, weights = shares(stores[0])
    if realised:
        yield (
            "Mixture: share of the tokens",
            charts.mixture(realised, weights),
            "a red line is the share asked for" if weights else "no weights asked for",
        )


def _commands(asset: str, partition: str) -> list[tuple[str, str]]:
    which = f" -p {partition}" if partition else ""
    dagster = f" --partition {partition}" if partition else ""
    return [
        ("build", f"prep-assets build {asset}{which}"),
        ("in Dagster", f"dagster asset materialize --select {asset}{dagster}"),
        ("prove again", f"prep-assets verify {asset}{which}"),
        ("this page", f"prep-assets report {asset}{which}"),
    ]
