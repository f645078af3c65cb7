"""`prep-assets demo`: from a fresh clone to a packed table, with a look at what is in it. `make demo` calls it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from prep_assets.cli.console import counted, err, near, out, size, table
from prep_assets.errors import StoreError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from prep_assets.pipelines.workspace import Workspace
    from prep_assets.stores.published import Published

ASSET = "sft_packed"
BUILD = ("-m", "dagster", "asset", "materialize", "--select", ASSET, "-m", "prep_assets.definitions")
TAIL = 30
"""Lines of the log that are shown of a build that failed."""
PREVIEW_TOKENS = 400
NEXT = (
    ("dagster dev", "the same in the browser: the graph, checks, previews"),
    (f"dagster asset materialize --select {ASSET}", "what a script calls; builds what is missing upstream"),
    (f"prep-assets inspect {ASSET} --row 1", "another row, with what is trained in it"),
    ("prep-assets verify", "every check on every store again"),
)


def demo() -> None:
    """Build the packed SFT table from the configured data sets, if it is not there yet, and show what is in it."""
    from prep_assets.pipelines.graph import ASSETS, state
    from prep_assets.pipelines.workspace import Workspace

    started = time.monotonic()
    workspace = Workspace.open()
    console = out()
    if state(workspace, ASSETS[ASSET], "") == "current":
        console.print(f"{ASSET} is up to date: nothing to do", style="green")
    else:
        _build(workspace, console)
    published = workspace.published(ASSET)
    if published is None:
        raise StoreError(f"the build says that it succeeded, but there is no store of {ASSET} in {workspace.stores}")
    _summary(console, workspace, published, time.monotonic() - started)
    _preview(console, workspace, published)
    _next(console)


# -- building ---------------------------------------------------------------------------------------------------------------------------


def _build(workspace: Workspace, console: Console) -> None:
    """Run the build as a script would, its log in a file and the gist of it on screen; its exit code is passed on."""
    from prep_assets.config.loading import checkout

    root = checkout() or Path.cwd()
    log = root / "data" / "demo.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    console.print(f"building {ASSET} from {near(workspace.configs / 'sft.yaml')}; the full log is {near(log)}")
    tail: deque[str] = deque(maxlen=TAIL)
    code = _run(workspace, root, log, tail, console)
    if code:
        err().print("".join(tail), soft_wrap=True)
        err().print(f"the build failed with exit code {code}; the full log is {near(log)}", style="bold red", soft_wrap=True)
        raise typer.Exit(code)


def _run(workspace: Workspace, root: Path, log: Path, tail: deque[str], console: Console) -> int:
    """Exit code of the build; 128 + n where signal n ended it."""
    with log.open("w", encoding="utf-8") as file, console.status("starting Dagster") as spinner, _started(workspace, root) as process:
        try:
            _follow(process, file, tail, console, spinner)
        except BaseException:
            process.terminate()
            raise
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _started(workspace: Workspace, root: Path) -> subprocess.Popen[str]:
    # the build runs in another folder, where relative paths would mean something else
    environment = {**os.environ, "PREP_ASSETS_CONFIG_DIR": str(workspace.configs), "PREP_ASSETS_STORE_DIR": str(workspace.stores)}
    command, pipe, joined = [sys.executable, *BUILD], subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(command, cwd=root, env=environment, stdout=pipe, stderr=joined, encoding="utf-8", errors="replace")


def _follow(process: subprocess.Popen[str], log: TextIO, tail: deque[str], console: Console, spinner: Status) -> None:
    """Write every line to the log, the last ones to `tail`, and say on screen what is new."""
    from rich.text import Text

    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        log.write(line)
        if not line.startswith(('  File "', "    ")):  # frames of a traceback say nothing to somebody who waits
            tail.append(line)
        finished, now = gist(line)
        if finished and finished not in said:
            said.append(finished)
            console.print(finished, soft_wrap=True)
        if now:
            spinner.update(Text(now))


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BUILT = re.compile(r" - (\S+): (written|nothing to do, the store is there): ")
_CHECKED = re.compile(r" - ASSET_CHECK_EVALUATION - Asset check '(\S+)' on '(\S+)' (passed|did not pass)")
_FAILED = re.compile(r"^dagster\._core\.definitions\.events\.Failure: (.+)$")
_STEP = re.compile(r' - STEP_START - Started execution of step "(\S+)"')
_SAID = re.compile(r" - dagster - (?:INFO|WARNING|ERROR) - .* - (.+: .+)$")


def gist(line: str) -> tuple[str, str]:
    """What a line of Dagster's log says to somebody who waits: what is finished, and what is going on; either may be empty."""
    line = _COLOURS.sub("", line).rstrip()
    if found := _BUILT.search(line):
        return f"  ✓ {found[1]} {'built' if found[2] == 'written' else 'is there already'}", ""
    if found := _CHECKED.search(line):
        return (f"  ✓ {found[2]} {found[1]}" if found[3] == "passed" else f"  ✗ {found[2]} {found[1]} failed"), ""
    if found := _FAILED.search(line):
        return f"  ✗ {found[1]}", ""
    if found := _STEP.search(line):
        return "", found[1]
    found = _SAID.search(line)
    return "", found[1] if found else ""


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
    from rich.text import Text

    shown = table("what to type next", "")
    for command, why in NEXT:
        shown.add_row(Text(command, "bold"), why)
    console.print(shown)
