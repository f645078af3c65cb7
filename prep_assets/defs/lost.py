"""Stores that Dagster remembers and that are gone: moved away, or deleted by hand."""

from __future__ import annotations

import dagster as dg

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.commands import build_command
from prep_assets.assets.graph import family_assets
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.site import Site


def lost_stores(
    site: Site, workspace: Workspace, instance: dg.DagsterInstance, family: str, known: set[str]
) -> tuple[list[dg.AssetCheckEvaluation], set[str]]:
    """A failed check for each store of a family that is gone since the last look, and the labels of all that are gone.

    Args:
        known: labels of those that were gone at the last look: their failure is on record.
    """
    events, gone = [], set[str]()
    for asset in family_assets(workspace, family).values():
        for partition in _materialized(site, instance, asset, asset.partitions(workspace)):
            place = workspace.place(asset.name, partition)
            if place.exists:
                continue
            gone.add(place.label)
            if place.label not in known:
                events.append(_failure(site, asset, partition, place.shelf.where))
    return events, gone


def _materialized(site: Site, instance: dg.DagsterInstance, asset: Asset, partitions: tuple[str, ...]) -> list[str]:
    key = site.key(asset.name)
    if not asset.partitioned:
        return [""] if instance.get_latest_materialization_event(key) else []
    known = instance.get_materialized_partitions(key)
    return [partition for partition in partitions if partition in known]


def _failure(site: Site, asset: Asset, partition: str, directory: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=site.key(asset.name),
        check_name=INTEGRITY.name,
        passed=False,
        description=f"the store is gone: {directory} was built and is no longer there. Build it with:\n  {build_command(asset.name, partition)}",
        partition=partition or None,
    )
