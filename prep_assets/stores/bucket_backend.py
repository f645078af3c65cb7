"""A store in a bucket: its catalog, its versions, the cache of files, finished shards."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.bucket import Bucket, Unanswered, cache_folder
from prep_assets.stores.files import loads, locked, remove_tree, sync_folders, told
from prep_assets.stores.manifest import CHECKS, MANIFEST, Manifest, Result, parse_results, results_text
from prep_assets.stores.verification import sums_of
from prep_assets.stores.version_folders import (
    PAYLOAD,
    QUARANTINE,
    WORK_QUARANTINE,
    Lease,
    LocalBackend,
    Move,
    Pointers,
    Published,
    lease,
    name_of,
    remove_version,
    version_faults,
    versions_in,
)

# The catalog of one store in a bucket: its pointers and versions in one small object, which is replaced only if it is as it was read.
#
# Every change carries a token, and the object remembers those of the last changes. So a writer whose answer was lost sees that its change was made,
# also when others have changed the object since; making it twice would take their change back.
#
# A version that is to be deleted is condemned here first. One that is pointed to cannot be condemned, one that is condemned can never be pointed to.

T = TypeVar("T")
KEY = "catalog.json"
REMEMBERED = 64
"""Changes whose tokens are kept."""
ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class Catalog:
    """What is known of the versions of a store.

    Attributes:
        generation: counts changes.
        pointers: see `prep_assets.stores.version_folders`.
        versions: every version that was pointed to, and is not condemned, sorted.
        condemned: versions that are deleted or about to be, and on which day that was decided. Their names are not used
            again for long.
        done: tokens of the last changes, the latest last.
    """

    generation: int = 0
    pointers: Pointers = field(default_factory=Pointers)
    versions: tuple[str, ...] = ()
    condemned: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()

    def pointed(self, moved: Mapping[str, str]) -> Catalog:
        """The catalog with some pointers moved.

        Raises:
            StoreError: to a version that is condemned.
        """
        pointers = replace(self.pointers, **moved)
        used = pointers.used
        if gone := sorted(used & self.condemned.keys()):
            raise StoreError(f"{gone[0]} was pruned meanwhile")
        return replace(self, pointers=pointers, versions=tuple(sorted({*self.versions, *used})))

    def condemn(self, version: str, day: str, oldest: str) -> Catalog:
        """The catalog without a version. One that is pointed to stays. What was condemned before the oldest day is forgotten."""
        if version in self.pointers.used or version in self.condemned:
            return self
        kept = {name: when for name, when in self.condemned.items() if when >= oldest}
        return replace(self, versions=tuple(name for name in self.versions if name != version), condemned={**kept, version: day})


class Seen(NamedTuple):
    """A catalog as it was read; `tag` is `None` where there is none yet."""

    catalog: Catalog
    tag: str | None


def read(objects: Bucket) -> Seen:
    """The catalog as it is now.

    Raises:
        StoreError: it cannot be read.
    """
    held = objects.get(KEY)
    if held is None:
        return Seen(Catalog(), None)
    try:
        fields: dict[str, Any] = loads(held.data)
        lists = {name: tuple(map(str, fields[name])) for name in ("versions", "done")}
        catalog = Catalog(int(fields["generation"]), Pointers(**fields["pointers"]), condemned=dict(fields["condemned"]), **lists)
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{objects.url}/{KEY} cannot be read ({type(error).__name__}: {error}); it was edited. Put its last version back"
        ) from error
    return Seen(catalog, held.tag)


def write(catalog: Catalog) -> bytes:
    """What the object holds."""
    fields = {
        "generation": catalog.generation,
        "pointers": {name: version for name, version in asdict(catalog.pointers).items() if version or name != "damaged"},
        "versions": catalog.versions,
        "condemned": catalog.condemned,
        "done": catalog.done,
    }
    return json.dumps(fields).encode() + b"\n"


def change_catalog(objects: Bucket, step: Callable[[Catalog], Catalog]) -> Catalog:
    """Make one change, exactly once, whatever others do and whatever answers are lost.

    Args:
        step: gives the catalog after the change; it is asked again of each newer catalog, and gives the same one where nothing is to be done.

    Raises:
        Unanswered: the store keeps failing, and whether the change was made is unknown.
    """
    token, first = secrets.token_hex(8), -1

    def look() -> tuple[Catalog, Write | None]:
        nonlocal first
        now, tag = read(objects)
        if token in now.done:
            return now, None
        first = now.generation if first < 0 else first
        if now.generation - first > REMEMBERED:
            raise Unanswered(f"{objects.url}/{KEY}: more than {REMEMBERED} changes by others since this one began. Build again")
        changed = step(now)
        if changed == now:
            return now, None
        changed = replace(changed, generation=now.generation + 1, done=(*now.done, token)[-REMEMBERED:])
        data = write(changed)
        return changed, lambda: objects.put_new(KEY, data) if tag is None else objects.put_if(KEY, data, tag)

    return written(objects, KEY, look)


Write = Callable[[], bool]
"""Writes an object on a condition; false where that does not hold."""


def written(objects: Bucket, key: str, look: Callable[[], tuple[T, Write | None]]) -> T:
    """Write an object on the condition that nobody else has, in as many attempts as that takes.

    Args:
        look: gives what is returned once the object is as it should be, and what makes it so; `None`: it is.

    Raises:
        Unanswered: the store keeps failing, and whether the object was written is unknown.
    """
    fault: Unanswered | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            objects.pause(attempt)
        result, write = look()
        if write is None:
            return result
        try:
            if write():
                return result
            fault = None
        except Unanswered as error:
            fault = error
    raise fault or Unanswered(f"{objects.url}/{key}: others changed it {ATTEMPTS} times in a row. Build again")


# The versions of one store in a bucket: put there whole or not at all, read under a lease, deleted when they have no readers.
#
#     catalog.json                                see `prep_assets.stores.bucket_backend`
#     versions/<version>/…                        payload; manifest.json last, and only if there is none
#     versions/<version>.quarantine.jsonl, .checks.json
#     leases/<version>/<token>                    a reader of it; counts for `LEASE` seconds
#
# A version exists once it has a manifest. Only pruning, which deletes what the catalog does not name, relies on lists.

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
    known = read(objects).catalog
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

    def look() -> tuple[bytes, Write | None]:
        held = objects.get(key)
        return (manifest, lambda: objects.put_new(key, manifest)) if held is None else (held.data, None)

    return written(objects, key, look)


def replace_manifest(objects: Bucket, version: str, manifest: bytes) -> None:
    """Put another manifest in place of the one that is there.

    Raises:
        StoreError: there is none.
    """
    key = key_of(version, MANIFEST)

    def look() -> tuple[None, Write | None]:
        held = objects.get(key)
        if held is None:
            raise StoreError(f"{objects.url}/{key} is gone. Build the store again")
        return None, None if held.data == manifest else lambda: objects.put_if(key, manifest, held.tag)

    written(objects, key, look)


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
        if version in read(objects).catalog.condemned:
            raise StoreError(f"{objects.url}/versions/{version} was pruned")
        yield lease
    finally:
        lease.end()


def remove_from_bucket(objects: Bucket, version: str) -> bool:
    """Delete a version that nothing points to; false where it is pointed to, or has readers.

    A version with readers stays condemned: no new reader can open it, and the next removal deletes it.
    """
    if _is_read(objects, version):
        return False
    day, oldest = (time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago)) for ago in (0, KEPT))
    known = change_catalog(objects, lambda now: now.condemn(version, day, oldest))
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
    known, now = set(read(objects).catalog.versions), time.time()
    return {name: size for name, (size, modified) in sorted(found.items()) if name not in known and modified + DAY < now}


def _now(objects: Bucket) -> float:
    """The time by the clock of the store."""
    objects.put("leases/clock", b"")
    held = objects.get("leases/clock")
    if held is None:
        raise Unanswered(f"{objects.url}/leases/clock was written and is not there. Try again")
    return held.modified


# Files by their sha256, fetched once for all processes of a machine, checked when they come, and bounded in bytes.

LIMIT = "PREP_ASSETS_CACHE_BYTES"
"""Variable of the environment: the most that fetched and built versions of buckets may take on this machine; no bound where it is not set."""


def blob(sha256: str) -> Path:
    """Where a file is, if it was fetched."""
    return cache_folder() / "blobs" / sha256


def fetch_file(objects: Bucket, key: str, sha256: str, size: int, target: Path, lease: BucketLease) -> None:
    """Make `target` the file with this content, which is at `key` of a bucket. A copy on this machine is taken first.

    Raises:
        StoreError: it is not there, or is another content.
    """
    path = blob(sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    with told(path.parent), locked(path.with_name(f".{sha256}.lock")):
        with suppress(FileNotFoundError):
            target.hardlink_to(path)
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
    if (limit := _limit()) is None:
        return
    blobs = cache_folder() / "blobs"
    folders = [folder for pattern in ("*/*/versions", "*/*/*/versions") for folder in (cache_folder() / "stores").glob(pattern)]
    with locked(blobs / ".room.lock"):
        views = sorted((view for folder in folders for view in versions_in(folder)), key=lambda view: view.stat().st_mtime_ns)
        while (taken := sum(path.stat().st_size for path in blobs.iterdir() if path.is_file())) + size > limit and views:
            remove_version(views.pop(0))
            for path in blobs.iterdir():
                if not path.name.startswith(".") and path.stat().st_nlink == 1:  # no version has it
                    path.unlink(missing_ok=True)
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


# A store in a bucket, as a `LocalBackend` is one on disk: written in the mirror, proven there, and sent; read from there when it is fetched.

Item = TypeVar("Item")
AT_ONCE = 8
"""Files that are sent or fetched at a time."""


@dataclass(slots=True)
class BucketBackend:
    """The versions below a prefix of a bucket.

    Attributes:
        objects: below that prefix.
        mirror: the folder on this machine that stands for it.
    """

    objects: Bucket
    mirror: LocalBackend
    _held: list[Lease | None] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return BucketBackend, (self.objects, self.mirror)

    @property
    def where(self) -> str:
        return self.objects.url

    @property
    def versions(self) -> Path:
        return self.mirror.versions

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """One builder at a time on this machine; those of others come to the same bytes, and one of them is first."""
        with self.mirror.building() as notes:
            yield notes

    def pointers(self) -> Pointers:
        return read(self.objects).catalog.pointers

    def change(self, move: Move) -> None:
        change_catalog(self.objects, lambda now: now.pointed(move(now.pointers)))

    def published(self, version: str) -> Published:
        key = key_of(version, MANIFEST)
        held = self.objects.get(key)
        if held is None:
            raise StoreError(f"{self.where}/versions/{version} is not a store: it has no {MANIFEST}")
        manifest = Manifest.parse(held.data, f"{self.where}/{key}")
        return Published(self.versions / version, manifest, keeper=BucketBackend(self.objects, self.mirror))

    def add(self, work: Path, manifest: Manifest) -> str:
        for name, entry in manifest.files.items():
            keep(str(entry["sha256"]), work / PAYLOAD / name)
        version = send(
            self.objects,
            (name_of(manifest.build_key, manifest.content_hash, number) for number in range(1, 1000)),
            partial(self._upload, work, manifest),
            manifest.text.encode(),
            partial(self._is, manifest),
        )
        view = self.versions / version
        if view.exists() and not version_faults(view, manifest):
            remove_tree(work)
            return version
        self._drop(version)
        return self.mirror.put(work, manifest, version)

    def _upload(self, work: Path, manifest: Manifest, version: str) -> None:
        files = {key_of(version, name): work / PAYLOAD / name for name in manifest.files}
        if manifest.quarantine:
            files[f"versions/{version}{QUARANTINE}"] = work / WORK_QUARANTINE
        at_once(lambda key: self.objects.upload(key, files[key]), files)

    def _is(self, manifest: Manifest, version: str, there: bytes) -> bool:
        """Whether the bucket gives back what was built, every byte."""
        try:
            found = Manifest.parse(there, version)
        except StoreError:
            return False
        return found.same_store(manifest) and not self.faults(version, found)

    def relabel(self, version: str, manifest: Manifest) -> None:
        replace_manifest(self.objects, version, manifest.text.encode())

    def blocks(self, version: str, name: str, start: int) -> Iterator[bytes]:
        """A file of the payload of a version from byte `start` on, read from the bucket.

        Raises:
            FileNotFoundError: it is not there.
        """
        return self.objects.read(key_of(version, name), start)

    def fetch(self, version: str, manifest: Manifest) -> Path:
        """The folder of a version in the mirror. It stays as long as this object does."""
        folder = self.versions / version
        while not (self._held and folder.is_dir()):
            with told(folder), locked(self.versions / f".fetch-{version}"):
                if not folder.is_dir():
                    self._fetch(version, manifest, folder)
                elif Manifest.read(folder) != manifest:
                    self.mirror.relabel(version, manifest)
                self._held = [lease(folder)]
        with suppress(OSError):
            os.utime(folder)  # it was used
        return folder

    def _fetch(self, version: str, manifest: Manifest, folder: Path) -> None:
        work = folder.with_name(f".fetching-{version}")
        remove_tree(work)
        make_room(sum(int(entry["bytes"]) for entry in manifest.files.values()))
        with leased(self.objects, version) as held:
            work.mkdir(parents=True)

            def one(name: str) -> None:
                entry = manifest.files[name]
                fetch_file(self.objects, key_of(version, name), entry["sha256"], int(entry["bytes"]), work / name, held)

            at_once(one, manifest.files)
            if manifest.quarantine:
                key = f"versions/{version}{QUARANTINE}"
                refused = self.objects.get(key)
                if refused is None or hashlib.sha256(refused.data).hexdigest() != manifest.quarantine:
                    raise StoreError(f"{self.where}/{key}: missing or altered. Build the store again")
                (self.versions / f"{version}{QUARANTINE}").write_bytes(refused.data)
        manifest.write(work)
        sync_folders(work)
        work.rename(folder)

    def faults(self, version: str, manifest: Manifest) -> list[str]:
        """Of the files in the bucket. A folder in the mirror that is damaged is dropped, and fetched again when it is read."""
        view = self.versions / version
        if view.is_dir() and version_faults(view, manifest) and not self._drop(version):
            return [f"{view} is damaged, and a process reads it. End that process, then try again"]
        files = {key_of(version, name): (name, str(entry["sha256"])) for name, entry in manifest.files.items()}
        if manifest.quarantine:
            files[f"versions/{version}{QUARANTINE}"] = (f"{version}{QUARANTINE}", manifest.quarantine)
        return [fault for fault in at_once(lambda key: self._fault(key, *files[key]), files) if fault]

    def _fault(self, key: str, name: str, sha256: str) -> str:
        digest = hashlib.sha256()
        try:
            for block in self.objects.read(key):
                digest.update(block)
        except FileNotFoundError:
            return f"{name}: missing"
        found = digest.hexdigest()
        return "" if found == sha256 else f"{name}: content altered: sha256 is {found[:16]}…, the manifest says {sha256[:16]}…"

    def results(self, version: str, content_hash: str) -> Mapping[str, Result] | None:
        """What the checks of a version said of this content."""
        held = self.objects.get(f"versions/{version}{CHECKS}")
        return None if held is None else parse_results(held.data, content_hash)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        if self.results(version, content_hash) != results:
            self.objects.put(f"versions/{version}{CHECKS}", results_text(content_hash, results).encode())

    def names(self) -> list[str]:
        return list(read(self.objects).catalog.versions)

    def written(self, version: str) -> int:
        held = self.objects.get(key_of(version, MANIFEST))
        return int(held.modified * 1e9) if held else 0

    def leftovers(self) -> list[str]:
        return list(orphans(self.objects))

    def size(self, name: str) -> int:
        return sum(entry.size for entry in self.objects.entries(f"versions/{name}/"))

    def remove(self, version: str) -> bool:
        removed = remove_from_bucket(self.objects, version)
        if removed:
            self._drop(version)
        return removed

    def _drop(self, version: str) -> bool:
        """Delete the folder of a version in the mirror; false where it has readers."""
        view = self.versions / version
        return not view.is_dir() or remove_version(view)

    def remove_all(self) -> None:
        with self.building():
            change_catalog(self.objects, lambda now: now.pointed(dict.fromkeys(asdict(now.pointers), "")))
            for name in (*self.names(), *self.leftovers()):
                self.remove(name)


def at_once(work: Callable[[Item], T], items: Iterable[Item], most: int = AT_ONCE) -> list[T]:
    """What the work makes of each, a few at a time. The first failure, or Ctrl-C, leaves out those that have not begun."""
    pool = ThreadPoolExecutor(most)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)


# Where finished shards of a store in a bucket lie, for workers without a folder in common with the process that joins them: beside its versions.
#
#     versions/.shards-<build key>/<hash of the work>/<name>.tar
#
# An object is there whole or not at all, and its name says what is in it: writing it again writes the same. They are deleted with the local folder of that
# name; what a lost machine leaves, `prune` deletes after a day.

_END = ".tar"


@dataclass(frozen=True, slots=True)
class ShardDepot:
    """Folders as objects below a prefix.

    Attributes:
        objects: below that prefix.
    """

    objects: Bucket

    def names(self, below: str = "") -> Iterator[str]:
        """What lies here, or in a folder of here."""
        prefix = f"{below}/" if below else ""
        for entry in self.objects.entries(prefix):
            if entry.key.endswith(_END):
                yield entry.key.removesuffix(_END)

    def put(self, name: str, folder: Path) -> None:
        """Send the files of a folder."""
        with tempfile.NamedTemporaryFile(suffix=_END) as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(folder, arcname="")
            file.flush()
            self.objects.upload(name + _END, Path(file.name))

    def fetch(self, name: str, folder: Path) -> None:
        """Make `folder` what was sent under a name.

        Raises:
            FileNotFoundError: nothing was.
        """
        temporary = folder.with_name(f".{folder.name}.part")
        temporary.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent) as file:
            for block in self.objects.read(name + _END):
                file.write(block)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r") as tar:
                tar.extractall(temporary, filter="data")
        temporary.rename(folder)
