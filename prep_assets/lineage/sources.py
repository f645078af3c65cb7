"""Rows of source files, read again by their numbers."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import closing
from typing import Any

from prep_assets.assets.reading.pinned import Pinned, domain_of, pinned, read_sources
from prep_assets.assets.reading.routing import router_of
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, StoreError
from prep_assets.lineage.rows import Origin
from prep_assets.records.blocks import Unreadable
from prep_assets.records.files import SourceFile
from prep_assets.records.read import read_blocks
from prep_assets.samples import Record

Rows = Mapping[tuple[int, int], Record | Unreadable]
"""By number of the file in the domain and row in the file."""


def files_of(workspace: Workspace, raw: str, domain: str) -> tuple[SourceFile, ...]:
    """The files of a domain as records number them: those to train on, then those held out.

    Raises:
        SourceError: a file changed since it was pinned.
    """
    found = _pinned(workspace, raw, domain)
    return (*found.files, *found.test_files)


def _pinned(workspace: Workspace, raw: str, domain: str) -> Pinned:
    return pinned(workspace, FAMILIES[raw.removesuffix("_raw")], raw, domain)


def read_rows(workspace: Workspace, raw: str, domain: str, wanted: Collection[tuple[int, int]]) -> Rows:
    """The wanted rows of a domain; each file is read once, up to the last of them.

    Raises:
        SourceError: a file changed since it was pinned.
        StoreError: a file has no such row.
    """
    files, txt = files_of(workspace, raw, domain), domain_of(workspace.family(FAMILIES[raw.removesuffix("_raw")]), domain).txt
    found: dict[tuple[int, int], Record | Unreadable] = {}
    for number in sorted({file for file, _ in wanted}):
        if number >= len(files):
            raise StoreError(f"{raw}[{domain}] has {len(files)} files, and a record is of file {number}. Build the store again")
        missing = {row for file, row in wanted if file == number}
        with closing(_rows(files[number], number, txt)) as rows:
            for row in rows:
                if row.row in missing:
                    found[number, row.row] = row
                    missing.discard(row.row)
                if not missing:
                    break
        if missing:
            raise StoreError(f"{files[number].name} of {domain} has no row {min(missing):,}. Build the store again")
    return found


def _rows(file: SourceFile, number: int, txt: Any) -> Generator[Record | Unreadable]:
    for block in read_blocks(file, number, block_bytes=4 << 20, txt=txt):
        yield from block.records
        yield from block.unreadable


def nth_row(workspace: Workspace, raw: str, domain: str, number: int) -> tuple[Origin, int]:
    """Row `number` of a raw asset, over all its files in order, and how many rows it has.

    Raises:
        ConfigError: there is no such row.
        SourceError: a file changed since it was pinned.
    """
    published = workspace.published(raw, domain)
    assert published is not None
    sources = read_sources(published)
    counts = [entry["rows"] for which in ("files", "test_files") for entry in sources[which]]
    total, before = sum(counts), 0
    if not 0 <= number < total:
        raise ConfigError(f"row {number:,} of {raw}[{domain}]: there are {total:,}, numbered from 0")
    family = workspace.family(FAMILIES[raw.removesuffix("_raw")])
    router, configured = router_of(workspace, family, domain), domain_of(family, domain)
    for index, (file, count) in enumerate(zip(files_of(workspace, raw, domain), counts, strict=True)):
        if number < before + count:
            at = before
            for block in router.picked(file, read_blocks(file, index, block_bytes=4 << 20, txt=configured.txt)):
                rows: list[Record | Unreadable] = sorted([*block.records, *block.unreadable], key=lambda each: each.row)
                if number < at + len(rows):
                    return Origin(raw, domain, index, rows[number - at].row), total
                at += len(rows)
        before += count
    raise StoreError(f"{raw}[{domain}] counts {total:,} rows, and its files have fewer. Build it again")
