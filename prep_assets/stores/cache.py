"""Files by their sha256, fetched once for all processes of a machine, checked when they come, and bounded in bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from prep_assets.disk.blocks import sums_of
from prep_assets.disk.faults import told
from prep_assets.disk.folders import locked
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.bucket import Bucket
from prep_assets.stores.bucket_versions import BucketLease
from prep_assets.stores.mirror import cache_folder
from prep_assets.stores.version_folders import remove_version, versions_in

LIMIT = "PREP_ASSETS_CACHE_BYTES"
"""Variable of the environment: the most that fetched and built versions of buckets may take on this machine; no bound where it is not set."""


def blob(sha256: str) -> Path:
    """Where a file is, if it was fetched."""
    return cache_folder() / "blobs" / sha256


def fetch(objects: Bucket, key: str, sha256: str, size: int, target: Path, lease: BucketLease) -> None:
    """Make `target` the file with this content, which is at `key` of a bucket. A copy on this machine is taken first.

    Raises:
        StoreError: it is not there, or is another content.
    """
    path = blob(sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    with told(path.parent), locked(path.with_name(f".{sha256}.lock")):
        if _linked(path, target):
            if sums_of(target).sha256 == sha256:
                return
            target.unlink()
            path.unlink()  # it was altered here
        temporary = path.with_name(f".{sha256}.part")
        try:
            found, length = _download(objects, key, temporary, lease)
            if (found, length) != (sha256, size):
                raise StoreError(
                    f"{objects.url}/{key}: {length:,} bytes with sha256 {found[:16]}…, the manifest says {size:,} with {sha256[:16]}…: "
                    "the bucket altered it, or somebody did. Build the store again"
                )
            target.hardlink_to(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def keep(sha256: str, path: Path) -> None:
    """Have a file that was built here known by its content."""
    known = blob(sha256)
    with told(known.parent), locked(known.with_name(f".{sha256}.lock")):
        if not known.exists():
            known.hardlink_to(path)


def _linked(path: Path, target: Path) -> bool:
    try:
        target.hardlink_to(path)
    except FileNotFoundError:
        return False
    return True


def _download(objects: Bucket, key: str, path: Path, lease: BucketLease) -> tuple[str, int]:
    digest, length = hashlib.sha256(), 0
    try:
        with path.open("wb") as file:
            for block in objects.read(key):
                digest.update(block)
                file.write(block)
                length += len(block)
                lease.renew()
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError as error:
        raise StoreError(
            f"{error} is gone: its version was pruned, or somebody deleted it. Open the store again, or build it again"
        ) from error
    return digest.hexdigest(), length


def make_room(size: int) -> None:
    """Delete fetched versions without readers, the longest unused first, until `size` more bytes have room.

    Raises:
        StoreError: there is no room even so.
    """
    limit = _limit()
    if limit is None:
        return
    with locked(cache_folder() / "blobs" / ".room.lock"):
        views = sorted(_views(), key=lambda view: view.stat().st_mtime_ns)
        while (taken := _taken()) + size > limit and views:
            remove_version(views.pop(0))
            _drop_unused()
    if taken + size > limit:
        raise StoreError(
            f"{cache_folder()}: the cache of stores in buckets holds {taken:,} bytes that are in use, {size:,} more are needed, and "
            f"{LIMIT} allows {limit:,}. Raise it, or end what reads the others"
        )


def _limit() -> int | None:
    from pydantic import ByteSize, TypeAdapter

    if not (text := os.environ.get(LIMIT, "").strip().upper()):
        return None
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValueError as error:
        raise ConfigError(f"{LIMIT} is {text!r}; it is a number of bytes, or one with KB, MB, GB or TB, e.g. 500GB") from error


def _views() -> Iterator[Path]:
    for pattern in ("*/*/versions", "*/*/*/versions"):
        for folder in (cache_folder() / "stores").glob(pattern):
            yield from versions_in(folder)


def _taken() -> int:
    return sum(entry.stat().st_size for entry in os.scandir(cache_folder() / "blobs") if entry.is_file())


def _drop_unused() -> None:
    """Delete the files that no version has."""
    for entry in os.scandir(cache_folder() / "blobs"):
        if not entry.name.startswith(".") and entry.stat().st_nlink == 1:
            Path(entry.path).unlink(missing_ok=True)
