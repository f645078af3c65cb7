"""`prep-assets inspect`, `stats` and `quarantine`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from msgspec import to_builtins
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.stores import one_store, reading, stores_of
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.extensions.explain.figures import refused_counts, total_counts
from prep_assets.extensions.explain.previews import row as row_of
from prep_assets.extensions.explain.streams import found_rows
from prep_assets.extensions.explain.verdicts import found_of, is_quality
from prep_assets.graph.graph import asset_named
from prep_assets.pipeline.workspace import Workspace, arguments
from prep_assets.stores.manifest import Manifest, label_of
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import visible


@with_json
def inspect(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    row: Annotated[
        int | None, typer.Option("--row", "-r", help="Row, record or line, counted from 0. Of verdicts: the first found.")
    ] = None,
    stream: terminal.Stream = None,
    ids: Annotated[bool, typer.Option("--ids", help="One token a line, with its id, position and loss weight.")] = False,
    as_json: bool = False,
) -> Answer:
    workspace = Workspace.open()
    published = one_store(workspace, asset, partition, last=is_quality(asset))
    with reading(published):
        shown = row_of(workspace, published, row, stream=stream)
    return Answer(shown.row, lambda console: shown.show(console, ids=ids))


@with_json
def stats(asset: terminal.AssetName, partition: terminal.Partition = None) -> Answer:
    published, missing = stores_of(Workspace.open(), asset, partition)
    stores, total = [_facts(store) for store in published], _total(published)

    def show(console: Console) -> None:
        console.print(_numbers(asset, stores, total))
        refused = [(facts["partition"], reason, terminal.number(count)) for facts in stores for reason, count in facts["refused"].items()]
        if refused:
            console.print(terminal.table("partition", "stage/reason", "records", rows=refused, numbers=("records",), title="refused"))
        if len(published) == 1:
            console.print(_lineage(published[0].manifest), _payload(published[0]), sep="\n")
        else:
            console.print(_places(published))
            first = arguments(asset, published[0].manifest.partition)
            console.print(f"lineage and files of one: prep-assets stats {first}", style="dim")
        for name in missing:
            console.print(f"not built: {name}", style="dim")

    return Answer({"asset": asset, "stores": stores, "total": total, "not_built": missing}, show)


def _facts(published: Published) -> dict[str, Any]:
    manifest = published.manifest
    return {
        **{name: getattr(manifest, name) for name in ("partition", "build_key", "content_hash", "metrics", "recipe", "checks", "files")},
        "path": published.where,
        "counts": {key: value for key, value in manifest.counts.items() if isinstance(value, int)},
        "refused": manifest.counts.get("refused", {}),
    }


def _total(published: Sequence[Published]) -> dict[str, Any]:
    """Summed counts, rejections and bytes. Metrics are ratios, so they are left out."""
    return {"counts": total_counts(published), "refused": refused_counts(published), "bytes": sum(map(_bytes, published))}


def _numbers(asset: str, stores: list[dict[str, Any]], total: dict[str, Any]) -> Table:
    """One figure per line for one store; else one store per line, and a total."""
    if len(stores) == 1:
        partition = stores[0]["partition"]
        shown = terminal.table("figure", "value", numbers=("value",), title=label_of(asset, partition))
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
    return shown


def _places(published: Sequence[Published]) -> Table:
    rows = [
        (
            store.manifest.partition,
            terminal.number(len(store.manifest.files)),
            terminal.size(_bytes(store)),
            store.manifest.content_hash[:16],
            terminal.near_url(store.where),
        )
        for store in published
    ]
    return terminal.table("partition", "files", "size", "content", "store", rows=rows, numbers=("files", "size"), title="stores")


def _lineage(manifest: Manifest) -> Table:
    rows = [
        (key, visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))) for key, value in manifest.recipe.items()
    ]
    return terminal.table("ingredient", "value", rows=rows, title=f"{manifest.label}: made from")


def _payload(published: Published) -> Table:
    manifest = published.manifest
    rows = [(visible(name), terminal.size(entry["bytes"]), entry["sha256"][:16]) for name, entry in manifest.files.items()]
    title = f"{manifest.label}: files in {terminal.near_url(published.where)}"
    shown = terminal.table("file", "size", "sha256", rows=rows, numbers=("size",), title=title)
    shown.add_section()
    shown.add_row("total", terminal.size(_bytes(published)), f"content {manifest.content_hash[:16]}", style="bold")
    return shown


def _bytes(published: Published) -> int:
    return sum(entry["bytes"] for entry in published.manifest.files.values())


@with_json
def quarantine(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="R", help="Only this reason, e.g. too_long or schema/missing_field.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to show.")] = 10,
) -> Answer:
    workspace = Workspace.open()
    published, _ = stores_of(workspace, asset, partition, last=True)
    held_back = [store.manifest.label for store in published if workspace.published(asset, store.manifest.partition) != store]
    counts, records = _counts(published, reason), list(islice(_rejections(workspace, published, reason, count), count))

    def show(console: Console) -> None:
        for name in held_back:
            console.print(f"{name}: of the last build, which is not published because a check fails", style="yellow")
        if not counts:
            above = asset_named(asset, workspace).upstream(workspace)
            feeds = "".join(f"; what feeds it: prep-assets quarantine {name}" for name in above)
            console.print(f"{asset}: no record was {'found' if is_quality(asset) else 'refused'} here{feeds}")
            return
        rows = [(name, stage_reason, f"{number:,}") for name, stage_reason, number in counts]
        console.print(terminal.table("store", "stage/reason", "records", rows=rows, numbers=("records",)))
        for name, rejection in records:
            console.print(_rejection_text(name, rejection))
        total = sum(number for _, _, number in counts)
        if total > count:
            console.print(f"… and {total - count:,} more: -n {total}", style="dim")

    listed = [{"store": name, "reason": stage_reason, "records": number} for name, stage_reason, number in counts]
    return Answer({"counts": listed, "records": [{"store": name, **to_builtins(rejection)} for name, rejection in records]}, show)


def _counts(published: list[Published], reason: str | None) -> list[tuple[str, str, int]]:
    """(store, stage/reason, count) of rejected records, for one reason or for all."""
    by_reason = [
        (store.manifest.label, stage_reason, count)
        for store in published
        for stage_reason, count in (
            Counter(f"{stage}/{name}" for _, stage, name, _ in found_of(store))
            if is_quality(store.manifest.asset)
            else store.manifest.counts.get("refused", {})
        ).items()
    ]
    matching = [entry for entry in by_reason if _matches_reason(reason, entry[1])]
    if by_reason and not matching:
        known = list(dict.fromkeys(stage_reason for _, stage_reason, _ in by_reason))
        words = [*known, *(stage_reason.partition("/")[2] for stage_reason in known)]
        raise ConfigError(f"no record was refused for {reason!r}{nearest(str(reason), words) or '.'} Reasons: {', '.join(known)}")
    return matching


def _matches_reason(reason: str | None, stage_reason: str) -> bool:
    return reason is None or reason in (stage_reason, stage_reason.partition("/")[2])


def _rejections(workspace: Workspace, published: list[Published], reason: str | None, most: int) -> Iterator[tuple[str, Refusal]]:
    for store in published:
        if is_quality(store.manifest.asset):
            found = found_rows(workspace, store, partial(_matches_reason, reason), most)
            yield from ((store.manifest.label, rejection) for rejection in found)
        if store.quarantine is None:
            continue
        if not store.quarantine.is_file():
            raise StoreError(
                f"{store.manifest.label}: {store.quarantine} is gone, but the manifest counts refused records. Build the store again"
            )
        for rejection in read_quarantine(store.quarantine):
            if _matches_reason(reason, f"{rejection.stage}/{rejection.reason}"):
                yield store.manifest.label, rejection


def _rejection_text(name: str, rejection: Refusal) -> Text:
    cut = "" if len(rejection.payload) >= rejection.payload_length else f" … ({rejection.payload_length:,} long)"
    return Text.assemble(
        (f"{name} {visible(rejection.id)}", "bold"),
        ("  " + f"{rejection.stage}/{rejection.reason}", "yellow"),
        "\n  " + visible(rejection.detail),
        ("\n  " + visible(rejection.payload) + cut + "\n", "dim"),
    )
