"""Where a workspace stands in a Dagster project: its resource, and how its assets are called there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import dagster as dg

from prep_assets.assets.workspace import Progress, Workspace
from prep_assets.config.loading import config_dir, located, store_dir
from prep_assets.stores.mirror import local_root


class WorkspaceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One folder of configuration files and one folder of stores."""

    configs: str = ""
    """Folder of the families' YAML files; empty: as `PREP_ASSETS_CONFIG_DIR` says, else `configs`."""
    stores: str = ""
    """Folder of the stores, or the address of a bucket; empty: as `PREP_ASSETS_STORE_DIR` says, else `data/stores`."""

    def open(self, progress: Progress | None = None) -> Workspace:
        """The workspace, as its files are at this moment."""
        configs = Path(self.configs).resolve() if self.configs else config_dir()
        stores = local_root(located(self.stores) if self.stores else store_dir())
        return Workspace(configs, stores, progress=progress)


@dataclass(frozen=True)
class Site:
    """How the assets of a workspace stand in a project.

    Attributes:
        workspace: what they are made from.
        resource: key of the resource that opens the workspace in runs.
        prefix: put before every asset key.
        group: the group of all assets; their family where it is empty.
        owners: of every asset.
        tags: of every asset.
        upstream: domain → assets of the project that its source files come from.
    """

    workspace: WorkspaceResource = field(default_factory=WorkspaceResource)
    resource: str = "workspace"
    prefix: tuple[str, ...] = ()
    group: str = ""
    owners: tuple[str, ...] = ("team:data",)
    tags: Mapping[str, str] = field(default_factory=dict)
    upstream: Mapping[str, tuple[dg.AssetKey, ...]] = field(default_factory=dict)

    def declared(self) -> Workspace:
        """The workspace for definitions: no source is looked at, so that none can keep them from loading."""
        return replace(self.workspace.open(), looks=False)

    def key(self, asset: str) -> dg.AssetKey:
        """The key of an asset."""
        return dg.AssetKey([*self.prefix, asset])

    def named(self, name: str) -> str:
        """A name of an op, a job, a sensor or a schedule, which must differ from those of other sites."""
        return "_".join([*self.prefix, name])
