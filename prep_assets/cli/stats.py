"""`prep-assets stats`: what the manifests of an asset's stores say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from prep_assets.cli.console import near_url, number, out, print_json, size, table
from prep_assets.cli.find import AssetName, Partition, opened, stores_of
from prep_assets.cli.tokens import visible

if TYPE_CHECKING:
    from prep_assets.stores.published import Published


def stats(
    asset: AssetName,
    partition: Partition = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show counts, metrics, refused records by reason, lineage and files; of all partitions and in total where none is named."""
    workspace = opened()
    published, missing = stores_of(workspace, asset, partition)
    stores = [_facts(each) for each in published]
    if as_json:
        print_json({"asset": asset, "stores": stores, "total": _total(stores), "not_built": missing})
        return
    console = out()
    _show_numbers(console, asset, stores)
    _show_refused(console, stores)
    if len(published) == 1:
        _show_lineage(console, published[0].manifest.label, stores[0])
        _show_files(console, published[0])
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
        "counts": _numbers(manifest.counts),
        "metrics": dict(manifest.metrics),
        "refused": dict(manifest.counts.get("refused", {})),
        "recipe": dict(manifest.recipe),
        "checks": list(manifest.checks),
        "files": dict(manifest.files),
    }


def _numbers(counts: Mapping[str, Any]) -> dict[str, int]:
    return {key: value for key, value in counts.items() if isinstance(value, int)}


def _total(stores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and refusals added up. Metrics are ratios, which do not add up."""
    counts, refused = Counter[str](), Counter[str]()
    for facts in stores:
        counts.update(facts["counts"])
        refused.update(facts["refused"])
    size_of_files = sum(entry["bytes"] for facts in stores for entry in facts["files"].values())
    return {"counts": dict(counts), "refused": dict(refused), "bytes": size_of_files}


def _show_numbers(console: Console, asset: str, stores: list[dict[str, Any]]) -> None:
    """One store: a figure a line. Several: a store a line, the figures side by side, and a total."""
    total = _total(stores)
    if len(stores) == 1:
        shown = table(
            "figure", "value", numbers=("value",), title=asset + (f"[{stores[0]['partition']}]" if stores[0]["partition"] else "")
        )
        for key, value in {**stores[0]["counts"], **stores[0]["metrics"]}.items():
            shown.add_row(key, number(value))
        shown.add_row("refused records", number(sum(total["refused"].values())))
    else:
        counts = list(total["counts"])
        metrics = list(dict.fromkeys(key for facts in stores for key in facts["metrics"]))
        # a narrow terminal folds them between words
        headings = tuple(key.replace("_", " ") for key in (*counts, "refused", *metrics))
        shown = table("partition", *headings, numbers=headings, title=asset)
        for facts in stores:
            refused = sum(facts["refused"].values())
            figures = [*map(facts["counts"].get, counts), refused, *map(facts["metrics"].get, metrics)]
            shown.add_row(facts["partition"], *map(number, figures))
        shown.add_section()
        figures = [*total["counts"].values(), sum(total["refused"].values()), *[None] * len(metrics)]
        shown.add_row("total", *map(number, figures), style="bold")
    console.print(shown)


def _show_refused(console: Console, stores: list[dict[str, Any]]) -> None:
    if not any(facts["refused"] for facts in stores):
        return
    rows = [(facts["partition"], reason, number(count)) for facts in stores for reason, count in facts["refused"].items()]
    console.print(table("partition", "stage/reason", "records", rows=rows, numbers=("records",), title="refused"))


def _show_places(console: Console, asset: str, published: list[Published]) -> None:
    made = [(each, each.manifest) for each in published]
    rows = [(m.partition, number(len(m.files)), size(_bytes(each)), m.content_hash[:16], near_url(each.where)) for each, m in made]
    console.print(table("partition", "files", "size", "content", "store", rows=rows, numbers=("files", "size"), title="stores"))
    console.print(f"lineage and files of one: prep-assets stats {asset} -p {published[0].manifest.partition}", style="dim")


def _show_lineage(console: Console, name: str, facts: dict[str, Any]) -> None:
    said = {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in facts["recipe"].items()}
    rows = [(key, visible(value)) for key, value in said.items()]
    console.print(table("ingredient", "value", rows=rows, title=f"{name}: made from"))


def _show_files(console: Console, published: Published) -> None:
    manifest = published.manifest
    rows = [(visible(name), size(entry["bytes"]), entry["sha256"][:16]) for name, entry in manifest.files.items()]
    title = f"{manifest.label}: files in {near_url(published.where)}"
    shown = table("file", "size", "sha256", rows=rows, numbers=("size",), title=title)
    shown.add_section()
    shown.add_row("total", size(_bytes(published)), f"content {manifest.content_hash[:16]}", style="bold")
    console.print(shown)


def _bytes(published: Published) -> int:
    return sum(entry["bytes"] for entry in published.manifest.files.values())
