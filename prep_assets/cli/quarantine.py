"""`prep-assets quarantine`: the records that were refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from prep_assets.cli.console import out, table
from prep_assets.cli.find import AssetName, Partition, opened, stores_of
from prep_assets.cli.tokens import visible
from prep_assets.errors import ConfigError, StoreError, nearest

if TYPE_CHECKING:
    from prep_assets.records.quarantine import Refusal
    from prep_assets.stores.published import Published


def quarantine(
    asset: AssetName,
    partition: Partition = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="R", help="Only this reason, e.g. too_long or schema/missing_field.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to show.")] = 10,
) -> None:
    """Show refused records: where each comes from, why it was refused, and what it holds."""
    from itertools import islice

    from prep_assets.assets.graph import asset_named

    workspace = opened()
    published, _ = stores_of(workspace, asset, partition)
    above = asset_named(asset, workspace).upstream
    counts = _counts(published, reason)
    console = out()
    if not counts:
        console.print(f"{asset}: no record was refused here" + "".join(f"; what feeds it: prep-assets quarantine {name}" for name in above))
        return
    rows = [(name, which, f"{number:,}") for name, which, number in counts]
    console.print(table("store", "stage/reason", "records", rows=rows, numbers=("records",)))
    for store, refusal in islice(_refusals(published, reason), count):
        console.print(_described(store.manifest.label, refusal))
    total = sum(number for _, _, number in counts)
    if total > count:
        console.print(f"… and {total - count:,} more: -n {total}", style="dim")


def _counts(published: list[Published], reason: str | None) -> list[tuple[str, str, int]]:
    """Store, stage/reason and number of the refused records that were asked for."""
    every = [(each.manifest.label, which, count) for each in published for which, count in each.manifest.counts.get("refused", {}).items()]
    chosen = [entry for entry in every if _fits(reason, entry[1])]
    if every and not chosen:
        known = list(dict.fromkeys(which for _, which, _ in every))
        words = [*known, *(which.partition("/")[2] for which in known)]
        raise ConfigError(f"no record was refused for {reason!r}{nearest(str(reason), words) or '.'} Reasons: {', '.join(known)}")
    return chosen


def _fits(reason: str | None, which: str) -> bool:
    return reason is None or reason in (which, which.partition("/")[2])


def _refusals(published: list[Published], reason: str | None) -> Iterator[tuple[Published, Refusal]]:
    from prep_assets.records.quarantine import read_quarantine

    for each in published:
        if each.quarantine is None:
            continue
        if not each.quarantine.is_file():
            raise StoreError(
                f"{each.manifest.label}: {each.quarantine} is gone, but the manifest counts refused records. Build the store again"
            )
        for refusal in read_quarantine(each.quarantine):
            if _fits(reason, f"{refusal.stage}/{refusal.reason}"):
                yield each, refusal


def _described(name: str, refusal: Refusal) -> Text:
    cut = "" if len(refusal.payload) >= refusal.payload_length else f" … ({refusal.payload_length:,} long)"
    return Text.assemble(
        (f"{name} {visible(refusal.id)}", "bold"),
        ("  " + f"{refusal.stage}/{refusal.reason}", "yellow"),
        "\n  " + visible(refusal.detail),
        ("\n  " + visible(refusal.payload) + cut + "\n", "dim"),
    )
