"""The stores of a workspace, each opened once, and only where it still is what its configuration and its sources ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from prep_assets.assets.commands import build_command
from prep_assets.assets.exports import Exporting, family_of_export, open_export_source
from prep_assets.assets.graph import EVERY, asset_named, upstream_of
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.groups import splits
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
    """Stores that can be traced: what they were made from is still what it was."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace.plain
        # an object's own caches, so that they go when it goes
        self.published = cache(self._published)
        self.tokens = cache(self._tokens)
        self.packed = cache(self._packed)
        self.lines = cache(self._lines)
        self.groups = cache(self._groups)
        self.export = cache(self._export)

    def _published(self, asset: str, partition: str = "") -> Published:
        """The current store, whatever its checks say.

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

    def _tokens(self, asset: str, partition: str, stream: str) -> TokenStore:
        return open_tokens(self.published(asset, partition).directory, stream)

    def _packed(self, stream: str) -> PackedStore:
        return open_packed(self.published("sft_packed").directory, stream)

    def _lines(self, asset: str, partition: str, stream: str) -> Lines:
        return open_lines(self.published(asset, partition).directory, stream)

    def _groups(self, asset: str, partition: str, split: str) -> GroupStore:
        return open_groups(splits(self.published(asset, partition).directory)[split])

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
