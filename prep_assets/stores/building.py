"""One store, from an empty folder to a version: written, proven, audited, named by its content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets.disk.folders import sync_folders, undone
from prep_assets.disk.ledger import recording
from prep_assets.disk.readback import prove, read_back
from prep_assets.stores.bucket_shelf import BucketShelf
from prep_assets.stores.disk_shelf import DiskShelf
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.mapped_h5 import h5_layout
from prep_assets.stores.version_folders import PAYLOAD, WORK_QUARANTINE, drop_shards, work_folder

Write = Callable[[Path, Path], "Draft"]
Audit = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a build says about the payload that it has just written."""

    counts: dict[str, Any]
    metrics: dict[str, Any]
    checks: tuple[str, ...]


def build_version(shelf: DiskShelf | BucketShelf, manifest: Manifest, write: Write, audit: Audit, *, before: int) -> str:
    """Write a store, prove that the disk has what was written, audit it, and make it a version, whose name is returned.

    Args:
        manifest: all but what only the build knows.
        before: bytes of the store that is current, for the message that the disk is full.

    Raises:
        StoreError: the disk is full, or does not hold what was written; nothing of the build is left. Of a build that ends otherwise its finished
            shards are.
    """
    work = work_folder(shelf.versions, manifest.build_key)
    with undone(work, shelf.versions, before=before, also=lambda: drop_shards(shelf.versions)):
        (work / PAYLOAD).mkdir(parents=True)
        version = shelf.add(work, _written(work, manifest, write, audit))
        drop_shards(shelf.versions)
    return version


def _written(work: Path, manifest: Manifest, write: Write, audit: Audit) -> Manifest:
    payload, quarantine = work / PAYLOAD, work / WORK_QUARANTINE
    with recording(work) as ledger:
        draft = write(payload, quarantine)
        files = {name: {**sums.entry, **h5_layout(payload / name)} for name, sums in prove(payload, ledger).items()}
        refused = read_back(quarantine, ledger.get(quarantine.absolute())).sha256 if quarantine.exists() else ""
        audit(payload)
        manifest = replace(manifest, counts=draft.counts, metrics=draft.metrics, files=files, checks=draft.checks, quarantine=refused)
        manifest.write(payload)
        read_back(payload / MANIFEST, ledger[payload.absolute() / MANIFEST])
    sync_folders(payload)
    return manifest
