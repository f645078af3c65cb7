"""The stores of a workspace, each opened once, and only where it still is what its configuration and its sources ask for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from prep_assets.engine.standing import Look
from prep_assets.errors import StoreError
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.families.rl_groups import GROUPS, splits
from prep_assets.pipelines.graph import Asset, asset_named, upstream_of
from prep_assets.pipelines.workspace import Workspace
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore, open_tokens


class Opened:
    """Stores that can be traced: what they were made from is still what it was."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace.plain
        self._look = Look(self.workspace)
        # an object's own caches, so that they go when it goes
        self.published = cache(self._published)
        self.tokens = cache(self._tokens)
        self.packed = cache(self._packed)
        self.lines = cache(self._lines)
        self.groups = cache(self._groups)

    def _published(self, asset: str, partition: str = "") -> Published:
        """The current store.

        Raises:
            StoreError: there is none, or it is not what the configuration and the sources give; the message says what changed.
        """
        found = asset_named(asset, self.workspace)
        standing = self._look.at(found, partition)
        label, command = self.workspace.place(asset, partition).label, materialize_command(asset, partition)
        if standing.published is None or standing.state in ("missing", "broken"):
            raise StoreError(f"{label}: {standing.why}. Build it:\n  {command}")
        if standing.state == "stale":
            raise StoreError(
                f"{label} is out of date ({self._cause(found, partition)}), so its rows cannot be followed to their sources. "
                f"Build it again:\n  {command}"
            )
        if standing.overrides:
            options = ", ".join(standing.overrides)
            raise StoreError(
                f"{label} was published with options of one run ({options}), and the configuration file says otherwise. Put them into the file, "
                f"or build it again:\n  {command}"
            )
        return standing.published

    def _cause(self, asset: Asset, partition: str) -> str:
        """Why a store is out of date: the change that is furthest upstream."""
        for above, key in upstream_of(self.workspace, asset, partition):
            if self._look.at(above, key).state == "stale":
                return self._cause(above, key)
        why = self._look.at(asset, partition).why
        changed = ": a source file is not what it was" if asset.name.endswith("_raw") else ""
        return f"{self.workspace.place(asset.name, partition).label} {why}{changed}"

    def _tokens(self, asset: str, partition: str, stream: str) -> TokenStore:
        return open_tokens(self.published(asset, partition).directory, stream)

    def _packed(self, stream: str) -> PackedStore:
        return open_packed(self.published("sft_packed").directory, stream)

    def _lines(self, asset: str, stream: str) -> Lines:
        return open_lines(self.published(asset).directory, stream)

    def _groups(self, split: str) -> GroupStore:
        return open_groups(splits(self.published(GROUPS))[split])

    def hashes(self, asset: str, partition: str) -> Mapping[str, Any]:
        """What a store is made with: its build key and content, and the tokenizer and template where it has them."""
        manifest = self.published(asset, partition).manifest
        recipe = {key: manifest.recipe[key] for key in ("tokenizer", "template") if key in manifest.recipe}
        return {"build_key": manifest.build_key, "content": manifest.content_hash, **recipe}
