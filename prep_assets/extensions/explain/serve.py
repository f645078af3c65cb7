"""`report` and `view`: the index of pages, the pages of all assets as files, and a local server of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from msgspec import ValidationError, convert

from prep_assets.config.models import FAMILIES
from prep_assets.engine.status import State, Status, Statuses
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.explain.figures import built_at, refused_counts, total_counts
from prep_assets.extensions.explain.html import render_template, write_page
from prep_assets.extensions.explain.report import PACKAGE, ROWS, report, trace_page
from prep_assets.extensions.explain.search import Filter
from prep_assets.graph.graph import asset_named, family_assets
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import CANDIDATES, HOST, STORES, TRACES, Workspace
from prep_assets.stores.version_folders import Published

WORST: tuple[State, ...] = ("current", "unchecked", "stale", "missing", "failed", "broken")
"""States of stores, the worst last."""


def first_page(workspace: Workspace, assets: Mapping[str, Sequence[Published]]) -> str:
    """The index of pages that are files."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for name, stores in assets.items():
        if stores:
            lines.setdefault(asset_named(name, workspace).family, []).extend(_index_lines(workspace, name, stores, f"{name}.html", None))
    return render_template(PACKAGE, "index", families=lines, where="", faults=[])


def home_page(workspace: Workspace) -> str:
    """The index of served pages: each store that is configured, with its state."""
    statuses, lines, assets, faults = Statuses(workspace), dict[str, list[dict[str, Any]]](), dict[str, list[Asset]](), list[str]()
    for family in filter(workspace.has, FAMILIES):
        try:
            assets[family] = list(family_assets(workspace, family).values())
        except PrepAssetsError as error:
            faults.append(str(error))
    statuses.ahead((asset, partition) for of_family in assets.values() for asset in of_family for partition in asset.partitions(workspace))
    for family, of_family in assets.items():
        lines[family] = []
        for asset in of_family:
            states: dict[str, Status] = {}
            try:
                partitions = asset.partitions(workspace)
            except PrepAssetsError as error:  # domains that files name
                faults.append(str(error))
                continue
            for partition in partitions:
                try:
                    states[partition] = statuses.at(asset, partition)
                except PrepAssetsError as error:
                    states[partition] = Status("broken", str(error))
            stores = [status.published for status in states.values() if status.published]
            lines[family] += _index_lines(workspace, asset.name, stores, STORES + asset.name, states)
    return render_template(PACKAGE, "index", families=lines, where=workspace.where, faults=dict.fromkeys(faults))


def _index_lines(
    workspace: Workspace, name: str, stores: Sequence[Published], link: str, states: Mapping[str, Status] | None
) -> Iterator[dict[str, Any]]:
    """An asset's line of an index, and one for each of its domains; `states`: by domain, of served pages."""
    by_partition = {store.manifest.partition: [store] for store in stores}
    partitions = [partition for partition in (by_partition if states is None else states) if partition]
    yield _index_line(workspace, name, "", stores, link, None if states is None else list(states.values()))
    for partition in partitions:
        address = link if states is None else f"{link}/{quote(partition)}"
        of_one = None if states is None else [states[partition]]
        yield _index_line(workspace, name, partition, by_partition.get(partition, []), address, of_one)


def _index_line(
    workspace: Workspace, name: str, partition: str, stores: Sequence[Published], link: str, states: Sequence[Status] | None
) -> dict[str, Any]:
    counts = total_counts(stores)
    tokens, trained = counts.get("tokens"), counts.get("trained_tokens")
    results = [result for store in stores for result in (store.results or {}).values()]
    failed, worst = (
        sum(not result.passed for result in results),
        max(states or (), key=lambda status: WORST.index(status.state), default=None),
    )
    return {
        "name": partition or name,
        "partition": partition,
        "link": link if stores else "",
        "state": "" if worst is None else worst.state,
        "why": "" if worst is None else worst.why,
        "candidate": CANDIDATES + link.removeprefix(STORES) if any(status.refused for status in states or ()) else "",
        "rows": counts.get("rows", counts.get("kept")),
        "tokens": tokens,
        "share": None if trained is None or not tokens else trained / tokens,
        "refused": sum(refused_counts(stores).values()),
        "checks": f"{failed} of {len(results)} fail" if failed else f"{len(results)} hold" if results else "not run" if stores else "",
        "failed": failed,
        "built": max((built_at(workspace, store) for store in stores), default=""),
    }


# A local server of the pages of all stores. It answers only GET requests from this machine, and writes nothing.

Trace = Callable[[Workspace, str, str, Mapping[str, str]], str]
"""Returns a trace as text, given asset, partition, and ``row``, ``token`` and ``stream`` of the query."""
INDEX = "index.html"


def server(open_workspace: Callable[[], Workspace], port: int, *, rows: int, trace: Trace) -> ThreadingHTTPServer:
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
                return _answer(open_workspace(), urlsplit(self.path), rows, trace)
            except (PrepAssetsError, OSError, ValueError, LookupError) as error:  # a store may be damaged, or replaced while it is read
                return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal has the address, and the browser shows errors."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise PrepAssetsError(f"cannot listen on {HOST}:{port}: {error}. Choose another: --port N") from error


def _answer(workspace: Workspace, address: SplitResult, rows: int, trace: Trace) -> tuple[HTTPStatus, str]:
    if address.path == "/":
        return HTTPStatus.OK, home_page(workspace)
    prefix = next((folder for folder in (STORES, CANDIDATES, TRACES) if address.path.startswith(folder)), "")
    asset, _, partition = unquote(address.path.removeprefix(prefix)).partition("/")
    available = _stores(workspace, asset, candidates=prefix == CANDIDATES) if prefix else []
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


def _stores(workspace: Workspace, name: str, *, candidates: bool) -> list[Published]:
    """The current stores of an asset, or its candidates: stores that are not published because a check fails."""
    try:
        places = [workspace.place(name, partition) for partition in asset_named(name, workspace).partitions(workspace)]
    except ConfigError:
        return []
    found = (place.candidate() if candidates else place.current() for place in places)
    return [store for store in found if store is not None]


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
    write_page(folder / INDEX, first_page(workspace, assets))
