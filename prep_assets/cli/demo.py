"""`prep-assets demo`: from a fresh clone to a packed table, with a look at what is in it. `make demo` calls it."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from prep_assets.cli.console import Live, counted, near, out, size, table
from prep_assets.cli.find import opened

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.stores.published import Published

ASSET = "sft_packed"
PREVIEW_TOKENS = 400
NEXT: tuple[tuple[str, str], ...] = (
    (f"prep-assets build {ASSET}", "what a script calls; builds what is missing or out of date, and nothing else"),
    (f"dagster asset materialize --select {ASSET}", "the same, in Dagster's history"),
    ("dagster dev", "the same in the browser: the graph, checks, previews"),
    (f"prep-assets inspect {ASSET} --row 1", "another row, with what is trained in it"),
    ("prep-assets verify", "every check on every store again"),
)


def demo() -> None:
    """Build the packed SFT table from the configured data sets, if it is not there yet, and show what is in it."""
    from prep_assets.engine import build

    started = time.monotonic()
    workspace = opened()
    console = out()
    console.print(f"building {ASSET} from {near(workspace.configs / 'sft.yaml')}", style="dim")
    with Live(console) as live:
        published = build(workspace, ASSET, tell=live)[0].published
    _summary(console, workspace, published, time.monotonic() - started)
    _preview(console, workspace, published)
    _next(console)


# -- showing ----------------------------------------------------------------------------------------------------------------------------


def _summary(console: Console, workspace: Workspace, published: Published, seconds: float) -> None:
    from rich.panel import Panel
    from rich.table import Table

    manifest = published.manifest
    counts, metrics = manifest.counts, manifest.metrics
    shares = {key.removeprefix("share_"): value for key, value in metrics.items() if key.startswith("share_")}
    grid = Table.grid(padding=(0, 2))
    for key, value in (
        ("rows", f"{counts['rows']:,} of {manifest.recipe['packing']['row_len']:,} tokens"),
        ("tokens", f"{counts['tokens']:,}"),
        ("trained", f"{counts['trained_tokens']:,} ({metrics['trained_fraction']:.1%})"),
        ("fill rate", f"{metrics['fill_rate']:.2%}"),
        ("domains", ", ".join(f"{name} {share:.1%}" for name, share in shares.items())),
        ("refused", _refused(workspace)),
        (
            "store",
            f"{near(workspace.place(ASSET).directory / 'current')} ({size(sum(entry['bytes'] for entry in manifest.files.values()))})",
        ),
        ("took", f"{seconds:.1f} s"),
    ):
        grid.add_row(key, value)
    console.print(Panel(grid, title=ASSET, title_align="left", border_style="green", expand=False))


def _refused(workspace: Workspace) -> str:
    """Refused records on the way to the table, by reason."""
    from prep_assets.config.models import Sft

    reasons: dict[str, int] = {}
    for domain in workspace.family(Sft).domains:
        for asset in ("sft_raw", "sft_tokens"):
            published = workspace.published(asset, domain)
            for reason, count in published.manifest.counts.get("refused", {}).items() if published else ():
                reasons[reason] = reasons.get(reason, 0) + count
    named = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return counted(sum(reasons.values()), "record") + (f" ({named})" if named else "")


def _preview(console: Console, workspace: Workspace, published: Published) -> None:
    from prep_assets.cli.inspect import show_row

    console.print()
    show_row(console, workspace, published, 0, most=PREVIEW_TOKENS)


def _next(console: Console) -> None:
    programs, commands = Path(sys.executable).parent, NEXT
    if shutil.which("prep-assets") is None and (programs / "activate").is_file():
        commands = ((f". {near(programs / 'activate')}", "first, so that the commands below are found"), *NEXT)
    console.print(table("what to type next", "", rows=[(Text(command, "bold"), why) for command, why in commands]))
