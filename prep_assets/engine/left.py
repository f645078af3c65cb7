"""What lies in the folder of stores and belongs to nothing that the configuration has: stores of removed domains and families."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prep_assets.assets.exports import family_of_export
from prep_assets.assets.graph import EVERY, family_assets
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError
from prep_assets.stores.bucket import Bucket
from prep_assets.stores.mirror import bucket_of
from prep_assets.stores.published import Place


def forgotten(workspace: Workspace) -> list[Place]:
    """Stores of assets and domains that the configuration does not have, sorted. Those of a family that cannot be read are left out."""
    known, unclear = set[tuple[str, str]](), set[str]()
    for family, kind in FAMILIES.items():
        try:
            if workspace.has(family):
                workspace.family(kind)
                known |= {(asset.name, key) for asset in family_assets(workspace, family).values() for key in asset.partitions(workspace)}
        except PrepAssetsError:
            unclear.add(family)
    return [
        place
        for place in _places(workspace)
        if (place.asset, place.partition) not in known and _family(place.asset) in FAMILIES.keys() - unclear
    ]


def _family(asset: str) -> str:
    return EVERY[asset].family if asset in EVERY else family_of_export(asset)


def _in_bucket(root: Path, bucket: Bucket) -> Iterator[Place]:
    for asset in bucket.folders(""):
        found = {"", *bucket.below(asset).folders("")} - {"versions", "leases"}
        for place in (Place(root, asset, partition) for partition in sorted(found)):
            if place.shelf.names():
                yield place


def _places(workspace: Workspace) -> list[Place]:
    """Every folder that has versions of a store."""
    if (bucket := bucket_of(workspace.stores)) is not None:
        return list(_in_bucket(workspace.stores, bucket))
    root, found = workspace.stores, []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if (folder / "versions").is_dir():
            found.append(Place(root, folder.name))
        elif folder.is_dir() and not folder.name.startswith("."):
            found += [Place(root, folder.name, each.name) for each in sorted(folder.iterdir()) if (each / "versions").is_dir()]
    return found
