"""What quality steps found in the rows of a store."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.pipeline.verdicts import FOUND, QUALITY, read_verdicts
from prep_assets.stores.version_folders import Published


def is_quality(asset: str) -> bool:
    """Whether an asset keeps the verdicts of quality steps."""
    return asset.endswith(f"_{QUALITY}")


def found_of(published: Published) -> Iterator[tuple[tuple[int, int], str, str, str]]:
    """File and row, stage, reason and detail of everything that the quality steps of a store found, in the order of the sources."""
    table = read_verdicts(published)
    for verdict in table.select([name for name in ("file", "row", "dropped", "detail", FOUND) if name in table.column_names]).to_pylist():
        at = verdict["file"], verdict["row"]
        if verdict["dropped"] is not None:
            yield at, QUALITY, verdict["dropped"], verdict["detail"]
        for found in verdict.get(FOUND, ()):
            step, _, rest = found.partition("/")
            reason, _, detail = rest.partition("): ")  # behind the action: a reason may have a colon
            yield at, step, f"{reason})", detail


def first_row(published: Published) -> int:
    """The number of the row of a store that one looks at first: of verdicts the first that found anything."""
    if not is_quality(published.manifest.asset):
        return 0
    table = read_verdicts(published)
    columns = [table[name].to_pylist() for name in ("dropped", FOUND) if name in table.column_names]
    return next((number for number, found in enumerate(zip(*columns, strict=True)) if any(found)), 0)
