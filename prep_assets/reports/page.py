"""One page: facts, pictures and rows of stores as one HTML file without a link to anything."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from prep_assets import __version__
from prep_assets.reports.chunks import Filter, packed
from prep_assets.reports.facts import Measured, Stage, Steps, total_counts
from prep_assets.reports.visible import one_line
from prep_assets.stores.published import Published


@dataclass(frozen=True)
class Page:
    """What a page shows.

    Attributes:
        title: the asset, or one partition of it.
        summary: what it is, in a sentence.
        figures: (name, value) of the first screen.
        checks: (store, check, whether it holds, what it says).
        measured: a line for each domain of each stream.
        pictures: (heading, SVG, note).
        steps: accounting, see `facts.accounting`.
        stages: lineage.
        files: (name, bytes, sha256).
        recipe: (store, JSON) of everything that decides the bytes.
        commands: (what for, command).
        streams: names of the streams that rows are of, with the unit of their length.
        shown, total: how many rows the page holds, of how many.
        refused, refused_total: how many refusals the page holds, of how many.
        notes: what the page cannot show, and why.
        data: name → JSON value, packed into the page.
        chunks: rows, packed one by one.
        served: what a server was asked for; `None` for a page that stands alone.
    """

    title: str
    summary: str
    figures: Sequence[tuple[str, str]]
    checks: Sequence[tuple[str, str, bool, str]]
    measured: Sequence[Measured]
    pictures: Sequence[tuple[str, Markup, str]]
    steps: Steps
    waterfall: Markup
    stages: Sequence[Stage]
    files: Sequence[tuple[str, int, str]]
    recipe: Sequence[tuple[str, str]]
    commands: Sequence[tuple[str, str]]
    shown: int
    total: int
    refused: int
    refused_total: int
    notes: Sequence[str]
    data: Mapping[str, Any]
    chunks: Iterable[Any]
    served: Filter | None = None


def render(page: Page) -> str:
    """The page as HTML. Its one script is named by its hash in the page's own security policy, so that no other can run."""
    script = _file("page.js")
    data = {name: packed(value) for name, value in page.data.items()}
    for number, chunk in enumerate(page.chunks):
        data[f"rows-{number}"] = packed(chunk)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(page=page, data=data, style=Markup(_file("page.css")), script=Markup(script), script_hash=digest, version=__version__)
    )


def trace_page(title: str, shown: str) -> str:
    """The page of a trace, which is a text whose characters can all be seen."""
    template = _environment().get_template("trace.html.jinja")
    return template.render(title=title, shown=escape(shown), style=Markup(_file("page.css")), version=__version__)


@dataclass(frozen=True, slots=True)
class Line:
    """An asset in the list of the first page."""

    name: str
    link: str
    stores: int
    rows: int | None
    tokens: int | None
    share: float | None
    refused: int
    checks: str


def first_page(assets: Mapping[str, Sequence[Published]], link: str = "{}.html") -> str:
    """The page that lists assets and links theirs; `link` is given the name of each."""
    lines = [_line(name, stores, link) for name, stores in assets.items() if stores]
    return _environment().get_template("index.html.jinja").render(lines=lines, style=Markup(_file("page.css")), version=__version__)


def _line(name: str, stores: Sequence[Published], link: str) -> Line:
    counts = total_counts(stores)
    tokens, trained = counts.get("tokens"), counts.get("trained_tokens")
    results = [result for each in stores for result in (each.results or {}).values()]
    failed = sum(not result.passed for result in results)
    return Line(
        name,
        link.format(name),
        len(stores),
        counts.get("rows", counts.get("kept")),
        tokens,
        None if trained is None or not tokens else trained / tokens,
        sum(sum(each.manifest.counts.get("refused", {}).values()) for each in stores),
        f"{failed} of {len(results)} fail" if failed else f"all {len(results)} hold" if results else "never run",
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.filters["number"] = _number
    environment.filters["percent"] = lambda value: "" if value is None else f"{value:.1%}"
    environment.filters["size"] = _size
    return environment


def _finalized(value: Any) -> Any:
    """Whatever a template writes is free of characters that cannot be seen; jinja2 escapes it after that."""
    return value if isinstance(value, Markup) else one_line(str(value))


def _file(name: str) -> str:
    return files("prep_assets.reports").joinpath(name).read_text("utf-8")


def _number(value: int | float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
