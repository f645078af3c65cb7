"""Current stores that are what their configuration and sources give."""

from __future__ import annotations

from prep_assets.errors import StoreError
from prep_assets.graph.graph import asset_named, upstream_of
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.manifest import build_key, differences
from prep_assets.stores.published import open_published
from prep_assets.stores.version_folders import Published


class Unchanged:
    """The stores of a workspace, opened once; only those that are up to date, with everything upstream of them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self._published = workspace, dict[tuple[str, str], Published]()

    def published(self, asset: str, partition: str = "") -> Published:
        """The current store, whatever its checks say.

        Raises:
            StoreError: it is missing or out of date; the message says what changed.
        """
        if (asset, partition) not in self._published:
            self._published[asset, partition] = self._open(asset, partition)
        return self._published[asset, partition]

    def open_upstream(self, asset: str, partition: str) -> None:
        """Open everything that a store is made from.

        Raises:
            StoreError: as `published`.
        """
        place = self.workspace.place(asset, partition)
        for above, key in upstream_of(self.workspace, asset_named(asset, self.workspace), partition):
            try:
                self.published(above.name, key)
            except StoreError as error:
                if self.workspace.place(above.name, key).exists and place.exists:
                    raise StoreError(f"{place.label} is out of date, because {error}") from error
                raise

    def _open(self, asset: str, partition: str) -> Published:
        self.open_upstream(asset, partition)
        definition, label, command = (
            asset_named(asset, self.workspace),
            self.workspace.place(asset, partition).label,
            build_command(asset, partition),
        )
        published = open_published(self.workspace.stores, asset, partition, remedy=command)
        recipe = definition.recipe(self.workspace, partition)
        if published.manifest.config_key != build_key(recipe):
            changed = ", ".join(differences(published.manifest.recipe, recipe)) or "its options"
            source = ": a source file is not what it was" if not definition.inputs and changed in ("files", "test_files") else ""
            raise StoreError(f"{label} is stale (changed: {changed}{source}). Build it again:\n  {command}")
        if published.manifest.build_key != published.manifest.config_key:
            options = ", ".join(differences(recipe, published.manifest.recipe))
            raise StoreError(
                f"{label} was published with options of one run ({options}), and the configuration file says otherwise. Put them into the "
                f"file, or build it again:\n  {command}"
            )
        return published
