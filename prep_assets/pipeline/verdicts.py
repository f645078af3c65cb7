"""Read verdicts: which rows of a domain its quality steps, or the search for held-out texts, drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from prep_assets import plugins
from prep_assets.config.family import Family
from prep_assets.data.quarantine import renumbered
from prep_assets.errors import Refused, StoreError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.guards import Guards
from prep_assets.stores.verification import WrittenFile
from prep_assets.stores.version_folders import Published

QUALITY, LEAKS = "quality", "leaks"
"""The last words of the assets that judge rows, and the stages of the rejections of what they drop."""
VERDICTS = "verdicts.parquet"
FOUND = "found"
"""The column of what steps found of an example that note or block: ``step/reason (action): detail``."""


class Dropped(Struct, frozen=True):
    """The rows of a domain that verdicts drop.

    Attributes:
        rows: file and row → stage, reason and detail.
    """

    rows: Mapping[tuple[int, int], tuple[str, str, str]]

    def refusal(self, file: int, row: int) -> Refused | None:
        """The rejection of a row; `None` if it is kept."""
        if (found := self.rows.get((file, row))) is None:
            return None
        stage, reason, detail = found
        return Refused(reason, detail, stage=stage)


def dropping(workspace: Workspace, kind: type[Family]) -> tuple[str, ...]:
    """Which assets of a family drop rows of its domains, by their last words: the entry points of `prep_assets.verdicts` that say so."""
    return tuple(name for name, entry in plugins.entries("verdicts").items() if plugins.part_of(entry, "drops")(workspace, kind))


def uncovered(counts: Mapping[str, Any]) -> str:
    """Which held-out texts no rule can find, as a sentence; ``""`` if each can be found."""
    short = [f"{count:,} of {total:,} texts of {label}" for label, (count, total) in counts.get("uncovered", {}).items()]
    return f"{', '.join(short)} cannot be found: no rule has passages that short, or their schema rejects them" if short else ""


def dropped_rows(workspace: Workspace, family: str, name: str, stages: Sequence[str]) -> Dropped:
    """The rows of a domain that verdicts drop.

    Args:
        stages: whose, see `dropping`.

    Raises:
        StoreError: there are no such verdicts; the message has the command that builds them.
    """
    return Dropped({at: found for stage in stages for at, found in _dropped(workspace.built(f"{family}_{stage}", name), stage)})


def _dropped(published: Published, stage: str) -> Iterator[tuple[tuple[int, int], tuple[str, str, str]]]:
    import pyarrow.compute as pc

    table = read_verdicts(published, ["file", "row", "dropped", "detail"])
    table = table.filter(pc.is_valid(table["dropped"]))
    for file, row, reason, detail in zip(*(column.to_pylist() for column in table.columns), strict=True):
        yield (file, row), (stage, reason, renumbered(detail, 1) if stage == LEAKS else detail)


def read_verdicts(published: Published, columns: Sequence[str] | None = None) -> Any:
    """The verdicts of a store as a table of Arrow, in the order of the sources.

    Columns: `file` and `row`, where its record stands; `dropped`, the reason for which it is dropped, and `detail`, both null for a kept one; and for
    quality steps, which have a row for each example, ``<step>.<note>`` for what they note.

    Raises:
        StoreError: the file is missing or damaged.
    """
    return read_table(published, VERDICTS, columns)


def read_table(published: Published, name: str, columns: Sequence[str] | None = None) -> Any:
    """A Parquet file of a store as a table of Arrow.

    Raises:
        StoreError: the file is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = published.directory / name
    try:
        return pq.read_table(Guards().whole(path), columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} is missing or damaged ({error}). Build the store again") from error


def write_table(path: Path, table: Any) -> None:
    """Write a table of Arrow as a Parquet file of a store."""
    import pyarrow.parquet as pq

    with WrittenFile(path) as file:
        pq.write_table(table, file, compression="zstd")
