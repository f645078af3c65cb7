"""Stores, opened by their streams whatever they hold, and which row of a source each of their records comes from.

`Opened` opens those of a workspace: each once, and only where it still is what its configuration and its sources ask for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.commands import build_command
from prep_assets.assets.exports import Exporting, family_of_export, open_export_source
from prep_assets.assets.graph import EVERY, asset_named, holds, upstream_of, with_parts
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.groups import splits
from prep_assets.config.models import FAMILIES, Family
from prep_assets.errors import StoreError
from prep_assets.exports.readable import Readable
from prep_assets.exports.registry import reader
from prep_assets.exports.source import SIDES, Pairs, Source
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.manifest import build_key, differences
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.published import Published, open_published
from prep_assets.stores.tokens import TokenStore, open_tokens

DRAFT = " (draft)"
"""Behind the label of a draft."""
WITH_ROWS = (
    *("pretrain_tokens", "sft_tokens", "sft_packed", *with_parts("preferences", "rl_prompts"), "arithmetic_prompts", "contrastive"),
    *(*with_parts("preference_tokens", "rl_tokens"), "arithmetic_tokens", *with_parts("rl_groups")),
)
"""The assets whose stores have records of their own; exports have those of the store that they were made from."""
_HELD_OUT = re.compile(r"(.*_)?(dev|test)(_packed|/.*)?")
AnyStream = PackedStore | TokenStore | Lines | GroupStore


def family_of(workspace: Workspace, asset: str) -> Family:
    """The configuration of an asset's family."""
    return workspace.family(FAMILIES[asset_named(asset, workspace).family])


def streams(published: Published) -> list[str]:
    """The streams, tables or files of rows in a store, those that are held out last; none of a raw store."""
    if holds(published.manifest.asset, GroupStore):
        return list(splits(published.directory))
    found = (path for pattern in ("*.index", "*.documents", "*/*.index") for path in published.directory.glob(pattern))
    names = sorted(path.relative_to(published.directory).with_suffix("").as_posix() for path in found)
    return sorted(names, key=lambda name: _HELD_OUT.fullmatch(name) is not None)


def open_stream(published: Published, stream: str) -> AnyStream:
    """One stream, table or file of rows of a store.

    Raises:
        StoreError: it is not there, or cannot be read.
    """
    folder = published.directory
    if holds(published.manifest.asset, GroupStore):
        return open_groups(splits(folder)[stream])
    if (folder / f"{stream}.documents").is_dir():
        return open_packed(folder, stream)
    return open_lines(folder, stream) if (folder / f"{stream}.jsonl").is_file() else open_tokens(folder, stream)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Which row of a source each record, line or group of a stream comes from: int[n] each.

    Attributes:
        domains, domain: the names, and the number of each record's among them.
        file, row: the number of the file in that domain, and the row in the file.
    """

    domains: Sequence[str]
    domain: npt.NDArray[Any]
    file: npt.NDArray[Any]
    row: npt.NDArray[Any]

    def of(self, record: int) -> tuple[str, int, int]:
        """Domain, file and row of a record."""
        return self.domains[int(self.domain[record])], int(self.file[record]), int(self.row[record])

    def records(self, domain: str, file: int, row: int) -> list[int]:
        """The records that come from a row."""
        if domain not in self.domains:
            return []
        found: list[int] = np.flatnonzero((self.domain == self.domains.index(domain)) & (self.file == file) & (self.row == row)).tolist()
        return found


def source_rows(store: TokenStore | Lines | GroupStore, partition: str) -> SourceRows:
    """Where the records of a stream come from; those of tokens from the domain that the store is of."""
    if isinstance(store, Lines):
        return SourceRows(store.sources, store.index["source"], store.index["file"], store.index["row"])
    if isinstance(store, GroupStore):
        return SourceRows(store.sources, store.source, store.prompts.file, store.prompts.row)
    return SourceRows((partition,), np.broadcast_to(0, len(store)), store.file, store.row)


def sft_split(table: str) -> str:
    """The stream of `sft_tokens` that a packed table is made of."""
    return "dev" if table == "sft_dev_packed" else "train"


@dataclass(frozen=True, slots=True)
class OpenExport:
    """An export and what it was made from.

    Attributes:
        each: how it was made, with every option.
        source: the store that it was made from.
        streams: which streams of that store; both sides of pairs.
        read: its own rows, as its format's reader gives them.
    """

    each: Exporting
    source: Source
    streams: tuple[str, ...]
    read: Readable


def is_export(asset: str) -> bool:
    """Whether an asset is an export, by its name."""
    return family_of_export(asset) != ""


class Opened:
    """Stores that can be traced: what they were made from is still what it was.

    Args:
        draft: asset and partition of a store whose draft is meant. What it was made from are current stores.
    """

    def __init__(self, workspace: Workspace, draft: tuple[str, str] | None = None) -> None:
        self.workspace, self.draft = workspace.plain, draft
        # an object's own caches, so that they go when it goes
        self.published = cache(self._published)
        self.stream = cache(self._stream)
        self.export = cache(self._export)

    def made_with(self, asset: str, partition: str = "") -> Workspace:
        """The workspace as the build of a store saw it: with the options of the run that made it, where it is the draft."""
        if (asset, partition) != self.draft:
            return self.workspace
        store = self.workspace.place(asset, partition).draft()
        return self.workspace.overriding(EVERY[asset].family, store.manifest.options) if store else self.workspace

    def label(self, asset: str, partition: str = "") -> str:
        """How a store is called."""
        return self.workspace.place(asset, partition).label + (DRAFT if (asset, partition) == self.draft else "")

    def _draft(self, asset: str, partition: str) -> Published:
        label, command = self.workspace.place(asset, partition).label, build_command(asset, partition)
        if asset.endswith("_raw"):
            raise StoreError(f"a draft of {label} has no rows of its own: trace the current store, or a draft of what is made from it")
        published = self.workspace.place(asset, partition).draft()
        if published is None:
            raise StoreError(f"{label} has no draft. Options of one run make one:\n  {command} --set KEY=VALUE")
        recipe = asset_named(asset, self.workspace).recipe(self.made_with(asset, partition), partition)
        if published.manifest.build_key != build_key(recipe):
            changed = ", ".join(differences(published.manifest.recipe, recipe))
            options = (
                json.dumps(published.manifest.options) if published.manifest.options else "which an earlier release did not write down"
            )
            raise StoreError(
                f"the draft of {label} is not what its options ({options}) would give now (changed: {changed}). Build it again:\n"
                f"  {command} --set KEY=VALUE"
            )
        return published

    def _published(self, asset: str, partition: str = "") -> Published:
        """The current store, whatever its checks say; or the draft, where that is meant.

        Raises:
            StoreError: there is none, or it is not what the configuration and the sources give; the message says what changed.
        """
        found, place = asset_named(asset, self.workspace), self.workspace.place(asset, partition)
        command = build_command(asset, partition)
        for above, key in upstream_of(self.workspace, found, partition):
            try:
                self.published(above.name, key)
            except StoreError as error:
                if self.workspace.place(above.name, key).exists and place.exists:
                    raise StoreError(f"{place.label} is out of date, because {error}") from error
                raise
        if (asset, partition) == self.draft:
            return self._draft(asset, partition)
        published = open_published(self.workspace.stores, asset, partition, remedy=command)
        recipe = found.recipe(self.workspace, partition)
        if published.manifest.config_key != build_key(recipe):
            changed = ", ".join(differences(published.manifest.recipe, recipe)) or "its options"
            source = ": a source file is not what it was" if not found.upstream and changed in ("files", "test_files") else ""
            raise StoreError(f"{place.label} is not what it would be now (changed: {changed}{source}). Build it again:\n  {command}")
        if published.manifest.build_key != published.manifest.config_key:
            options = ", ".join(differences(recipe, published.manifest.recipe))
            raise StoreError(
                f"{place.label} was published with options of one run ({options}), and the configuration file says otherwise. Put them into the "
                f"file, or build it again:\n  {command}"
            )
        return published

    def _stream(self, asset: str, partition: str, stream: str) -> AnyStream:
        return open_stream(self.published(asset, partition), stream)

    def _export(self, asset: str, partition: str) -> OpenExport:
        published = self.published(asset, partition)
        recipe = published.manifest.recipe
        each = Exporting("", EVERY[recipe["from"]], recipe["format"], recipe["stream"], recipe["options"])
        source = open_export_source(each, self.published(each.source.name, partition))
        stem = each.stem(partition)
        names = tuple(f"{stem}/{side}" if stem else side for side in SIDES) if isinstance(source, Pairs) else (stem or each.stream,)
        return OpenExport(each, source, names, reader(each.format)(published.directory, source, each.options))

    def hashes(self, asset: str, partition: str) -> Mapping[str, Any]:
        """What a store is made with: its build key and content, and the tokenizer and template where it has them."""
        manifest = self.published(asset, partition).manifest
        recipe = {key: manifest.recipe[key] for key in ("tokenizer", "template") if key in manifest.recipe}
        return {"build_key": manifest.build_key, "content": manifest.content_hash, **recipe}
