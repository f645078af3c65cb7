"""Stores on disk: versions, the pointers to them, and leases of readers."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary, finalize

from msgspec import Struct

from prep_assets.errors import StoreError
from prep_assets.stores.files import folder_size, locked, make_folder, os_errors_in_words, remove_tree, sync
from prep_assets.stores.manifest import CHECKS, MANIFEST, Manifest, Result, fault, file_hash, payload_faults, read_results, results_text
from prep_assets.stores.verification import replace_text, write_text

# Leases: a reader holds one on each version that it has open, and `prune` leaves those alone.
#
# A lease is a shared lock of the kernel on the version's folder. It ends with the process, its forked workers included, so none is left behind.
# Where a file system has no such locks (some network file systems), there are no leases, and an open file stays readable as long as that
# system keeps it.

_HELD: WeakValueDictionary[tuple[int, Path], Lease] = WeakValueDictionary()
_LOCK = threading.Lock()


class Lease:
    """A lease, held for the life of this object. All readers of a version in one process share it."""

    def __init__(self, version: Path) -> None:
        handle = os.open(version, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # being pruned, which the reader finds out; or a file system without locks
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.end = finalize(self, os.close, handle)
        self.end.atexit = False


def lease(version: Path) -> Lease | None:
    """Return the lease of this process on a version; `None` if the version does not exist."""
    key = (os.getpid(), version)
    with _LOCK:
        current_lease = _HELD.get(key)
        if current_lease is None:
            try:
                current_lease = _HELD[key] = Lease(version)
            except OSError:
                return None
        return current_lease


def end_lease(version: Path) -> None:
    """End the lease of this process on a version that nobody reads any more, though what has read it may refer to itself."""
    with _LOCK:
        if (held := _HELD.pop((os.getpid(), version), None)) is not None:
            held.end()


@contextmanager
def unread(version: Path) -> Iterator[bool]:
    """Yield whether a version has no readers; while the block runs no reader can take a lease on it."""
    handle, free = os.open(version, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:  # a file system without locks
            pass
        yield free
    finally:
        os.close(handle)


# The versions of one store: folders that are written once and never changed.
#
#     versions/<build key>-<content hash>/           payload and manifest.json
#     versions/<build key>-<content hash>-2/         the same content again, beside one that is damaged
#     versions/<version>.quarantine.jsonl, .checks.json
#     versions/.writing-…                            a build under way, or what a killed one left
#     versions/.shards-<build key>/                  finished shards of such a build, with which it goes on when it is begun again

VERSIONS = "versions"
KEY_LENGTH = 20
CONTENT_LENGTH = 12
WRITING, _SHARDS = ".writing-", ".shards-"
QUARANTINE = ".quarantine.jsonl"
PAYLOAD, WORK_QUARANTINE = "payload", "quarantine.jsonl"
"""In the folder of a build that is under way."""
RECALLED = "recalled"
"""The failed result of a version that was set aside for what it was made with, while its bytes are those that were written."""
OTHERWISE = "change what that names, or lift the recall"
RECORD = ".recalls"
"""The store, beside all others, that says what is recalled."""


def name_of(build_key: str, content_hash: str, number: int = 1) -> str:
    """Return the folder name of a version; `number` goes up if a damaged version has the name."""
    return f"{build_key[:KEY_LENGTH]}-{content_hash[:CONTENT_LENGTH]}" + (f"-{number}" if number > 1 else "")


_NAME = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}-[0-9a-f]{{{CONTENT_LENGTH}}}(-\d+)?")


def version_of(path: Path) -> Path | None:
    """Return the version that contains `path`, or `None`.

    Raises:
        StoreError: a pointer or a link on the way leads out of the store; or the version has no manifest, so that nothing in it can be verified.
    """
    named, resolved = path.absolute(), path.resolve()
    for folder in (named, *named.parents) if named != resolved else ():  # only a link leads anywhere else
        home = folder.parent / VERSIONS if folder.name in POINTERS else folder.parent
        version = folder.resolve() if home.name == VERSIONS else folder
        is_version = version is not folder and version.is_dir() and _NAME.fullmatch(version.name)
        if is_version and (version.parent != home.resolve() or version not in (resolved, *resolved.parents)):
            raise StoreError(f"{path} leads out of its store, to {resolved}. Build the store again")
    parts = resolved.parts
    for at in range(len(parts) - 1, 0, -1):
        if parts[at - 1] != VERSIONS:
            continue
        folder = Path(*parts[: at + 1])
        if (folder / MANIFEST).is_file():
            return folder
        if _NAME.fullmatch(folder.name) and folder.is_dir():
            raise StoreError(f"{folder} has no {MANIFEST}, so nothing in it can be verified. Build the store again")
    return None


def versions_in(folder: Path) -> list[Path]:
    """Return every version in a ``versions`` folder, sorted."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in entries if path.is_dir() and not path.name.startswith("."))


def of_key(names: Iterable[str], build_key: str) -> list[str]:
    """Return the names of versions of one build key."""
    return [name for name in names if name.partition("-")[0] == build_key[:KEY_LENGTH]]


def staging(payload: Path) -> Path:
    """Return the folder of finished shards of the store that is being written to `payload`."""
    return payload.parent.with_name(payload.parent.name.replace(WRITING, _SHARDS))


def remove_version(path: Path) -> bool:
    """Delete a version with its quarantine and check files; return false if it has readers.

    Raises:
        StoreError: a part of it cannot be deleted.
    """
    with unread(path) as free:
        if not free:
            return False
        # renamed first, so that a version that is half deleted is never taken for a store
        doomed = path.with_name(f"{WRITING}{path.name}-removed")
        path.rename(doomed)
    _delete(doomed)
    for suffix in (QUARANTINE, CHECKS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return True


def shards_in(folder: Path, going_on: str = "") -> list[Path]:
    """Return the folders of finished shards in a ``versions`` folder, except that of the build key `going_on`."""
    return [path for path in folder.glob(f"{_SHARDS}*") if path.name != f"{_SHARDS}{going_on[:KEY_LENGTH]}"]


def _delete(path: Path) -> None:
    if leftover := remove_tree(path):
        raise StoreError(f"{path} could not be deleted: {'; '.join(leftover[:3])}. Fix that; the next build or prune deletes it")


# `current`, `candidate`, `draft`, `damaged`: links in the folder of a store, each to one of its versions, replaced in one step.
#
# Where a file system has no links, a pointer is a file with the path in it.


@dataclass(frozen=True, slots=True)
class Pointers:
    """The versions that pointers lead to; empty if a pointer does not exist. At most one of `damaged` and `current` is set."""

    current: str = ""
    candidate: str = ""
    draft: str = ""
    damaged: str = ""

    @property
    def used(self) -> set[str]:
        """The versions that any pointer leads to."""
        return {self.current, self.candidate, self.draft, self.damaged} - {""}


Move = Callable[[Pointers], Mapping[str, str]]
"""Returns the new targets of pointers; those left out stay. It may be called several times, and raises to change nothing."""

POINTERS = ("current", "candidate", "draft", "damaged")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of file systems without links; any other is a fault."""


def target(folder: Path, name: str) -> Path | None:
    """Return the resolved target of a pointer; `None` if it does not exist or is dangling."""
    pointer = folder / name
    if not pointer.exists():
        return None
    try:
        return (folder / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer).resolve()
    except ValueError as error:
        raise StoreError(f"{pointer} holds no path ({error}). Delete it, then build the store again") from error


def point(folder: Path, name: str, version: Path) -> None:
    """Move a pointer to a version, durably; except a candidate, which the next build finds again if a crash loses it."""
    relative = version.resolve().relative_to(folder.resolve())
    pointer, temporary = folder / name, folder / f".{name}-new"
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(relative, target_is_directory=True)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        write_text(temporary, relative.as_posix() + "\n")
        sync(temporary)
    temporary.replace(pointer)
    if name != "candidate":
        sync(folder)


# A published store: the folder of one version, and its manifest.


class Keeper(Protocol):
    """What keeps the files of versions elsewhere."""

    @property
    def where(self) -> str: ...
    def fetch(self, version: str, manifest: Manifest) -> Path: ...
    def faults(self, version: str, manifest: Manifest) -> list[str]: ...
    def results(self, version: str, content_hash: str) -> Mapping[str, Result] | None: ...
    def blocks(self, version: str, name: str, start: int) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Published:
    """A store that can be read.

    Attributes:
        folder: of its version; a version that is kept elsewhere is fetched there by `directory`.
        reused: whether it existed before it was built.
        notes: for its reader, one sentence each.
        keeper: what keeps it elsewhere; `None` if it is on disk only.
        evidence: the checks of one run by name, each with its data if another check has computed it; `None` outside a run.
    """

    folder: Path
    manifest: Manifest
    reused: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)
    keeper: Keeper | None = field(default=None, compare=False, repr=False)
    evidence: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def version(self) -> str:
        """Its name among the versions of the store."""
        return self.folder.name

    @property
    def where(self) -> str:
        """Its location, for messages."""
        return str(self.folder) if self.keeper is None else f"{self.keeper.where}/versions/{self.version}"

    @property
    def directory(self) -> Path:
        """Its folder on this machine, with all its files."""
        return self.folder if self.keeper is None else self.keeper.fetch(self.version, self.manifest)

    @property
    def quarantine(self) -> Path | None:
        """The file of rejected records, or `None` if none was rejected."""
        return self.directory.with_name(self.version + QUARANTINE) if self.manifest.quarantine else None

    @property
    def results(self) -> Mapping[str, Result] | None:
        """The last result of each check on exactly this content; `None` if none ever ran."""
        if self.keeper is not None:
            return self.keeper.results(self.version, self.manifest.content_hash)
        return read_results(self.folder, self.manifest.content_hash)

    @property
    def bytes(self) -> int:
        """Size of its payload."""
        return sum(int(entry["bytes"]) for entry in self.manifest.files.values())

    def verify(self) -> None:
        """Compare every file with the manifest, where the store is kept, and the manifest with its signature.

        Raises:
            StoreError: a file is missing, cut short, altered or foreign; every such file is named. Or the manifest is forged.
        """
        faults = version_faults(self.folder, self.manifest) if self.keeper is None else self.keeper.faults(self.version, self.manifest)
        if wrong := fault(self.manifest.signed_digest, self.manifest.signature):
            faults = [*faults, f"manifest.json: {wrong}"]
        if faults:
            raise StoreError(f"{self.where} is not what its manifest says:\n  " + "\n  ".join(faults))

    def damage(self) -> str:
        """Return why nothing reads it, for a version that `damaged` leads to."""
        failed = {name: result.summary for name, result in (self.results or {}).items() if not result.passed}
        what = "recalled" if {*failed} == {RECALLED} else "damaged"
        why = [*failed.values(), *([OTHERWISE] if what == "recalled" else [])]
        return f"{self.where} is {what}, so nothing reads it" + (f": {'; '.join(why)}" if why else "")


def version_faults(folder: Path, manifest: Manifest) -> list[str]:
    """What of a version in a folder is not as its manifest says, one sentence each; the quarantine file beside it included."""
    faults, quarantine = payload_faults(folder, manifest), folder.with_name(folder.name + QUARANTINE)
    if manifest.quarantine and (not quarantine.is_file() or file_hash(quarantine) != manifest.quarantine):
        faults.append(f"{quarantine.name}: missing or altered")
    return faults


# What publication needs of the place where a store is kept. A version is put there whole or not at
# all, and is never written again. The pointers are replaced together, and only if they are as they were read. Nothing else needs to be promised: no
# rename, no lock, no list.


class Backend(Protocol):
    """The versions of one store, and the pointers to them. `LocalBackend` says what each method does."""

    @property
    def where(self) -> str: ...
    @property
    def versions(self) -> Path: ...
    def building(self) -> AbstractContextManager[list[str]]: ...
    def pointers(self) -> Pointers: ...
    def change(self, move: Move) -> None: ...
    def published(self, version: str) -> Published: ...
    def add(self, work: Path, manifest: Manifest) -> str: ...
    def relabel(self, version: str, manifest: Manifest) -> None: ...
    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None: ...
    def names(self) -> list[str]: ...
    def written(self, version: str) -> int: ...
    def leftovers(self) -> list[str]: ...
    def drop_shards(self, going_on: str = "") -> None: ...
    def size(self, name: str) -> int: ...
    def remove(self, version: str) -> bool: ...
    def remove_all(self) -> None: ...


# A store on disk: versions are folders that are renamed to their place, pointers are links, and a lock of the kernel lets in one at a time.


class LocalBackend(Struct, frozen=True):
    """The versions below a folder."""

    directory: Path

    @property
    def where(self) -> str:
        """Its name in messages."""
        return str(self.directory)

    @property
    def versions(self) -> Path:
        """The folder in which versions are written, and from which they are read."""
        return self.directory / "versions"

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """While one version is built: what is in `versions` is this process's alone. Gives notes on what an earlier process left there."""
        with os_errors_in_words(self.directory):
            make_folder(self.directory)
            with locked(self.versions / ".lock"):
                for name in (*(f".{name}-new" for name in POINTERS), "current" if self.pointers().damaged else "damaged"):
                    (self.directory / name).unlink(missing_ok=True)
                removed = self._remove_leftovers()
                yield [f"removed what a killed build left: {', '.join(removed)}"] if removed else []

    def _remove_leftovers(self) -> list[str]:
        """Delete what killed builds and removals left half-written; the names of what was deleted."""
        unfinished, versions = list(self.versions.glob(f"{WRITING}*")), self.names()
        for leftover in unfinished:
            _delete(leftover)
        strays = [
            path
            for suffix in (QUARANTINE, CHECKS)
            for path in self.versions.glob(f"*{suffix}")
            if path.name.removesuffix(suffix) not in versions
        ]
        for path in (*strays, *self.versions.glob(f".*{CHECKS}-*")):
            path.unlink()
        return [path.name for path in (*unfinished, *strays)]

    def pointers(self) -> Pointers:
        """Read the pointers."""
        versions = {name: self._read_pointer(name) for name in POINTERS}
        for name in ("current", "damaged", "current"):  # one goes when the other comes, perhaps between two looks
            if not (versions["current"] or versions["damaged"]):
                versions[name] = self._read_pointer(name)
        if versions["current"] == versions["damaged"]:  # a process was killed while it set this one aside
            versions["current"] = ""
        elif versions["current"]:  # another is published since
            versions["damaged"] = ""
        return Pointers(**versions)

    def _read_pointer(self, name: str) -> str:
        try:
            # strings: each look at a store reads all pointers, and a path for each takes longer than the look
            folder, _, link = os.readlink(f"{self.directory}/{name}").rpartition("/")  # noqa: PTH115
            if folder == "versions":
                os.stat(f"{self.directory}/versions/{link}")  # noqa: PTH116
                return link
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:  # no link
            pass
        version = target(self.directory, name)
        if version is None:
            return ""
        return version.name if version.parent == self.versions.resolve() else str(version)

    def change(self, move: Move) -> None:
        """Move pointers; the move is durable when this returns. Changes of others are not lost. On disk, `building` is entered."""
        for name, version in move(self.pointers()).items():
            if version:
                point(self.directory, name, self.versions / version)
            else:
                (self.directory / name).unlink(missing_ok=True)

    def published(self, version: str) -> Published:
        """A version.

        Raises:
            StoreError: it is not there, its manifest is damaged, or it is of another store, to which a pointer or a link leads.
        """
        directory = self.versions / version
        manifest, resolved = Manifest.read(directory), os.path.realpath(directory)
        is_here = resolved.rpartition("/")[0] == os.path.realpath(self.versions)
        if not is_here or self.directory.name not in (manifest.asset, manifest.partition):
            raise StoreError(f"{self.directory}: it leads to {resolved}, a store of {manifest.label}. Build the store again")
        return Published(directory, manifest)

    def add(self, work: Path, manifest: Manifest) -> str:
        """Make a version of a folder that holds a proven ``payload`` and maybe a ``quarantine.jsonl``; its name is returned.

        A sound version of the same content stays, and `work` is dropped; not one that `damaged` leads to.
        """
        number, damaged = 1, self.pointers().damaged
        while (final := self.versions / name_of(manifest.build_key, manifest.content_hash, number)).exists():
            with suppress(StoreError):
                existing = self.published(final.name)
                if final.name != damaged and existing.manifest.same_store(manifest):
                    existing.verify()
                    remove_tree(work)
                    return final.name
            number += 1
        return self.put(work, manifest, final.name)

    def put(self, work: Path, manifest: Manifest, version: str) -> str:
        """Give a written folder the name of a version, which is free, and return the name."""
        if manifest.quarantine:
            (work / WORK_QUARANTINE).replace(self.versions / f"{version}{QUARANTINE}")
        (work / PAYLOAD).rename(self.versions / version)
        sync(self.versions)
        remove_tree(work)
        return version

    def relabel(self, version: str, manifest: Manifest) -> None:
        """Replace the manifest of a sound version in one step; the payload stays as it is."""
        directory = self.versions / version
        work = directory.with_name(f".writing-manifest-{version}")
        work.mkdir()
        manifest.write(work)
        sync(work / MANIFEST)
        (work / MANIFEST).replace(directory / MANIFEST)
        sync(directory)
        remove_tree(work)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        """Record check results of a version atomically, unless they are there already."""
        directory = self.versions / version
        if read_results(directory, content_hash) != results:
            replace_text(directory.with_name(directory.name + CHECKS), results_text(content_hash, results))

    def names(self) -> list[str]:
        """Every version, sorted."""
        return [path.name for path in versions_in(self.versions)]

    def written(self, version: str) -> int:
        """Return the time at which the manifest of a version was written, in nanoseconds."""
        return (self.versions / version / MANIFEST).stat().st_mtime_ns

    def leftovers(self) -> list[str]:
        """What killed builds left half-written, sorted. A build that is under way looks the same."""
        return sorted(path.name for start in (WRITING, _SHARDS) for path in self.versions.glob(f"{start}*"))

    def drop_shards(self, going_on: str = "") -> None:
        """Delete finished shards, except those of the build key `going_on`, which that build resumes with."""
        for folder in shards_in(self.versions, going_on):
            # renamed first: a worker on another machine, whose shard is not wanted any more, may still write into it by its name
            _delete(folder.rename(folder.with_name(f"{WRITING}{folder.name.removeprefix(_SHARDS)}-{secrets.token_hex(4)}")))

    def size(self, name: str) -> int:
        """Return the bytes of a version or a leftover."""
        return folder_size(self.versions / name)

    def remove(self, version: str) -> bool:
        """Delete a version that nothing points to; return false if it has readers."""
        return remove_version(self.versions / version)

    def remove_all(self) -> None:
        """Delete all versions and pointers, unless one of them has readers."""
        with self.building():
            for version in self.names():
                with unread(self.versions / version) as free:
                    if not free:
                        return
        with os_errors_in_words(self.directory):
            if leftovers := remove_tree(self.directory):
                raise StoreError(f"{self.directory} cannot be deleted: {'; '.join(leftovers[:3])}. Delete it by hand")
