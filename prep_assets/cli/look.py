"""`prep-assets inspect`, `stats`, `quarantine`, `report` and `view`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.explain.visible import HOST, PORT, visible

if TYPE_CHECKING:
    from prep_assets.data.quarantine import Refusal
    from prep_assets.graph.previews import Preview
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.version_folders import Published

# `prep-assets inspect`: one row of a store, with its trained tokens.

LIMIT = 4096
"""Most tokens of a record to show; a pretraining document may have millions."""
MOST_COUNTED = 10_000_000
"""Tokens of the largest store whose documents are counted by engine, in about half a second."""


def inspect(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    row: Annotated[int, typer.Option("--row", "-r", help="Row, record or line, counted from 0.")] = 0,
    stream: terminal.Stream = None,
    ids: Annotated[bool, typer.Option("--ids", help="One token a line, with its id, position and loss weight.")] = False,
    as_json: terminal.AsJson = False,
) -> None:
    """Show a row: trained tokens bold and green (in ⟦ ⟧ where there is no colour), masked ones dim, │ where a document begins."""
    workspace = terminal.opened()
    published = terminal.one_store(workspace, asset, partition)
    if as_json:
        from prep_assets.graph.graph import store_of

        with terminal.reading(published):
            terminal.print_json(to_builtins(store_of(workspace, published).preview(row, stream=stream, limit=LIMIT)))
        return
    show_row(terminal.out(), workspace, published, row, stream=stream, ids=ids)


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
    """Print a row of a store, up to `most` tokens.

    Raises:
        ConfigError: no such row or stream.
        StoreError: the payload cannot be read.
    """
    from prep_assets.explain.streams import open_stream, streams
    from prep_assets.graph.graph import store_of
    from prep_assets.graph.previews import Preview
    from prep_assets.pipeline.asset import by_engine
    from prep_assets.stores.packed import PackedStore
    from prep_assets.stores.tokens import TokenStore

    with terminal.reading(published):
        names = streams(published)
        if stream is not None and stream not in names:
            hint = nearest(stream, names) or "."
            raise ConfigError(f"{published.manifest.asset} has no stream {stream!r}{hint} There are: {', '.join(names) or 'none'}")
        chosen = stream or (names[0] if names else None)
        store = store_of(workspace, published)
        shown = store.preview(row, stream=chosen, limit=LIMIT)
        engines = by_engine(store, MOST_COUNTED) if isinstance(shown, Preview) else {}
        numbers = list(shown.ids) if ids and isinstance(shown, Preview) else []
        if ids and isinstance(shown, Preview) and not numbers:
            table = open_stream(published, chosen or names[0])
            assert isinstance(table, PackedStore | TokenStore)
            stored = table.tokens[row] if isinstance(table, PackedStore) else table.record(row, "tokens")
            numbers = stored[: len(shown.tokens)].tolist()
    if isinstance(shown, Preview):
        _show_tokens(console, shown, numbers, most, engines)
    elif "files" in shown and not names:
        _show_files(console, published, shown)
    else:
        terminal.err().print(f"{chosen}.jsonl, line {row:,} counted from 0", style="dim")
        console.print_json(data=shown, ensure_ascii=False)


def _show_tokens(console: Console, shown: Preview, ids: list[int], most: int | None, engines: Mapping[str, int]) -> None:
    tokens, weights = shown.tokens[:most], shown.weights[:most]
    borders = {at: name for at, name in shown.origins if at < len(tokens)}
    colour = terminal.has_colour(console)
    console.print(visible(shown.title), style="bold")
    console.print()
    with_ids = terminal.listed(tokens, weights, shown.positions, ids, borders, colour=colour) if ids else None
    text = with_ids or terminal.flowing(tokens, weights, borders, colour=colour)
    console.print(text, end="" if text.plain.endswith("\n") else "\n")
    console.print()
    if len(tokens) < len(shown.tokens):
        console.print(f"… and {len(shown.tokens) - len(tokens):,} tokens more", style="dim")
    console.print(_footer(shown, engines, colour), style="dim")


def _footer(shown: Preview, engines: Mapping[str, int], colour: bool) -> str:
    parts = [terminal.counted(len(shown.tokens), "position")]
    if shown.weights:
        trained, unattended = (sum(weight * sign > 0 for weight in shown.weights) for sign in (1, -1))
        how = "bold and green" if colour else "in ⟦ ⟧"
        parts.append(f"{trained:,} trained ({trained / max(1, len(shown.tokens)):.1%}, {how})")
        parts += [f"{unattended:,} not attended ({'struck through' if colour else 'in ⟪ ⟫'})"] if unattended else []
    else:
        parts.append("no loss mask")
    parts.append(terminal.counted(len(shown.origins) - 1, "response") if shown.ids else terminal.counted(len(shown.origins), "document"))
    parts += [f"the store's documents: {', '.join(f'{count:,} by {name}' for name, count in engines.items())}"] if engines else []
    return "── " + " · ".join(parts)


def _show_files(console: Console, published: Published, sources: dict[str, Any]) -> None:
    manifest = published.manifest
    rows = [
        (visible(entry["name"]), used, terminal.number(entry["rows"]), terminal.size(entry["size"]), entry["sha256"][:16])
        for key, used in (("files", "training"), ("test_files", "testing"))
        for entry in sources[key]
    ]
    headings = ("file", "used for", "records", "size", "sha256")
    console.print(terminal.table(*headings, rows=rows, numbers=("records", "size"), title=manifest.label))
    counts = terminal.counted(manifest.counts["files"], "file"), terminal.counted(manifest.counts["read"], "record")
    console.print(f"── {' · '.join(counts)} · {terminal.near_url(published.where)}", style="dim")


# `prep-assets stats`: the figures in the manifests of an asset's stores.


def stats(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show counts, metrics, refused records by reason, lineage and files; of all partitions and in total where none is named."""
    workspace = terminal.opened()
    published, missing = terminal.stores_of(workspace, asset, partition)
    stores, total = [_facts(store) for store in published], _total(published)
    if as_json:
        terminal.print_json({"asset": asset, "stores": stores, "total": total, "not_built": missing})
        return
    console = terminal.out()
    _show_numbers(console, asset, stores, total)
    refused = [(facts["partition"], reason, terminal.number(count)) for facts in stores for reason, count in facts["refused"].items()]
    if refused:
        console.print(terminal.table("partition", "stage/reason", "records", rows=refused, numbers=("records",), title="refused"))
    if len(published) == 1:
        _show_lineage(console, published[0].manifest.label, stores[0])
        _show_payload(console, published[0])
    else:
        _show_places(console, asset, published)
    for name in missing:
        console.print(f"not built: {name}", style="dim")


def _facts(published: Published) -> dict[str, Any]:
    manifest = published.manifest
    return {
        "partition": manifest.partition,
        "path": published.where,
        "build_key": manifest.build_key,
        "content_hash": manifest.content_hash,
        "counts": {key: value for key, value in manifest.counts.items() if isinstance(value, int)},
        "metrics": dict(manifest.metrics),
        "refused": dict(manifest.counts.get("refused", {})),
        "recipe": dict(manifest.recipe),
        "checks": list(manifest.checks),
        "files": dict(manifest.files),
    }


def _total(published: Sequence[Published]) -> dict[str, Any]:
    """Summed counts, rejections and bytes. Metrics are ratios, so they are left out."""
    from prep_assets.explain.report import refused_counts, total_counts

    return {"counts": total_counts(published), "refused": refused_counts(published), "bytes": sum(map(_bytes, published))}


def _show_numbers(console: Console, asset: str, stores: list[dict[str, Any]], total: dict[str, Any]) -> None:
    """Print one figure per line for one store; else one store per line, and a total."""
    if len(stores) == 1:
        shown = terminal.table(
            "figure", "value", numbers=("value",), title=asset + (f"[{stores[0]['partition']}]" if stores[0]["partition"] else "")
        )
        for key, value in {**stores[0]["counts"], **stores[0]["metrics"]}.items():
            shown.add_row(key, terminal.number(value))
        shown.add_row("refused records", terminal.number(sum(total["refused"].values())))
    else:
        counts = list(total["counts"])
        metrics = list(dict.fromkeys(key for facts in stores for key in facts["metrics"]))
        # spaces, so that a narrow terminal folds them between words
        headings = tuple(key.replace("_", " ") for key in (*counts, "refused", *metrics))
        shown = terminal.table("partition", *headings, numbers=headings, title=asset)
        for facts in stores:
            refused = sum(facts["refused"].values())
            figures = [*map(facts["counts"].get, counts), refused, *map(facts["metrics"].get, metrics)]
            shown.add_row(facts["partition"], *map(terminal.number, figures))
        shown.add_section()
        figures = [*total["counts"].values(), sum(total["refused"].values()), *[None] * len(metrics)]
        shown.add_row("total", *map(terminal.number, figures), style="bold")
    console.print(shown)


def _show_places(console: Console, asset: str, published: list[Published]) -> None:
    manifests = [(store, store.manifest) for store in published]
    rows = [
        (
            manifest.partition,
            terminal.number(len(manifest.files)),
            terminal.size(_bytes(store)),
            manifest.content_hash[:16],
            terminal.near_url(store.where),
        )
        for store, manifest in manifests
    ]
    console.print(terminal.table("partition", "files", "size", "content", "store", rows=rows, numbers=("files", "size"), title="stores"))
    console.print(f"lineage and files of one: prep-assets stats {asset} -p {published[0].manifest.partition}", style="dim")


def _show_lineage(console: Console, name: str, facts: dict[str, Any]) -> None:
    texts = {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in facts["recipe"].items()}
    rows = [(key, visible(value)) for key, value in texts.items()]
    console.print(terminal.table("ingredient", "value", rows=rows, title=f"{name}: made from"))


def _show_payload(console: Console, published: Published) -> None:
    manifest = published.manifest
    rows = [(visible(name), terminal.size(entry["bytes"]), entry["sha256"][:16]) for name, entry in manifest.files.items()]
    title = f"{manifest.label}: files in {terminal.near_url(published.where)}"
    shown = terminal.table("file", "size", "sha256", rows=rows, numbers=("size",), title=title)
    shown.add_section()
    shown.add_row("total", terminal.size(_bytes(published)), f"content {manifest.content_hash[:16]}", style="bold")
    console.print(shown)


def _bytes(published: Published) -> int:
    return sum(entry["bytes"] for entry in published.manifest.files.values())


# `prep-assets quarantine`: rejected records.


def quarantine(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="R", help="Only this reason, e.g. too_long or schema/missing_field.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to show.")] = 10,
    as_json: terminal.AsJson = False,
) -> None:
    """Show refused records: where each comes from, why it was refused, and what it holds."""
    from itertools import islice

    from prep_assets.graph.graph import asset_named

    workspace = terminal.opened()
    published, _ = terminal.stores_of(workspace, asset, partition)
    above = asset_named(asset, workspace).upstream(workspace)
    counts = _counts(published, reason)
    console = terminal.out()
    if as_json:
        records = [
            {"store": store.manifest.label, **to_builtins(refusal)} for store, refusal in islice(_rejections(published, reason), count)
        ]
        listed = [{"store": name, "reason": stage_reason, "records": number} for name, stage_reason, number in counts]
        terminal.print_json({"counts": listed, "records": records})
        return
    if not counts:
        console.print(f"{asset}: no record was refused here" + "".join(f"; what feeds it: prep-assets quarantine {name}" for name in above))
        return
    rows = [(name, stage_reason, f"{number:,}") for name, stage_reason, number in counts]
    console.print(terminal.table("store", "stage/reason", "records", rows=rows, numbers=("records",)))
    for store, rejection in islice(_rejections(published, reason), count):
        console.print(_rejection_text(store.manifest.label, rejection))
    total = sum(number for _, _, number in counts)
    if total > count:
        console.print(f"… and {total - count:,} more: -n {total}", style="dim")


def _counts(published: list[Published], reason: str | None) -> list[tuple[str, str, int]]:
    """(store, stage/reason, count) of rejected records, for one reason or for all."""
    by_reason = [
        (store.manifest.label, stage_reason, count)
        for store in published
        for stage_reason, count in store.manifest.counts.get("refused", {}).items()
    ]
    matching = [entry for entry in by_reason if _matches_reason(reason, entry[1])]
    if by_reason and not matching:
        known = list(dict.fromkeys(stage_reason for _, stage_reason, _ in by_reason))
        words = [*known, *(stage_reason.partition("/")[2] for stage_reason in known)]
        raise ConfigError(f"no record was refused for {reason!r}{nearest(str(reason), words) or '.'} Reasons: {', '.join(known)}")
    return matching


def _matches_reason(reason: str | None, stage_reason: str) -> bool:
    return reason is None or reason in (stage_reason, stage_reason.partition("/")[2])


def _rejections(published: list[Published], reason: str | None) -> Iterator[tuple[Published, Refusal]]:
    from prep_assets.data.quarantine import read_quarantine

    for store in published:
        if store.quarantine is None:
            continue
        if not store.quarantine.is_file():
            raise StoreError(
                f"{store.manifest.label}: {store.quarantine} is gone, but the manifest counts refused records. Build the store again"
            )
        for rejection in read_quarantine(store.quarantine):
            if _matches_reason(reason, f"{rejection.stage}/{rejection.reason}"):
                yield store, rejection


def _rejection_text(name: str, rejection: Refusal) -> Text:
    cut = "" if len(rejection.payload) >= rejection.payload_length else f" … ({rejection.payload_length:,} long)"
    return Text.assemble(
        (f"{name} {visible(rejection.id)}", "bold"),
        ("  " + f"{rejection.stage}/{rejection.reason}", "yellow"),
        "\n  " + visible(rejection.detail),
        ("\n  " + visible(rejection.payload) + cut + "\n", "dim"),
    )


# `prep-assets leaks`: training examples that hold held-out texts.


def leaks(
    family: Annotated[str | None, typer.Argument(metavar="FAMILY", show_default=False, help="A family, e.g. sft. Default: all.")] = None,
    partition: terminal.Partition = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many leaks of each domain to show with their texts.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show which training examples hold texts of benchmarks or of other domains' test shares: which, how much, and both passages side by side."""
    from prep_assets.config.models import TRAINED, Eval
    from prep_assets.explain.leaks import shown_leaks
    from prep_assets.graph.graph import asset_and_partitions

    workspace = terminal.opened()
    workspace.family(Eval)
    if family is not None and family not in TRAINED:
        raise ConfigError(f"no family {family!r}{nearest(family, TRAINED) or '.'} There are: {', '.join(TRAINED)}")
    if partition and family is None:
        raise ConfigError(f"--partition {partition} needs a family: prep-assets leaks FAMILY --partition {partition}")
    stores, missing = [], []
    for name in [family] if family else [name for name in TRAINED if workspace.has(name)]:
        asset, partitions = asset_and_partitions(workspace, f"{name}_leaks", partition)
        for place in (workspace.place(asset.name, key) for key in partitions):
            if store := place.candidate() or place.current():  # a candidate is what leaks keep from being published
                stores.append((name, store))
            else:
                missing.append(place.label)
    shown = {store.manifest.label: list(shown_leaks(workspace, store, name, count)) for name, store in stores if count}
    if as_json:
        facts = [{"store": store.manifest.label, **store.manifest.counts, "policy": store.manifest.recipe["policy"]} for _, store in stores]
        terminal.print_json({"stores": facts, "leaks": to_builtins(shown), "not_built": missing})
        return
    console = terminal.out()
    rows = [
        (store.manifest.label, held, f"{found:,}", f"{store.manifest.counts['examples']:,}")
        for _, store in stores
        for held, found in (store.manifest.counts["by_set"] or {"–": 0}).items()
    ]
    console.print(terminal.table("store", "held out", "leaks", "examples", rows=rows, numbers=("leaks", "examples")))
    for label, found in shown.items():
        for leak in found:
            console.print(Text.assemble((f"{label} {leak.example}", "bold"), f" {leak.detail}"))
            sides = [
                Text.assemble(*((visible(part), style) for part, style in zip(text, ("dim", "bold", "dim"), strict=True)))
                for text in (leak.training, leak.held_out)
            ]
            console.print(terminal.table(leak.example, f"{leak.held} {leak.record}", rows=[sides]))
    for name in missing:
        console.print(f"not built: {name}", style="dim")


# `prep-assets report` and `view`: HTML pages about stores.

PAGES = Path("reports")
"""Default folder of the pages."""
COLUMNS = 140
"""Width of a trace on its page."""


def report(
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset, e.g. sft_packed; all, if left out.")
    ] = None,
    partition: terminal.Partition = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="The file to write, or with no asset the folder. [default: reports/]", show_default=False
        ),
    ] = None,
    candidate: Annotated[
        bool, typer.Option("--candidate", help="The store that was built last and is not published, because a check fails.")
    ] = False,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
) -> None:
    """Write a page about an asset's stores: what they hold, rows with masks and both derivations, what was refused, lineage.

    Each page is one file that needs no network. Without ASSET: a page for every asset that has a store, and index.html.
    """
    from prep_assets.explain.report import INDEX, write_page, write_site
    from prep_assets.explain.report import report as page

    if asset is None:
        if candidate:
            raise typer.BadParameter("say of which asset: prep-assets report ASSET --candidate", param_hint="--candidate")
        if partition is not None:
            raise typer.BadParameter("say of which asset: prep-assets report ASSET --partition P", param_hint="--partition")
        folder, pages = out or PAGES, list[Path]()
        with terminal.working() as workspace:
            write_site(workspace, terminal.built(workspace), folder, rows=rows, written=pages.append)
        for written in pages:
            _print_place(written)
        typer.echo(terminal.near(folder.absolute() / INDEX))
        return
    path = out or PAGES / f"{asset}{f'-{partition}' if partition else ''}.html"
    path = path / f"{asset}.html" if path.is_dir() else path
    with terminal.working() as workspace:
        stores, missing = (_candidates if candidate else terminal.stores_of)(workspace, asset, partition)
        with terminal.reading(stores[0]):
            write_page(path, page(workspace, stores, rows=rows, candidate=candidate))
    for name in missing:
        terminal.err().print(f"not built, and not on the page: {name}", style="yellow")
    _print_place(path)
    typer.echo(terminal.near(path.absolute()))


def _candidates(workspace: Workspace, asset: str, partition: str | None) -> tuple[list[Published], list[str]]:
    from prep_assets.graph.graph import asset_and_partitions

    definition, partitions = asset_and_partitions(workspace, asset, partition)
    places = [workspace.place(definition.name, key) for key in partitions]
    stores = [store for store in (place.candidate() for place in places) if store is not None]
    if not stores:
        raise StoreError(f"{asset} has no store that waits for its checks: what was built last is published, or nothing was built")
    return stores, []


def _print_place(path: Path) -> None:
    terminal.err().print(f"✓ {path} ({terminal.size(path.stat().st_size)})", style="dim")


def view(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where it listens, on this machine only; 0 takes a free one.")
    ] = PORT,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve the pages of `report` for all stores, with a search over whole stores, until Ctrl-C. It writes nothing."""
    from prep_assets.explain.report import server
    from prep_assets.pipeline.workspace import Workspace

    serving = server(Workspace.open, terminal.every_store, port, rows=rows, trace=_trace)
    address = f"http://{HOST}:{serving.server_port}/"
    typer.echo(address)
    terminal.err().print("Ctrl-C stops it", style="dim")
    if browser:
        typer.launch(address)
    try:
        serving.serve_forever()
    finally:
        serving.server_close()


def _trace(workspace: Workspace, asset: str, partition: str, query: Mapping[str, str]) -> str:
    """The output of `prep-assets trace`, as text."""
    import io

    from prep_assets.cli.trace import show_trace
    from prep_assets.explain.trace import trace

    numbers = {key: query.get(key, "0" if key == "row" else "") for key in ("row", "token")}
    if any(value and not value.isdecimal() for value in numbers.values()):
        raise ConfigError(f"a row and a token are numbers, counted from 0: {numbers}")
    row_trace = trace(workspace, asset, int(numbers["row"]), partition=partition or None, stream=query.get("stream") or None)
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, soft_wrap=True)
    show_trace(console, row_trace, int(numbers["token"]) if numbers["token"] else None)
    return console.export_text()
