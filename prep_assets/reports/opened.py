"""The streams of rows in a store, and the names of the records that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prep_assets.assets.graph import EVERY, holds, lines_of
from prep_assets.assets.reading.pinned import read_sources
from prep_assets.assets.stage import token_streams
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.groups import splits
from prep_assets.errors import PrepAssetsError
from prep_assets.lineage.opened import open_stream, source_rows
from prep_assets.reports.rows import GroupRows, LineRows, Origin, PackedRows, Stream, TokenRows
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore

PACKED = {"sft_packed": "train", "sft_dev_packed": "dev"}
"""Packed table → stream of the token stores that it is made of."""


def streams(published: Published) -> list[Stream]:
    """The streams of rows in a store, those held out last; none in a store of sources, of a certificate, or of a trainer's files.

    Raises:
        StoreError: the payload cannot be read.
    """
    directory, manifest = published.directory, published.manifest
    if holds(manifest.asset, GroupStore):
        return [GroupRows(name, open_groups(folder)) for name, folder in splits(published.directory).items()]
    packed = [name for name in PACKED if (directory / f"{name}.documents").is_dir()]
    if packed:
        return [PackedRows(name, PACKED[name], open_packed(directory, name)) for name in packed]
    found = token_streams(EVERY[manifest.asset], published) if manifest.asset in EVERY else {}
    if found:
        return [TokenRows(name, manifest.partition, stream) for name, stream in found.items()]
    if not holds(manifest.asset, Lines):
        return []
    files = sorted((path.stem for path in directory.glob("*.jsonl")), key=lambda name: ("_test" in name, name))
    return [LineRows(name, open_lines(directory, name)) for name in files]


@dataclass
class Names:
    """Names of records: ``<domain>/<file>:<row>``."""

    workspace: Workspace
    published: Published
    _files: dict[str, list[str]] = field(default_factory=dict)
    _opened: dict[tuple[str, str], Any] = field(default_factory=dict)

    def name(self, origin: Origin) -> str:
        """The name of a record; its number, where what it was made from is not there any more."""
        try:
            return self._named(origin)
        except (PrepAssetsError, LookupError, OSError):
            return f"{origin.domain or origin.stream} record {origin.record:,}"

    def _named(self, origin: Origin) -> str:
        store, record, answer = self._open(origin), origin.record, ""
        if isinstance(store, TokenStore) and (made_of := lines_of(self.published.manifest.asset, origin.stream)) is not None:
            store, record = self._remembered(made_of, lambda: self._lines(*made_of)), int(store.row[record])
        elif isinstance(store, TokenStore) and (part := store.part(record))[1] > 1:
            answer = ", answer {} of {}".format(*part)
        return self._row(*source_rows(store, origin.domain).of(record)) + answer

    def _row(self, domain: str, file: int, row: int) -> str:
        names = self._files.get(domain)
        if names is None:
            raw = self.workspace.published(f"{EVERY[self.published.manifest.asset].family}_raw", domain)
            listed = read_sources(raw) if raw else {"files": (), "test_files": ()}
            names = self._files[domain] = [entry["name"] for which in ("files", "test_files") for entry in listed[which]]
        if not names:  # questions that are made, not read
            return f"{domain}:{row}"
        return f"{domain}/{names[file] if file < len(names) else f'file {file}'}:{row}"

    def _open(self, origin: Origin) -> Any:
        return self._remembered((origin.stream, origin.domain), lambda: self._opening(origin))

    def _remembered(self, key: tuple[str, str], opening: Any) -> Any:
        if key not in self._opened:
            self._opened[key] = opening()
        return self._opened[key]

    def _opening(self, origin: Origin) -> Any:
        is_packed = self.published.manifest.asset == "sft_packed"
        return open_stream(tokens_of(self.workspace, self.published, origin.domain) if is_packed else self.published, origin.stream)

    def _lines(self, asset: str, file: str) -> Lines:
        found = self.workspace.published(asset, self.published.manifest.partition)
        if found is None:
            raise LookupError(file)
        return open_lines(found.directory, file)


def tokens_of(workspace: Workspace, packed: Published, domain: str) -> Published:
    """The very store of a domain's tokens that a packed table was made from.

    Raises:
        LookupError: it is not there, or another one is.
    """
    found = workspace.published("sft_tokens", domain)
    made_from: Mapping[str, str] = packed.manifest.recipe["tokens"]
    if found is None or found.manifest.content_hash != made_from.get(domain):
        raise LookupError(f"sft_tokens[{domain}] was built again since this table")
    return found
