"""Lines of JSONL stores, ready to be looked at."""

from __future__ import annotations

from typing import Any

from prep_assets.assets.previews.row import check_row
from prep_assets.assets.stage import Store
from prep_assets.stores.lines import open_lines


def line_preview(store: Store, row: int, stream: str | None, limit: int) -> dict[str, Any]:
    """Line `row` of the file `stream`, else of the first that the store has."""
    listed = (name for name in store.asset.streams if (store.directory / f"{name}.jsonl").is_file())
    lines = open_lines(store.directory, stream or next(listed))
    check_row(store, row, len(lines))
    return next(content for number, content in enumerate(lines) if number == row)
