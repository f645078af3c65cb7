"""Pages of several assets in one folder, with a first page that lists them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prep_assets.assets.workspace import Workspace
from prep_assets.reports.page import first_page
from prep_assets.reports.report import ROWS, report
from prep_assets.stores.published import Published

INDEX = "index.html"


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
        rows: how many rows each page holds at most.
        written: told about each page.

    Raises:
        StoreError: a payload cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, stores in assets.items():
        write_page(folder / f"{name}.html", report(workspace, stores, rows=rows))
        written(folder / f"{name}.html")
    write_page(folder / INDEX, first_page(assets))


def write_page(path: Path, html: str) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    fresh.write_text(html, "utf-8")
    fresh.replace(path)
