"""Where a workspace stands in a Dagster project: its resource, and how its assets are called there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import dagster as dg

from prep_assets.assets.workspace import Progress, Workspace
from prep_assets.config.loading import config_dir
from prep_assets.defs.io_manager import IO_MANAGER_KEY, StoreIOManager


class WorkspaceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One folder of configuration files."""

    configs: str = ""
    """Folder of the families' YAML files; empty: as `PREP_ASSETS_CONFIG_DIR` says, else `configs`."""

    def open(self, stores: Path, progress: Progress | None = None) -> Workspace:
        """The workspace, as its files are at this moment."""
        return Workspace(Path(self.configs).resolve() if self.configs else config_dir(), stores, progress=progress)


@dataclass(frozen=True)
class Site:
    """How the assets of a workspace stand in a project.

    Attributes:
        workspace: what they are made from.
        stores: publishes and opens their stores.
        resource, io_manager_key: the keys of these two in runs.
        prefix: put before every asset key.
        group: the group of all assets; their family where it is empty.
        owners: of every asset.
        tags: of every asset.
        upstream: domain → assets of the project that its source files come from.
    """

    workspace: WorkspaceResource = field(default_factory=WorkspaceResource)
    stores: StoreIOManager = field(default_factory=StoreIOManager)
    resource: str = "workspace"
    io_manager_key: str = IO_MANAGER_KEY
    prefix: tuple[str, ...] = ()
    group: str = ""
    owners: tuple[str, ...] = ("team:data",)
    tags: Mapping[str, str] = field(default_factory=dict)
    upstream: Mapping[str, tuple[dg.AssetKey, ...]] = field(default_factory=dict)

    def open(self) -> Workspace:
        """The workspace for sensors and schedules."""
        return self.workspace.open(self.stores.root)

    def declared(self) -> Workspace:
        """The workspace for definitions: no source is looked at, so that none can keep them from loading."""
        return replace(self.open(), looks=False)

    def in_run(self, context: dg.AssetExecutionContext, progress: Progress | None = None) -> Workspace:
        """The workspace of a run, whose resources may be others than those of the definitions."""
        stores = getattr(context.resources, self.io_manager_key)
        if not isinstance(stores, StoreIOManager):
            raise dg.Failure(
                f"resource {self.io_manager_key!r} is {type(stores).__name__}: assets of prep-assets are stored by a StoreIOManager, or a class derived "
                "from it",
                allow_retries=False,
            )
        workspace: Workspace = getattr(context.resources, self.resource).open(stores.root, progress)
        return workspace

    def key(self, asset: str) -> dg.AssetKey:
        """The key of an asset."""
        return dg.AssetKey([*self.prefix, asset])

    def named(self, name: str) -> str:
        """A name of an op, a job, a sensor or a schedule, which must differ from those of other sites."""
        return "_".join([*self.prefix, name])
