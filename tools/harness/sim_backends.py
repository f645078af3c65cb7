"""The two backends on simulated ground: that of a bucket is the real one over simulated objects, that of a disk makes each call a turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness.sim_actors import Actors
from prep_assets.errors import StoreError
from prep_assets.extensions.buckets import backend as bucket_versions
from prep_assets.extensions.buckets.backend import BucketBackend, key_of
from prep_assets.extensions.buckets.bucket import Entry, Held
from prep_assets.stores.manifest import MANIFEST, Result
from prep_assets.stores.remote import Unanswered
from prep_assets.stores.version_folders import POINTERS, Move, Pointers, Published, name_of

FILES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Note:
    """What of a manifest the protocol looks at."""

    build_key: str
    config_key: str
    content_hash: str
    quarantine: str = ""

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        return {name: {"bytes": 1, "sha256": self.content(name)} for name in FILES}

    def content(self, name: str) -> str:
        """What a file holds."""
        return f"{self.content_hash}/{name}"

    def names(self) -> Iterator[str]:
        """Of its version."""
        return (name_of(self.build_key, self.content_hash, number) for number in range(1, 40))

    def same_store(self, other: Note) -> bool:
        return (self.build_key, self.content_hash, self.quarantine) == (other.build_key, other.content_hash, other.quarantine)

    @property
    def data(self) -> bytes:
        return _data(self)


@cache
def _data(note: Note) -> bytes:
    return json.dumps(asdict(note)).encode()


@cache
def note_of(data: bytes) -> Note:
    """The note that an object holds."""
    return Note(**json.loads(data))


class Folder(str):
    """Where a version would be."""

    @property
    def name(self) -> str:
        return str(self)

    def resolve(self) -> Folder:
        return self


class SimBucket(BucketBackend):
    """The backend of a bucket without a mirror."""

    __slots__ = ()
    objects: Any
    versions = None  # type: ignore[assignment]

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """Each writer is on a machine of its own, so that nothing is locked."""
        yield []

    def drop_shards(self, going_on: str = "") -> None:
        """There are none."""

    def build(self, note: Note) -> str:
        """What `build_version` does: nothing is written on this machine, all of it is sent."""
        return bucket_versions.send(self.objects, note.names(), partial(self._put, note), note.data, partial(self._whole, note))

    def _put(self, note: Note, version: str) -> None:
        for name in FILES:
            self.objects.put(key_of(version, name), note.content(name).encode())

    def _whole(self, note: Note, version: str, there: bytes) -> bool:
        found = note_of(there)
        return found.same_store(note) and not self.faults(version, found)  # type: ignore[arg-type]

    def published(self, version: str) -> Published:
        held = self.objects.get(key_of(version, MANIFEST))
        if held is None:
            raise StoreError(f"{version} is no store")
        return Published(Folder(version), note_of(held.data), keeper=self)  # type: ignore[arg-type]

    def relabel(self, version: str, manifest: Any) -> None:
        bucket_versions.replace_manifest(self.objects, version, manifest.data)

    def faults(self, version: str, manifest: Any) -> list[str]:
        found = (self.objects.get(key_of(version, name)) for name in FILES)
        return [name for name, held in zip(FILES, found, strict=True) if held is None or held.data.decode() != manifest.content(name)]

    def fetch(self, version: str, manifest: Any) -> Any:
        """What a reader finds, file by file."""
        with bucket_versions.leased(self.objects, version) as held:
            found = []
            for name in FILES:
                lease = held._key in self.objects.held
                each = self.objects.get(key_of(version, name))
                held.renew()
                if each is None:
                    if lease and held._key in self.objects.held:
                        self.objects.actors.wrong(f"{version}/{name} was deleted under a lease")
                    raise StoreError(f"{version}/{name} is gone")
                found.append(each.data.decode())
            return found

    def _remove_from_mirror(self, version: str) -> bool:
        return True


@dataclass
class Disk:
    """A folder of versions; what dies with a process is its lock and its leases."""

    actors: Actors
    versions: dict[str, tuple[Note, tuple[str, ...]]] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    writing: dict[str, list[str]] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)
    results: dict[str, Mapping[str, Result]] = field(default_factory=dict)
    owner: str = ""

    def free(self, name: str) -> None:
        """Give the lock back."""
        if self.owner == name:
            self.owner = ""
            self.actors.wake()

    def dies(self, name: str) -> None:
        """The kernel closes its files."""
        self.free(name)
        for held in self.readers.values():
            while name in held:
                held.remove(name)


class SimDisk:
    """The backend of a disk, each of whose calls is a turn."""

    where, versions = "disk", None
    locks = leases = True

    def __init__(self, disk: Disk, tell: Any = None) -> None:
        self.disk, self._turn, self._tell = disk, disk.actors.turn, tell

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        disk, name = self.disk, self.disk.actors.now
        self._turn()
        while self.locks and disk.owner:
            disk.actors.sleep()
        disk.owner = name
        disk.writing.clear()
        stale = "current" if self.pointers().damaged else "damaged"
        if disk.pointers.pop(stale, None) and stale == "damaged":
            self._tell(stale, "")  # another is current since, so that nothing is known of this one any more
        try:
            yield []
        finally:
            disk.free(name)

    def drop_shards(self, going_on: str = "") -> None:
        """There are none."""

    def pointers(self) -> Pointers:
        found = dict.fromkeys(POINTERS, "")
        for number, name in enumerate((*POINTERS, "current", "damaged", "current")):
            if number < len(POINTERS) or not (found["current"] or found["damaged"]):
                self._turn()
                version = self.disk.pointers.get(name, "")
                found[name] = version if version in self.disk.versions else ""
        if found["current"] == found["damaged"]:
            found["current"] = ""
        elif found["current"]:
            found["damaged"] = ""
        return Pointers(**found)

    def change(self, move: Move) -> None:
        for name, version in move(self.pointers()).items():
            self._turn()
            self._tell(name, version)
            self.disk.pointers[name] = version

    def published(self, version: str) -> Published:
        self._turn()
        if version not in self.disk.versions:
            raise StoreError(f"{version} is no store")
        return Published(Folder(version), self.disk.versions[version][0], keeper=self)  # type: ignore[arg-type]

    def build(self, note: Note) -> str:
        work = self.disk.writing[note.build_key] = []
        for name in FILES:
            self._turn()
            work.append(note.content(name))
        self._turn()
        for version in note.names():
            if version not in self.disk.versions:
                self.disk.versions[version] = (note, tuple(self.disk.writing.pop(note.build_key, ())))
                return version
            if self.disk.versions[version][0].same_store(note) and version != self.disk.pointers.get("damaged"):
                return version
        raise AssertionError

    def relabel(self, version: str, manifest: Any) -> None:
        self._turn()
        if version not in self.disk.versions:
            raise StoreError(f"{version} is gone")
        self.disk.versions[version] = (manifest, self.disk.versions[version][1])

    def faults(self, version: str, manifest: Any) -> list[str]:
        self._turn()
        return [] if version in self.disk.versions else ["gone"]

    def fetch(self, version: str, manifest: Any) -> Any:
        name, disk, found = self.disk.actors.now, self.disk, []
        self._turn()
        held = version in disk.versions
        if held:
            disk.readers.setdefault(version, []).append(name)
        try:
            for at in range(len(FILES)):
                self._turn()
                if version not in disk.versions:
                    if held:
                        disk.actors.wrong(f"{version} was deleted under a lease")
                    raise StoreError(f"{version} is gone")
                found += disk.versions[version][1][at : at + 1]
        finally:
            if held and name in disk.readers[version]:
                disk.readers[version].remove(name)
        return found

    def results(self, version: str, content_hash: str) -> Mapping[str, Result] | None:
        return self.disk.results.get(version)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        self._turn()
        self.disk.results[version] = results

    def names(self) -> list[str]:
        self._turn()
        return sorted(self.disk.versions)

    def leftovers(self) -> list[str]:
        return []

    def remove(self, version: str) -> bool:
        self._turn()
        if self.leases and self.disk.readers.get(version):
            return False
        self._tell("", version)
        self.disk.versions.pop(version, None)
        return True


# -- A simulated bucket: each request is a turn of its own, and may fail in every way that a network allows -------------------------------


@dataclass(frozen=True)
class Faults:
    """How often, of all requests: one fails; is carried out and answered with an error; is carried out later, and the error comes at once;
    meets another one (409)."""

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    conflict: float = 0.0


class SimObjects:
    """Objects in memory. `watch` is told of each write and deletion before it is carried out."""

    url = "sim://bucket"

    def __init__(self, actors: Actors) -> None:
        self.actors, self.faults = actors, Faults()
        self.held: dict[str, Held] = {}
        self.watch: Callable[[str, bytes | None], None] = lambda key, data: None
        self._tags = 0
        self._late: list[Callable[[], object]] = []

    def get(self, key: str) -> Held | None:
        self._turn()
        if self.actors.chance.random() < self.faults.refused:
            raise Unanswered(key)
        return self.held.get(key)

    def read(self, key: str, start: int = 0) -> Iterator[bytes]:
        if (held := self.get(key)) is None:
            raise FileNotFoundError(key)
        yield held.data[start:]

    def put(self, key: str, data: bytes) -> None:
        self._write(lambda: self._set(key, data))

    def put_new(self, key: str, data: bytes) -> bool:
        return self._write(lambda: key not in self.held and self._set(key, data), conflicts=True)

    def put_if(self, key: str, data: bytes, tag: str) -> bool:
        return self._write(lambda: key in self.held and self.held[key].tag == tag and self._set(key, data), conflicts=True)

    def upload(self, key: str, path: Path) -> None:
        raise AssertionError("nothing is read from disk here")

    def delete(self, key: str) -> None:
        self._write(lambda: self._unset(key))

    def entries(self, prefix: str) -> Iterator[Entry]:
        self._turn()
        return iter([Entry(key, len(held.data), held.modified) for key, held in sorted(self.held.items()) if key.startswith(prefix)])

    def folders(self, prefix: str) -> list[str]:
        self._turn()
        return sorted({key[len(prefix) :].partition("/")[0] for key in self.held if key.startswith(prefix)})

    def pause(self, attempt: int) -> None:
        self._turn()

    def settle(self) -> None:
        """Carry out what was late."""
        while self._late:
            self._late.pop(0)()

    def _turn(self) -> None:
        self.actors.turn()
        if self._late and self.actors.chance.random() < 0.1:
            self._late.pop(0)()

    def _write(self, write: Callable[[], bool], *, conflicts: bool = False) -> bool:
        self._turn()
        drawn, faults = self.actors.chance.random(), self.faults
        if (drawn := drawn - faults.refused) < 0:
            raise Unanswered("refused")
        if (drawn := drawn - faults.lost) < 0:
            write()
            raise Unanswered("lost")
        if (drawn := drawn - faults.late) < 0:
            self._late.append(write)
            raise Unanswered("late")
        if conflicts and drawn < faults.conflict:
            return False
        return write()

    def _set(self, key: str, data: bytes) -> bool:
        self.watch(key, data)
        self._tags += 1
        self.held[key] = Held(data, str(self._tags), float(self.actors.clock))
        return True

    def _unset(self, key: str) -> bool:
        if key in self.held:
            self.watch(key, None)
            del self.held[key]
        return True
