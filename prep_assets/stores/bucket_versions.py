"""The versions of one store in a bucket: put there whole or not at all, read under a lease, deleted when they have no readers.

    catalog.json                                see `prep_assets.stores.catalog`
    versions/<version>/…                        payload; manifest.json last, and only if there is none
    versions/<version>.quarantine.jsonl, .checks.json
    leases/<version>/<token>                    a reader of it; counts for `LEASE` seconds

A version exists once it has a manifest. Only pruning, which deletes what the catalog does not name, relies on lists.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from prep_assets.errors import StoreError
from prep_assets.stores import catalog
from prep_assets.stores.bucket import Bucket, Unanswered
from prep_assets.stores.checked import CHECKS
from prep_assets.stores.manifest import MANIFEST
from prep_assets.stores.version_folders import QUARANTINE

LEASE = 3600
"""Seconds for which a lease counts, by the clock of the store."""
DAY = 86_400
KEPT = 7 * DAY
"""Seconds for which the name of a deleted version is not used again: far longer than any request may be late."""


def key_of(version: str, name: str) -> str:
    """Where a file of a version is."""
    return f"versions/{version}/{name}"


def send(
    objects: Bucket,
    names: Iterable[str],
    upload: Callable[[str], None],
    manifest: bytes,
    whole: Callable[[str, bytes], bool],
) -> str:
    """Put a version there under the first name that is free: its payload, then its manifest, if there is none. The name is returned.

    Args:
        names: that it may have, in order.
        upload: puts the payload there under a name.
        whole: whether the version of a name, with the manifest that is there, is what was meant, every byte of it.

    Raises:
        StoreError: no name is free.
        Unanswered: the store keeps failing. The version exists, or an invisible part of it.
    """
    known = catalog.read(objects).catalog
    for version in names:
        if version in known.condemned or version == known.pointers.damaged:
            continue
        held = objects.get(key_of(version, MANIFEST))
        if held is None:
            upload(version)
        if whole(version, put_manifest(objects, version, manifest) if held is None else held.data):
            return version
    raise StoreError(f"{objects.url}: no version of this content is sound, and no name is left. Look at the bucket")


def put_manifest(objects: Bucket, version: str, manifest: bytes) -> bytes:
    """Put a manifest there if there is none, and return the one that is there: this one also where an earlier attempt wrote it."""
    key = key_of(version, MANIFEST)

    def look() -> tuple[bytes, catalog.Write | None]:
        held = objects.get(key)
        return (manifest, lambda: objects.put_new(key, manifest)) if held is None else (held.data, None)

    return catalog.written(objects, key, look)


def replace_manifest(objects: Bucket, version: str, manifest: bytes) -> None:
    """Put another manifest in place of the one that is there.

    Raises:
        StoreError: there is none.
    """
    key = key_of(version, MANIFEST)

    def look() -> tuple[None, catalog.Write | None]:
        held = objects.get(key)
        if held is None:
            raise StoreError(f"{objects.url}/{key} is gone. Build the store again")
        return None, None if held.data == manifest else lambda: objects.put_if(key, manifest, held.tag)

    catalog.written(objects, key, look)


class BucketLease:
    """Keep a version from being deleted. Without permission to write there is no lease."""

    def __init__(self, objects: Bucket, version: str) -> None:
        self._objects, self._key = objects, f"leases/{version}/{secrets.token_hex(8)}"
        self._until = 0.0
        self.renew()

    def renew(self) -> None:
        """Have it count for longer, if half of its time is over."""
        if time.monotonic() > self._until:
            with suppress(Unanswered):
                self._objects.put(self._key, b"")
            self._until = time.monotonic() + LEASE / 2

    def end(self) -> None:
        """Have it count no longer."""
        with suppress(Unanswered):
            self._objects.delete(self._key)


@contextmanager
def leased(objects: Bucket, version: str) -> Iterator[BucketLease]:
    """While the block lasts, the version is not deleted.

    Raises:
        StoreError: it is deleted, or about to be.
    """
    lease = BucketLease(objects, version)
    try:
        # the lease first, then this look; pruning condemns first, and then looks for leases
        if version in catalog.read(objects).catalog.condemned:
            raise StoreError(f"{objects.url}/versions/{version} was pruned")
        yield lease
    finally:
        lease.end()


def remove(objects: Bucket, version: str) -> bool:
    """Delete a version that nothing points to; false where it is pointed to, or has readers.

    A version with readers stays condemned: no new reader can open it, and the next removal deletes it.
    """
    if _is_read(objects, version):
        return False
    day, oldest = (time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago)) for ago in (0, KEPT))
    known = catalog.change(objects, lambda now: now.condemn(version, day, oldest))
    if version not in known.condemned or _is_read(objects, version):
        return False
    delete(objects, version)
    return True


def _is_read(objects: Bucket, version: str) -> bool:
    leases = [entry.modified for entry in objects.entries(f"leases/{version}/")]
    return bool(leases) and max(leases) + LEASE > _now(objects)


def delete(objects: Bucket, version: str) -> None:
    """Delete the objects of a condemned version, its manifest first, so that it no longer exists from then on."""
    objects.delete(key_of(version, MANIFEST))
    for entry in [*objects.entries(f"versions/{version}/"), *objects.entries(f"leases/{version}/")]:
        objects.delete(entry.key)
    for suffix in (QUARANTINE, CHECKS):
        objects.delete(f"versions/{version}{suffix}")


def orphans(objects: Bucket) -> dict[str, int]:
    """Versions that the catalog does not name, and that nothing was written to for a day: their bytes by name. Builds left them, or removals.

    What is younger may be on its way into the catalog.
    """
    found: dict[str, tuple[int, float]] = {}
    for entry in objects.entries("versions/"):
        name = entry.key.split("/")[1]
        name = next((name.removesuffix(suffix) for suffix in (QUARANTINE, CHECKS) if name.endswith(suffix)), name)
        size, modified = found.get(name, (0, 0.0))
        found[name] = (size + entry.size, max(modified, entry.modified))
    known, now = set(catalog.read(objects).catalog.versions), time.time()
    return {name: size for name, (size, modified) in sorted(found.items()) if name not in known and modified + DAY < now}


def _now(objects: Bucket) -> float:
    """The time by the clock of the store."""
    objects.put("leases/clock", b"")
    held = objects.get("leases/clock")
    if held is None:
        raise Unanswered(f"{objects.url}/leases/clock was written and is not there. Try again")
    return held.modified
