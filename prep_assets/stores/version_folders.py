"""The versions of one store: folders that are written once and never changed.

versions/<build key>-<content hash>/           payload and manifest.json
versions/<build key>-<content hash>-2/         the same content again, beside one that is damaged
versions/<version>.quarantine.jsonl, .checks.json
versions/.writing-…                            a build under way, or what a killed one left
versions/.shards-<build key>/                  finished shards of such a build, with which it goes on when it is begun again
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from prep_assets.disk.folders import remove_tree
from prep_assets.errors import StoreError
from prep_assets.stores.bucket import Unanswered
from prep_assets.stores.checked import CHECKS
from prep_assets.stores.leases import alone
from prep_assets.stores.manifest import MANIFEST
from prep_assets.stores.mirror import bucket_of

VERSIONS = "versions"
KEY_LENGTH = 20
CONTENT_LENGTH = 12
_WRITING, _SHARDS = ".writing-", ".shards-"
QUARANTINE = ".quarantine.jsonl"
PAYLOAD, WORK_QUARANTINE = "payload", "quarantine.jsonl"
"""In the folder of a build that is under way."""


def name_of(build_key: str, content_hash: str, number: int = 1) -> str:
    """The folder of a version; a later `number` is for one whose name a damaged one has."""
    return f"{build_key[:KEY_LENGTH]}-{content_hash[:CONTENT_LENGTH]}" + (f"-{number}" if number > 1 else "")


def version_of(path: Path) -> Path | None:
    """The version that `path` is, or is in."""
    return version_over(path.resolve())


def version_over(real: Path) -> Path | None:
    """The version that a path without links is, or is in."""
    return next((each for each in (real, *real.parents) if each.parent.name == VERSIONS and (each / MANIFEST).is_file()), None)


def versions_in(folder: Path) -> list[Path]:
    """Every version in a ``versions`` folder, sorted."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and not path.name.startswith("."))


def of_key(names: Iterable[str], build_key: str) -> list[str]:
    """Those of some versions that are of one build key."""
    return [name for name in names if name.partition("-")[0] == build_key[:KEY_LENGTH]]


def work_folder(versions: Path, build_key: str) -> Path:
    """Where a store is written."""
    return versions / f"{_WRITING}{build_key[:KEY_LENGTH]}"


def staging(payload: Path) -> Path:
    """Where finished shards of the store lie whose payload is being written."""
    return payload.parent.with_name(payload.parent.name.replace(_WRITING, _SHARDS))


def leftovers_in(folder: Path) -> tuple[Path, ...]:
    """What killed builds left, sorted. A build that is under way looks the same."""
    return tuple(sorted([*folder.glob(f"{_WRITING}*"), *folder.glob(f"{_SHARDS}*")]))


def remove_version(path: Path) -> bool:
    """Delete a version with what lies beside it; false where it has readers.

    Raises:
        StoreError: a part of it cannot be deleted.
    """
    with alone(path) as nobody:
        if not nobody:
            return False
        # renamed first, so that a version that is half deleted is never taken for a store
        doomed = path.with_name(f"{_WRITING}{path.name}-removed")
        path.rename(doomed)
    _remove(doomed)
    for suffix in (QUARANTINE, CHECKS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return True


def drop_shards(folder: Path, *, going_on: str = "") -> None:
    """Delete finished shards in a ``versions`` folder, and in the bucket that it stands for, but for those with which the build of a key goes on."""
    for leftover in folder.glob(f"{_SHARDS}*"):
        if leftover.name == f"{_SHARDS}{going_on[:KEY_LENGTH]}":
            continue
        if bucket := bucket_of(folder.parent):
            with suppress(Unanswered), ThreadPoolExecutor() as pool:  # what stays there is deleted by prune
                list(pool.map(bucket.delete, [entry.key for entry in bucket.entries(f"{VERSIONS}/{leftover.name}/")]))
        # renamed first: a worker on another machine, whose shard is not wanted any more, may still write into it by its name
        _remove(leftover.rename(leftover.with_name(f"{_WRITING}{leftover.name.removeprefix(_SHARDS)}-{secrets.token_hex(4)}")))


def clean(folder: Path) -> tuple[str, ...]:
    """Delete what killed builds and removals left half-written in a ``versions`` folder; the names of what was deleted."""
    removed = []
    for leftover in folder.glob(f"{_WRITING}*"):
        _remove(leftover)
        removed.append(leftover.name)
    kept = {path.name for path in versions_in(folder)}
    for suffix in (QUARANTINE, CHECKS):
        for path in folder.glob(f"*{suffix}"):
            if path.name.removesuffix(suffix) not in kept:
                path.unlink()
                removed.append(path.name)
    for path in folder.glob(f".*{CHECKS}-*"):
        path.unlink()
    return tuple(removed)


def _remove(path: Path) -> None:
    if leftover := remove_tree(path):
        raise StoreError(f"{path} could not be deleted: {'; '.join(leftover[:3])}. Fix that; the next build or prune deletes it")
