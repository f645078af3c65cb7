"""`report` and `view`: HTML pages about stores."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlencode, urlsplit

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape
from msgspec import Struct, ValidationError, convert

from prep_assets.caches import bounded_cache
from prep_assets.checks.bounds import metrics_of
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.explain.rows import (
    Origin,
    Proof,
    Row,
    Stream,
    index,
    packed,
    proofs,
    record_names,
    row_chunks,
    sampled,
    streams,
    vocabulary_of,
)
from prep_assets.explain.search import Filter, matching
from prep_assets.explain.streams import family_of, found_rows, source_files
from prep_assets.explain.visible import CANDIDATES, HOST, STORES, TRACES, arguments, one_line, visible
from prep_assets.graph.graph import asset_named, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.verdicts import found_of, is_quality
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets.text.vocabulary import Vocabulary
from prep_assets.version import __version__

# Facts about stores that need no rows: counts from the sources on, and lineage.

Steps = list[tuple[str, str, int]]


class Measured(Struct, frozen=True):
    """Figures of one domain of a stream; lengths are in `unit`."""

    stream: str
    domain: str
    unit: str
    documents: int
    total: int
    trained: int | None
    median: int
    p95: int
    longest: int

    @property
    def share(self) -> float | None:
        """The trained share, 0 to 1."""
        return None if self.trained is None else self.trained / max(1, self.total)


def measure(streams: Sequence[Stream]) -> list[Measured]:
    """Measure every domain of every stream."""
    measured = []
    for stream in streams:
        for part in stream.parts():
            lengths = np.sort(part.lengths)
            last = len(lengths) - 1
            middle, most, longest = (int(lengths[int(last * quantile)]) if last >= 0 else 0 for quantile in (0.5, 0.95, 1))
            trained = None if part.trained is None else int(part.trained.sum())
            measured.append(
                Measured(stream.name, part.domain, stream.unit, len(lengths), int(lengths.sum()), trained, middle, most, longest)
            )
    return measured


def made_from(workspace: Workspace, stores: Sequence[Published]) -> list[tuple[Asset, list[Published]]]:
    """The assets of `stores` and of everything upstream, upstream first, each with its current stores."""
    stores_by_asset: dict[str, dict[str, Published]] = {}

    def visit(published: Published) -> None:
        manifest = published.manifest
        if manifest.partition in stores_by_asset.get(manifest.asset, {}):
            return
        for above, partition in upstream_of(workspace, asset_named(manifest.asset, workspace), manifest.partition):
            try:
                store = workspace.published(above.name, partition)
            except PrepAssetsError:
                store = None
            if store is not None:
                visit(store)
        stores_by_asset.setdefault(manifest.asset, {})[manifest.partition] = published

    for published in stores:
        visit(published)
    return [(asset_named(name, workspace), list(by_partition.values())) for name, by_partition in stores_by_asset.items()]


def refusals(sources: Sequence[tuple[Asset, list[Published]]]) -> Iterator[tuple[str, Refusal]]:
    """Yield every rejected record, with the label of the store that rejected it."""
    for _, stores in sources:
        for published in stores:
            if published.quarantine:
                for rejection in read_quarantine(published.quarantine):
                    yield published.manifest.label, rejection


def accounting(sources: Sequence[tuple[Asset, list[Published]]]) -> Steps:
    """Steps from records read to rows stored: (kind, label, records)."""
    steps: Steps = []
    for asset, stores in sources:
        counts = total_counts(stores)
        if "read" in counts and (not asset.inputs or not steps):
            steps.append(("read", f"{asset.name}: read", counts["read"]))
        steps += [("refused", f"{asset.name}: {reason}", count) for reason, count in sorted(refused_counts(stores).items())]
        if "kept" in counts:
            steps.append(("kept", f"{asset.name}: kept", counts["kept"]))
        if asset.name == "sft_packed":
            steps.append(("kept", f"sft_packed: records in {counts['rows']:,} rows", counts["records"] + counts.get("dev_records", 0)))
    return steps


def total_counts(stores: Iterable[Published]) -> dict[str, int]:
    """The counts of several stores, summed."""
    return _sum_counts(published.manifest.counts for published in stores)


def refused_counts(stores: Iterable[Published]) -> dict[str, int]:
    """Rejected records of several stores, by reason."""
    return _sum_counts(published.manifest.counts.get("refused", {}) for published in stores)


def _sum_counts(counts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    total = Counter[str]()
    for entry in counts:
        total.update({key: value for key, value in entry.items() if isinstance(value, int)})
    return dict(total)


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


def shares(published: Published) -> tuple[dict[str, float], dict[str, float]]:
    """The token shares of a packed table by domain, and the configured weights."""
    manifest = published.manifest
    realised = {key.removeprefix("share_"): float(value) for key, value in manifest.metrics.items() if key.startswith("share_")}
    return realised, dict(manifest.recipe["packing"]["weights"] or {}) if realised else {}


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


def binned(lengths: npt.NDArray[np.int64], bins: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], bool]:
    """Counts of lengths in at most `bins` bins, the bin edges, and whether the scale is logarithmic."""
    low, high = int(lengths.min()), int(lengths.max())
    wide = high > 50 * max(1, low)
    edges = np.geomspace(max(1, low), high + 1, bins + 1) if wide else np.linspace(low, high + 1, min(bins, high - low + 1) + 1)
    counts, _ = np.histogram(np.maximum(lengths, 1 if wide else lengths), edges)
    return counts, edges, wide


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
    scale, bars, end = 310 / (max((count for _, _, count in steps), default=1) or 1), list[Bar](), 0
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
    script = _file("page.js")
    packed_data = {name: packed(value) for name, value in (*data.items(), *((f"rows-{at}", chunk) for at, chunk in enumerate(chunks)))}
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _render_template("page", page={**page, "served": served}, data=packed_data, script=Markup(script), script_hash=digest)


def trace_page(title: str, shown: str) -> str:
    """The page of a trace, given as visible text."""
    return _render_template("trace", title=title, shown=escape(shown))


def attestation_page(document: Mapping[str, Any], signer: str) -> str:
    """The page of a document of `prep_assets.neighbours.attestation`; `signer` says whose signature it has."""
    return _render_template("attestation", signer=signer, sha256=document["sha256"], **document["attestation"])


def first_page(assets: Mapping[str, Sequence[Published]], link: str = "{}.html") -> str:
    """The index page; `link` is a format string for the address of an asset's page."""
    return _render_template("index", lines=[_asset_line(name, stores, link) for name, stores in assets.items() if stores])


def _asset_line(name: str, stores: Sequence[Published], link: str) -> dict[str, Any]:
    """An asset's line of the index page."""
    counts = total_counts(stores)
    tokens, trained = counts.get("tokens"), counts.get("trained_tokens")
    results = [result for store in stores for result in (store.results or {}).values()]
    failed = sum(not result.passed for result in results)
    return {
        "name": name,
        "link": link.format(name),
        "stores": len(stores),
        "rows": counts.get("rows", counts.get("kept")),
        "tokens": tokens,
        "share": None if trained is None or not tokens else trained / tokens,
        "refused": sum(refused_counts(stores).values()),
        "checks": f"{failed} of {len(results)} fail" if failed else f"all {len(results)} hold" if results else "never run",
    }


def _render_template(name: str, **values: Any) -> str:
    template = _environment().get_template(f"{name}.html.jinja")
    return str(template.render(**values, style=Markup(_file("page.css")), version=__version__))


@cache
def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_make_visible,
    )
    environment.filters["number"] = _number
    environment.filters["percent"] = lambda value: "" if value is None else f"{value:.1%}"
    environment.filters["size"] = _size
    return environment


def _make_visible(value: Any) -> Any:
    """Make what a template writes visible, before jinja2 escapes it."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _file(name: str) -> str:
    return files("prep_assets.explain").joinpath(name).read_text("utf-8")


def _number(value: int | float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


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
    stream: Stream
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
    total = sum(entry.stream.count for entry in entries)
    if served is None or total <= PROVEN_AT_ONCE:
        derived = _proofs(workspace, stores, entries, shown, vocabulary, notes)
    else:
        derived = {}
        notes.append(f"The second derivation of a row is in its trace, as there are more than {PROVEN_AT_ONCE:,} rows")
    chunks = list(row_chunks(shown, derived))
    columns = {**index(shown, [entry.stream for entry in entries]), "chunks": np.cumsum([0, *map(len, chunks[:-1])]).tolist()}
    sources = made_from(workspace, stores)
    steps, refused_total = accounting(sources), sum(sum(refused_counts(versions).values()) for _, versions in sources)
    refused_total += sum(sum(1 for _ in found_of(store)) for store in stores if is_quality(asset))
    found = ((store.manifest.label, row) for store in stores if is_quality(asset) for row in found_rows(workspace, store, str, REFUSED))
    every = chain(found, refusals(sources))
    refused = list(islice((each for each in every if wanted.reason in f"{each[1].stage}/{each[1].reason}"), REFUSED))
    page = {
        "title": f"{asset}[{partition}]" if partition else asset,
        "summary": _summary(stores),
        "figures": _figures(stores),
        "checks": [(store.manifest.label, name, *result[:2]) for store in stores for name, result in (store.results or {}).items()],
        "measured": measured.figures,
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
    data = {
        "index": columns,
        "streams": [
            {
                "name": one_line(_stream_name(entry)),
                "unit": entry.stream.unit,
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
    if not any(entry.stream.unit == "tokens" for entry in entries):
        return None
    try:
        return workspace.vocabulary(family_of(workspace, asset))
    except PrepAssetsError as error:
        notes.append(f"Tokens are shown by number, because the tokenizer cannot be opened: {error}")
        return None


def _sample(entries: Sequence[_Shown], rows: int) -> Iterator[Row]:
    """The sampled rows of a standalone page."""
    total = sum(entry.stream.count for entry in entries)
    means = (float(entry.stream.lengths.mean()) for entry in entries if entry.stream.count and entry.stream.unit == "tokens")
    want = min(rows, max(20, int(TOKENS / max(1.0, max(means, default=1.0))))) if total else 0
    for number, numbers in sampled({number: entry.stream.count for number, entry in enumerate(entries)}, want).items():
        yield from _name_records(entries, number, numbers)


def _matching(entries: Sequence[_Shown], wanted: Filter, vocabulary: Vocabulary | None) -> Iterator[Row]:
    """The rows of a served page that match, in the order of the stores."""
    for number, (_, stream, name) in enumerate(entries):

        def names(row: Row, name: Callable[[Origin], str] = name) -> list[str]:
            return [name(piece.origin) for piece in row.pieces]

        for row in matching(stream, wanted, vocabulary, names):
            yield from _name_records(entries, number, [row])


def _name_records(entries: Sequence[_Shown], stream: int, numbers: Sequence[int]) -> Iterator[Row]:
    """Read rows of one stream and name their records."""
    for row in entries[stream].stream.rows(numbers):
        yield replace(row, stream=stream, pieces=tuple(replace(piece, name=entries[stream].name(piece.origin)) for piece in row.pieces))


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
        origins = [piece.origin for row in shown if entries[row.stream].published is published for piece in row.pieces]
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


def _summary(stores: Sequence[Published]) -> str:
    manifest = stores[0].manifest
    what = f"{len(stores)} stores, one for each domain" if len(stores) > 1 else f"One store, content {manifest.content_hash[:16]}"
    return f"{what}. Made by prep-assets {__version__}; this page holds its data and needs no network."


class _Measured(NamedTuple):
    """The streams of stores, each with the index of its store, and what the whole of them is like."""

    streams: list[tuple[int, Stream]]
    figures: list[Measured]
    histograms: list[tuple[str, Histogram]]


@bounded_cache("measured stores", 4, key=lambda stores: tuple((store.directory, store.manifest.content_hash) for store in stores))
def _measured(stores: Sequence[Published]) -> _Measured:
    """Open and measure stores: a server does it once for all searches."""
    opened = [(at, stream) for at, store in enumerate(stores) for stream in streams(store)]
    every = [stream for _, stream in opened]
    return _Measured(opened, measure(every), list(_histograms(every)))


def _figures(stores: Sequence[Published]) -> list[tuple[str, str]]:
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
    return [*figures, ("refused here", f"{sum(refused_counts(stores).values()):,}"), ("size", shown)]


def _histograms(every: Sequence[Stream]) -> Iterator[tuple[str, Histogram]]:
    for unit in dict.fromkeys(stream.unit for stream in every):
        parts = [part.lengths for stream in every if stream.unit == unit for part in stream.parts()]
        lengths = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if len(lengths):
            yield f"Length of {len(lengths):,} documents in {unit}", histogram(lengths, unit)


def _commands(asset: str, partition: str) -> list[tuple[str, str]]:
    dagster = f" --partition {partition}" if partition else ""
    return [
        ("build", f"prep-assets build {arguments(asset, partition)}"),
        ("in Dagster", f"dagster asset materialize --select {asset}{dagster}"),
        ("prove again", f"prep-assets verify {arguments(asset, partition)}"),
        ("this page", f"prep-assets report {arguments(asset, partition)}"),
    ]


# A local server of the pages of all stores. It answers only GET requests from this machine, and writes nothing.

Stores = Callable[[Workspace], Mapping[str, Sequence[Published]]]
"""Returns the current stores by asset."""
Trace = Callable[[Workspace, str, str, Mapping[str, str]], str]
"""Returns a trace as text, given asset, partition, and ``row``, ``token`` and ``stream`` of the query."""
INDEX = "index.html"


def server(open_workspace: Callable[[], Workspace], stores: Stores, port: int, *, rows: int, trace: Trace) -> ThreadingHTTPServer:
    """Create the server; `port` 0 takes a free one.

    Raises:
        PrepAssetsError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, page = self._page()
            body = page.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8" if status == HTTPStatus.OK else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _page(self) -> tuple[HTTPStatus, str]:
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if host not in (HOST, "localhost"):  # DNS rebinding: a foreign name for this address would let its pages read these
                return HTTPStatus.FORBIDDEN, f"this server answers to {HOST} and localhost"
            try:
                workspace = open_workspace()
                return _answer(workspace, stores(workspace), urlsplit(self.path), rows, trace)
            except (PrepAssetsError, OSError, ValueError, LookupError) as error:  # a store may be damaged, or replaced while it is read
                return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal has the address, and the browser shows errors."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise PrepAssetsError(f"cannot listen on {HOST}:{port}: {error}. Choose another: --port N") from error


def _answer(
    workspace: Workspace, stores: Mapping[str, Sequence[Published]], address: SplitResult, rows: int, trace: Trace
) -> tuple[HTTPStatus, str]:
    if address.path == "/":
        return HTTPStatus.OK, first_page(stores, STORES + "{}")
    prefix = next((folder for folder in (STORES, CANDIDATES, TRACES) if address.path.startswith(folder)), "")
    asset, _, partition = unquote(address.path.removeprefix(prefix)).partition("/")
    available = (_candidates(workspace, asset) if prefix == CANDIDATES else stores.get(asset, ())) if prefix else ()
    chosen = [store for store in available if partition in ("", store.manifest.partition)]
    if not chosen:
        return HTTPStatus.NOT_FOUND, f"no store at {address.path}" + (", so none fails its checks" if prefix == CANDIDATES else "")
    query = {key: values[-1].strip() for key, values in parse_qs(address.query).items()}
    if prefix == TRACES:
        return HTTPStatus.OK, trace_page(chosen[0].manifest.label, trace(workspace, asset, partition, query))
    numbers = {name: query.get(name, "") for name in ("shortest", "longest", "least_trained", "most_trained")}
    if any(value and not value.isdecimal() for value in numbers.values()):
        raise ConfigError(f"a length and a percentage are whole numbers: {numbers}")
    shortest, longest, *shares = (int(value) if value else None for value in numbers.values())
    try:
        wanted = convert(
            {
                "find": query.get("find", ""),
                "where": query.get("in", "text"),
                "domain": query.get("domain", ""),
                "reason": query.get("reason", ""),
                "length": (shortest, longest),
                "trained": tuple(shares),
            },
            Filter,
        )
    except ValidationError as error:
        raise ConfigError(str(error)) from error
    return HTTPStatus.OK, report(workspace, chosen, rows=rows, served=wanted, candidate=prefix == CANDIDATES)


def _candidates(workspace: Workspace, name: str) -> list[Published]:
    """Candidates of an asset: stores that are not published because a check fails."""
    try:
        places = [workspace.place(name, partition) for partition in asset_named(name, workspace).partitions(workspace)]
    except ConfigError:
        return []
    return [store for store in (place.candidate() for place in places) if store is not None]


def write_site(
    workspace: Workspace,
    assets: Mapping[str, Sequence[Published]],
    folder: Path,
    *,
    rows: int = ROWS,
    written: Callable[[Path], None] = lambda path: None,
) -> None:
    """Write ``<asset>.html`` for the stores of each asset, and ``index.html``.

    Args:
        rows: most rows of a page.
        written: called with the path of every page.

    Raises:
        StoreError: a payload cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, stores in assets.items():
        write_page(folder / f"{name}.html", report(workspace, stores, rows=rows))
        written(folder / f"{name}.html")
    write_page(folder / INDEX, first_page(assets))


def write_page(path: Path, html: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(html, "utf-8")
    temporary.replace(path)
