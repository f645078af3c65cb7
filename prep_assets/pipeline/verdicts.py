"""Read the verdicts of quality steps: which rows of a domain they drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from prep_assets.errors import Refused, StoreError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.guards import Guards
from prep_assets.stores.version_folders import Published

STAGE = "quality"
"""Stage of the rejections of dropped rows."""
VERDICTS = "verdicts.parquet"


class Dropped(Struct, frozen=True):
    """The rows of a domain that quality steps drop.

    Attributes:
        rows: file and row → reason and detail.
    """

    rows: Mapping[tuple[int, int], tuple[str, str]]

    def refusal(self, file: int, row: int) -> Refused | None:
        """The rejection of a row; `None` if it is kept."""
        found = self.rows.get((file, row))
        return None if found is None else Refused(found[0], found[1], stage=STAGE)


def dropped_rows(workspace: Workspace, family: str, name: str) -> Dropped:
    """The rows of a domain that its quality store drops.

    Raises:
        StoreError: there is no such store; the message has the command that builds it.
    """
    return Dropped(dict(_dropped(workspace.built(f"{family}_quality", name))))


def _dropped(published: Published) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    import pyarrow.compute as pc

    table = read_verdicts(published, ["file", "row", "dropped", "detail"])
    table = table.filter(pc.is_valid(table["dropped"]))
    file, row, reason, detail = (table[name].to_pylist() for name in ("file", "row", "dropped", "detail"))
    yield from zip(zip(file, row, strict=True), zip(reason, detail, strict=True), strict=True)


def read_verdicts(published: Published, columns: Sequence[str] | None = None) -> Any:
    """The verdicts of a store as a table of Arrow, a row for each example in the order of the sources.

    Columns: `file` and `row`, where its record stands; `dropped`, the reason for which it is dropped, and `detail`, both null for a kept one; and
    ``<step>.<note>`` for what steps note.

    Raises:
        StoreError: the file is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = published.directory / VERDICTS
    try:
        return pq.read_table(Guards().whole(path), columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} is missing or damaged ({error}). Build the store again") from error
