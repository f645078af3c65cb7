"""Jobs: what sensors and schedules start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dagster as dg

from prep_assets.assets.graph import family_assets
from prep_assets.assets.stage import Asset
from prep_assets.defs.site import Site

SECONDS = 30
"""Between two looks of a sensor."""


def refresh_job(site: Site, family: str) -> Any:
    """The assets of a family that have a store for each domain: what a changed source file touches directly."""
    assets = family_assets(site.declared(), family).values()
    return _job(site, f"refresh_{family}", family, (asset for asset in assets if asset.partitioned))


def rebuild_job(site: Site, family: str) -> Any:
    """All assets of a family."""
    return _job(site, f"rebuild_{family}", family, family_assets(site.declared(), family).values())


def mend_job(site: Site, family: str) -> Any:
    """All assets of a family; runs that repair damage pick some of them. Assets of several families have no partitions in common, so no job has them all."""
    return _job(site, f"mend_{family}", family, family_assets(site.declared(), family).values())


def _job(site: Site, name: str, family: str, assets: Iterable[Asset]) -> Any:
    # without checks, which each step says of what it builds: Dagster would plan one for each partition, and want to be told of all
    selection = dg.AssetSelection.assets(*(site.key(asset.name) for asset in assets)).without_checks()
    return dg.define_asset_job(site.named(name), selection=selection, tags={"prep_assets/family": family})
