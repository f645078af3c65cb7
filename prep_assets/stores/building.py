"""One store, from an empty folder to a version: written, proven, audited, named by its content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets.disk.faults import in_words
from prep_assets.disk.folders import remove_tree, sync, sync_folders
from prep_assets.disk.ledger import recording
from prep_assets.disk.readback import prove, read_back
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.h5_layout import h5_layout
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.version import Published
from prep_assets.stores.version_folders import KEY_LENGTH, QUARANTINE, name_of

PAYLOAD = "payload"
Write = Callable[[Path, Path], "Draft"]
Audit = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a build says about the payload that it has just written."""

    counts: dict[str, Any]
    metrics: dict[str, Any]
    checks: tuple[str, ...]


def build_version(versions: Path, about: Manifest, write: Write, audit: Audit, *, before: int) -> Path:
    """Write a store, prove that the disk has what was written, audit it, and give it its name. The folder of its version is returned.

    Args:
        about: the manifest without what only the build knows.
        before: bytes of the store that is current, for the message that the disk is full.

    Raises:
        StoreError: the disk is full, or does not hold what was written; nothing of the build is left.
    """
    work = versions / f".writing-{about.build_key[:KEY_LENGTH]}"
    try:
        (work / PAYLOAD).mkdir(parents=True)
        return _named(versions, work, _written(work, about, write, audit))
    except BaseException as error:
        fault = in_words(error, versions, written=_size(work), before=before) if isinstance(error, OSError) else error
        left = remove_tree(work) if work.exists() else []
        if left and isinstance(fault, PrepAssetsError):
            fault = type(fault)(f"{fault}. What was written could not be deleted: {'; '.join(left[:3])}")
        if fault is error:
            raise
        raise fault from error


def _written(work: Path, about: Manifest, write: Write, audit: Audit) -> Manifest:
    payload, quarantine = work / PAYLOAD, work / "quarantine.jsonl"
    with recording(work) as ledger:
        draft = write(payload, quarantine)
        files = {name: {**sums.entry, **h5_layout(payload / name)} for name, sums in prove(payload, ledger).items()}
        refused = read_back(quarantine, ledger.get(quarantine.absolute())).sha256 if quarantine.exists() else ""
        audit(payload)
        manifest = replace(about, counts=draft.counts, metrics=draft.metrics, files=files, checks=draft.checks, quarantine=refused)
        manifest.write(payload)
        read_back(payload / MANIFEST, ledger[payload.absolute() / MANIFEST])
    sync_folders(payload)
    return manifest


def _named(versions: Path, work: Path, manifest: Manifest) -> Path:
    """Move a store to its place. A sound version of the same content stays, and what was written is dropped."""
    number = 1
    while (final := versions / name_of(manifest.build_key, manifest.content_hash, number)).exists():
        if _is(final, manifest):
            remove_tree(work)
            return final
        number += 1
    if manifest.quarantine:
        (work / "quarantine.jsonl").replace(final.with_name(final.name + QUARANTINE))
    (work / PAYLOAD).rename(final)
    sync(versions)
    remove_tree(work)
    return final


def _is(version: Path, manifest: Manifest) -> bool:
    try:
        there = Published(version, Manifest.read(version))
        there.verify()
    except StoreError:
        return False
    same = ("build_key", "content_hash", "quarantine")
    return all(getattr(there.manifest, name) == getattr(manifest, name) for name in same)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
