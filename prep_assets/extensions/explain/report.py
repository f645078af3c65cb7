"""The page of an asset: its stores as one self-contained HTML file."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import chain, groupby, islice
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape
from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.checks.bounds import metrics_of
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.explain.data import index, packed, row_chunks, sampled, vocabulary_of
from prep_assets.extensions.explain.figures import (
    Measured,
    Steps,
    accounting,
    binned,
    built_at,
    items,
    made_from,
    measure,
    refusals,
    refused_counts,
    shares,
    total_counts,
)
from prep_assets.extensions.explain.html import file_of, render_template
from prep_assets.extensions.explain.made_with import made_with
from prep_assets.extensions.explain.rows import Origin, Proof, Row, proofs, read, record_names
from prep_assets.extensions.explain.search import Filter, matching
from prep_assets.extensions.explain.streams import found_rows, source_files
from prep_assets.extensions.explain.verdicts import found_of, is_quality
from prep_assets.graph.graph import family_of, tables_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import TRACES, Workspace, arguments
from prep_assets.stores.manifest import label_of
from prep_assets.stores.table import Table
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import one_line, visible
from prep_assets.text.vocabulary import Vocabulary
from prep_assets.version import __version__


def _quality(workspace: Workspace, sources: Sequence[tuple[Asset, list[Published]]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield store, what was looked for, how much was found, and what is allowed: verdicts, leaks, and metrics that have bounds."""
    for asset, stores in sources:
        bounds = family_of(workspace, asset.name).quality.bounds
        for published in stores:
            counts, label = published.manifest.counts, published.manifest.label
            found = {"quality": counts.get("found"), "leaks": counts.get("by_set")}.get(asset.stage) or {}
            if asset.stage in ("quality", "leaks"):
                what = {"quality": "dropped", "leaks": "leaks"}[asset.stage]
                found = {**found, what: counts[what]}
            for name, count in found.items():
                yield label, name, f"{count:,} of {counts['examples']:,} examples ({count / max(1, counts['examples']):.2%})", ""
            for held_out, classes in counts.get("recall", {}).items():
                for name, (count, total) in classes.items():
                    yield label, f"{held_out}: probes found, {name}", f"{count:,} of {total:,} ({count / total:.2%})", ""
            for held_out, (count, total) in counts.get("uncovered", {}).items() if asset.stage == "leaks" else ():
                yield label, f"{held_out}: cannot be found", f"{count:,} of {total:,} texts ({count / total:.2%})", ""
            metrics = metrics_of(asset, published) if bounds else {}
            for name, bound in bounds.items():
                if name.partition(".")[0] == asset.name and (value := metrics.get(metric := name.partition(".")[2])) is not None:
                    limits = ((key, limit.model_dump(exclude_none=True)) for key in ("warn", "block") if (limit := getattr(bound, key)))
                    shown = (f"{key}: {', '.join(f'{name} {number:g}' for name, number in numbers.items())}" for key, numbers in limits)
                    yield label, metric, f"{value:,.6g}", "; ".join(shown)


def _files(asset: Asset, stores: Sequence[Published]) -> list[tuple[str, int, int, str]]:
    """Name, rows, bytes and hash of the source files that raw stores pin."""
    entries = (entry for store in stores for entry in source_files(store)) if asset.name.endswith("_raw") and not asset.inputs else ()
    return [(entry["name"], int(entry["rows"]), int(entry["size"]), entry["sha256"]) for entry in entries]


PACKAGE = "prep_assets.extensions.explain"

# Pictures, in numbers: `pictures.html.jinja` draws them, 640 wide.

WIDTH, HEIGHT, BINS = 640, 180, 40


class Histogram(Struct, frozen=True):
    """Counts of lengths: (x, height, title) of each bar that is not empty, (x, length) of each tick, the distance of bars and the count of the fullest bin."""

    caption: str
    bars: list[tuple[float, float, str]]
    ticks: list[tuple[float, int]]
    step: float
    top: int


class Bar(Struct, frozen=True):
    """A bar with its words; `asked`: where a line shows what was asked for. Positions are from the left end of all bars."""

    label: str
    kind: str
    start: float
    width: float
    figures: str
    asked: float | None = None


def histogram(lengths: npt.NDArray[np.int64], unit: str) -> Histogram:
    """A histogram of lengths, on a log scale where they differ more than fiftyfold."""
    counts, edges, wide = binned(lengths, BINS)
    top, step, bounds = int(counts.max()), WIDTH / len(counts), edges.astype(int).tolist()
    ends = [max(low, int(np.ceil(high)) - 1) for low, high in zip(bounds, edges[1:], strict=False)]
    bars = [
        (round(at * step, 1), round(HEIGHT * count / top, 1), f"{bounds[at]:,} to {ends[at]:,} {unit}: {count:,}")
        for at, count in enumerate(counts.tolist())
        if count
    ]
    ticks = [(round(at * step, 1), bounds[at]) for at in sorted({round(len(counts) * quarter / 4) for quarter in range(5)})]
    low, high, scale = int(lengths.min()), int(lengths.max()), ", on a log scale" if wide else ""
    caption = f"Histogram of lengths from {low:,} to {high:,} {unit}{scale}; the fullest bin holds {top:,}"
    return Histogram(caption, bars, ticks, step, top)


def mixture(shares: Mapping[str, float], weights: Mapping[str, float]) -> list[Bar]:
    """Shares by domain, largest first, each with a line at the share that the weights ask for."""
    total = sum(weights.values())
    wanted = {name: weight / total for name, weight in weights.items()} if total else {}
    scale = 280 / (max([*shares.values(), *wanted.values()], default=1.0) or 1.0)
    bars = []
    for name, share in sorted(shares.items(), key=lambda item: (-item[1], item[0])):
        asked = wanted.get(name)
        figures = f"{share:.1%}" + ("" if asked is None else f", asked {asked:.1%}")
        bars.append(Bar(name, "bar", 0, round(share * scale, 1), figures, None if asked is None else round(asked * scale, 1)))
    return bars


def waterfall(steps: Steps) -> list[Bar]:
    """(kind, label, records); kinds are ``read``, ``refused`` and ``kept``. Rejected records hang from the end of the last bar."""
    scale, bars, end = 300 / (max((count for _, _, count in steps), default=1) or 1), list[Bar](), 0
    for kind, label, count in steps:
        refused = kind == "refused"
        end = end - count if refused else count
        figures = f"−{count:,}" if refused else f"{count:,}"
        bars.append(Bar(label, kind, round(end * scale, 1) if refused else 0, max(round(count * scale, 1), 2), figures))
    return bars


# Pages: facts, charts and rows of stores as one self-contained HTML file.


def render(page: Mapping[str, Any], data: Mapping[str, Any], chunks: Iterable[Any], served: Filter | None = None) -> str:
    """Render a page. Its security policy allows only its one script, by hash.

    Args:
        page: variables of the template, see `report`.
        data: name → JSON value to embed.
        chunks: chunks of rows to embed.
        served: the filter of a served page; `None` for a standalone file.
    """
    script = file_of(PACKAGE, "page.js")
    packed_data = {name: packed(value) for name, value in (*data.items(), *((f"rows-{at}", chunk) for at, chunk in enumerate(chunks)))}
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render_template(PACKAGE, "page", page={**page, "served": served}, data=packed_data, script=Markup(script), script_hash=digest)


def trace_page(title: str, shown: str) -> str:
    """The page of a trace, given as visible text."""
    return render_template(PACKAGE, "trace", title=title, shown=escape(shown))


# A report: the page of an asset's stores, from their files, manifests and, for the second derivation of masks, sources.

ROWS = 1000
"""Rows on a page by default."""
TOKENS = 4_000_000
"""Most tokens of a page; it holds fewer rows where they are long."""
REFUSED = 1000
"""Most rejected records of a page."""
PROVEN_AT_ONCE = 100_000
"""Most rows of stores whose served pages show both derivations of masks: for these, sources are read up to the last row shown."""


class _Shown(NamedTuple):
    """A stream, its store, and the function that names its records."""

    published: Published
    stream: Table
    name: Callable[[Origin], str]


def report(
    workspace: Workspace, stores: Sequence[Published], *, rows: int = ROWS, served: Filter | None = None, candidate: bool = False
) -> str:
    """The page of one asset's stores, as HTML.

    Args:
        stores: at least one, all of one asset.
        rows: most rows of the page.
        served: the filter of a served page, whose rows are searched in the whole store; `None` for a standalone file with a sample.
        candidate: whether the stores are unpublished, so that their rows cannot be traced.

    Raises:
        StoreError: a payload cannot be read.
    """
    asset, partition = stores[0].manifest.asset, stores[0].manifest.partition if len(stores) == 1 else ""
    measured, wanted = _measured(stores), served or Filter()
    names = [record_names(workspace, store) for store in stores]
    entries = [_Shown(stores[at], stream, names[at]) for at, stream in measured.streams]
    notes: list[str] = []
    vocabulary = _vocabulary(workspace, asset, entries, notes)
    shown = list(islice(_matching(entries, wanted, vocabulary), rows) if wanted.of_rows else _sample(entries, rows))
    total = sum(_listed(entries).values())
    if served is None or total <= PROVEN_AT_ONCE:
        derived = _proofs(workspace, stores, entries, shown, vocabulary, notes)
    else:
        derived = {}
        notes.append(f"The second derivation of a row is in its trace, as there are more than {PROVEN_AT_ONCE:,} rows")
    chunks = list(row_chunks(shown, derived))
    columns = {**index(shown, [entry.stream for entry in entries]), "chunks": np.cumsum([0, *map(len, chunks[:-1])]).tolist()}
    sources = made_from(workspace, stores)
    steps, reasons = accounting(sources), refused_counts(store for _, versions in sources for store in versions)
    refused_total = sum(reasons.values())
    refused_total += sum(sum(1 for _ in found_of(store)) for store in stores if is_quality(asset))
    found = ((store.manifest.label, row) for store in stores if is_quality(asset) for row in found_rows(workspace, store, str, REFUSED))
    every = chain(found, refusals(sources))
    refused = list(islice((each for each in every if wanted.reason in f"{each[1].stage}/{each[1].reason}"), REFUSED))
    page = {
        "title": label_of(asset, partition),
        "summary": _summary(workspace, stores),
        "made_with": made_with(workspace, asset, sources),
        "figures": _figures(stores, _longer_chosen(entries, stores)),
        "checks": [(store.manifest.label, name, *result[:2]) for store in stores for name, result in (store.results or {}).items()],
        "measured": measured.figures,
        "counted": items(entry.stream for entry in entries),
        "domains": sorted({each.domain for each in measured.figures if each.domain != each.stream}),
        "reasons": sorted({*reasons, *(f"{row.stage}/{row.reason}" for _, row in refused)}),
        "histograms": measured.histograms,
        "mixture": mixture(*shares(stores[0])),
        "quality": list(_quality(workspace, sources)),
        "steps": steps,
        "waterfall": waterfall(steps),
        "stages": [
            (source.name, _files(source, versions), [(version.manifest.partition, version.manifest.content_hash) for version in versions])
            for source, versions in sources
        ],
        "files": [(name, file["bytes"], file["sha256"]) for store in stores for name, file in store.manifest.files.items()],
        "recipe": [
            (store.manifest.label, json.dumps(store.manifest.recipe, indent=1, ensure_ascii=False, sort_keys=True)) for store in stores
        ],
        "commands": _commands(asset, partition),
        "shown": len(shown),
        "total": total,
        "refused": len(refused),
        "refused_total": refused_total,
        "refused_how": "found by quality steps" if is_quality(asset) else "refused",
        "notes": notes,
    }
    data: dict[str, Any] = {
        "index": columns,
        "streams": [
            {
                "name": one_line(_stream_name(entry)),
                "unit": entry.stream.schema.unit,
                "packed": entry.stream.pieces is not None,
                **({} if candidate else _trace(entry, served=served is not None)),
            }
            for entry in entries
        ],
        "vocabulary": vocabulary_of(shown, vocabulary),
        "refused": [
            [label, *map(one_line, (row.id, f"{row.stage}/{row.reason}", row.detail)), visible(row.payload), row.payload_length]
            for label, row in refused
        ],
    }
    return render(page, data, chunks, served)


def _vocabulary(workspace: Workspace, asset: str, entries: Sequence[_Shown], notes: list[str]) -> Vocabulary | None:
    if not any(entry.stream.schema.unit == "tokens" for entry in entries):
        return None
    try:
        return workspace.vocabulary(family_of(workspace, asset))
    except PrepAssetsError as error:
        notes.append(f"Tokens are shown by number, because the tokenizer cannot be opened: {error}")
        return None


def _sample(entries: Sequence[_Shown], rows: int) -> Iterator[Row]:
    """The sampled rows of a standalone page."""
    listed = _listed(entries)
    total = sum(listed.values())
    means = (float(entry.stream.lengths.mean()) for entry in entries if len(entry.stream) and entry.stream.schema.unit == "tokens")
    want = min(rows, max(20, int(TOKENS / max(1.0, max(means, default=1.0))))) if total else 0
    for number, numbers in sampled(listed, want).items():
        yield from _name_records(entries, number, numbers)


def _matching(entries: Sequence[_Shown], wanted: Filter, vocabulary: Vocabulary | None) -> Iterator[Row]:
    """The rows of a served page that match, in the order of the stores."""
    rejected = _rejected(entries)
    for number, (_, stream, name) in enumerate(entries):
        if number in rejected.values():
            continue

        def names(row: Row, name: Callable[[Origin], str] = name) -> list[str]:
            return [name(piece.origin) for piece in row.pieces]

        sides = [stream, *(entries[rejected[side]].stream for side in [number] if side in rejected)]
        for row, _ in groupby(merge(*(matching(side, wanted, vocabulary, names) for side in sides))):
            yield from _name_records(entries, number, [row])


def _listed(entries: Sequence[_Shown]) -> dict[int, int]:
    """Streams whose rows are listed, and how many these are: rejected answers stand beside the chosen ones."""
    beside = {*_rejected(entries).values()}
    return {number: len(entry.stream) for number, entry in enumerate(entries) if number not in beside}


def _rejected(entries: Sequence[_Shown]) -> dict[int, int]:
    """Streams of chosen answers, each with that of the rejected ones, row by row."""
    numbers = {(entry.published.manifest.partition, entry.stream.name): number for number, entry in enumerate(entries)}
    pairs = {
        number: numbers.get((key, name.removesuffix("chosen") + "rejected"))
        for (key, name), number in numbers.items()
        if name.endswith("chosen")
    }
    return {
        chosen: other for chosen, other in pairs.items() if other is not None and len(entries[chosen].stream) == len(entries[other].stream)
    }


def _name_records(entries: Sequence[_Shown], stream: int, numbers: Sequence[int]) -> Iterator[Row]:
    """Read rows of one stream, with the other sides of pairs, and name their records."""
    other = _rejected(entries).get(stream)
    beside = iter(()) if other is None else _name_records(entries, other, numbers)
    for row in read(entries[stream].stream, numbers):
        pieces = tuple(replace(piece, name=entries[stream].name(piece.origin)) for piece in row.pieces)
        yield replace(row, stream=stream, pieces=pieces, beside=next(beside, None))


def _proofs(
    workspace: Workspace,
    stores: Sequence[Published],
    entries: Sequence[_Shown],
    shown: Sequence[Row],
    vocabulary: Vocabulary | None,
    notes: list[str],
) -> dict[Origin, Proof]:
    by_origin: dict[Origin, Proof] = {}
    if vocabulary is None:
        return by_origin
    for published in stores:
        origins = [piece.origin for row in shown if entries[row.stream].published is published for piece in row.pieces_of_sides]
        derived, missing = proofs(workspace, published, origins, vocabulary)
        by_origin |= derived
        notes += [f"The second derivation is not shown for {reason}" for reason in missing]
    return by_origin


def _trace(shown: _Shown, *, served: bool) -> dict[str, str]:
    """How to trace a row of a stream: an address to which the page adds the row, or a command."""
    manifest, stream = shown.published.manifest, shown.stream.name
    if served:
        return {
            "traced": TRACES + quote("/".join(filter(None, (manifest.asset, manifest.partition)))) + "?" + urlencode({"stream": stream})
        }
    return {"trace": f"prep-assets trace {arguments(manifest.asset, manifest.partition)} --stream {stream}"}


def _stream_name(shown: _Shown) -> str:
    manifest, name = shown.published.manifest, shown.stream.name
    is_called_so = not manifest.partition or name.startswith((manifest.asset, f"{manifest.partition}_"))
    return name if is_called_so else f"{manifest.partition} {name}"


def _summary(workspace: Workspace, stores: Sequence[Published]) -> str:
    manifest = stores[0].manifest
    what = f"{len(stores)} stores, one for each domain" if len(stores) > 1 else f"Content {manifest.content_hash[:16]}"
    times = sorted({built_at(workspace, store) for store in stores} - {""})
    built = f"built {' to '.join(dict.fromkeys((times[0], times[-1])))} UTC, " if times else ""
    return f"{what}, {built}page by prep-assets {__version__}"


def _longer_chosen(entries: Sequence[_Shown], stores: Sequence[Published]) -> Iterator[tuple[str, str]]:
    """In how many pairs the chosen answer is the longer one: in trained tokens, or as the check of lines counted it."""
    longer = pairs = 0
    for chosen, rejected in ((entries[one].stream.trained, entries[other].stream.trained) for one, other in _rejected(entries).items()):
        if chosen is not None and rejected is not None:
            longer, pairs = longer + int((chosen > rejected).sum()), pairs + len(chosen)
    for numbers in (result.numbers for store in stores for result in (store.results or {}).values()):
        if "longer_chosen" in numbers:  # checks of tokens count pairs as well
            longer, pairs = longer + int(numbers["longer_chosen"]), pairs + int(numbers["pairs_checked"])
    if pairs:
        yield "chosen is longer in", f"{longer / pairs:.0%}"


class _Measured(NamedTuple):
    """The streams of stores, each with the index of its store, and what the whole of them is like."""

    streams: list[tuple[int, Table]]
    figures: list[Measured]
    histograms: list[tuple[str, Histogram]]


@bounded_cache("measured stores", 4, key=lambda stores: tuple((store.directory, store.manifest.content_hash) for store in stores))
def _measured(stores: Sequence[Published]) -> _Measured:
    """Open and measure stores: a server does it once for all searches."""
    opened = [(at, stream) for at, store in enumerate(stores) for stream in tables_of(store)]
    every = [stream for _, stream in opened]
    return _Measured(opened, measure(every), list(_histograms(every)))


def _figures(stores: Sequence[Published], more: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    counts = {key: value for key, value in total_counts(stores).items() if value}
    names = {
        "rows": "rows",
        "records": "records",
        "kept": "records kept",
        "tokens": "tokens",
        "trained_tokens": "trained tokens",
        "files": "source files",
    }
    figures = [(name, f"{counts[key]:,}") for key, name in names.items() if key in counts]
    if counts.get("tokens") and "trained_tokens" in counts:
        figures.append(("trained share", f"{counts['trained_tokens'] / counts['tokens']:.1%}"))
    fill = stores[0].manifest.metrics.get("fill_rate")
    if fill is not None:
        figures.append(("rows are full to", f"{fill:.1%}"))
    size = sum(entry["bytes"] for store in stores for entry in store.manifest.files.values())
    shown = f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"
    return [*figures, *more, ("refused here", f"{sum(refused_counts(stores).values()):,}"), ("size", shown)]


def _histograms(every: Sequence[Table]) -> Iterator[tuple[str, Histogram]]:
    for unit in dict.fromkeys(stream.schema.unit for stream in every):
        parts = [stream.documents.lengths for stream in every if stream.schema.unit == unit]
        lengths = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if len(lengths):
            yield f"Length of {len(lengths):,} {items(every)} in {unit}", histogram(lengths, unit)


def _commands(asset: str, partition: str) -> list[tuple[str, str]]:
    dagster = f" --partition {partition}" if partition else ""
    return [
        ("build", f"prep-assets build {arguments(asset, partition)}"),
        ("in Dagster", f"dagster asset materialize --select {asset}{dagster}"),
        ("prove again", f"prep-assets verify {arguments(asset, partition)}"),
        ("this page", f"prep-assets report {arguments(asset, partition)}"),
    ]
