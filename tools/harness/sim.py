"""The publication protocol under schedules that a seed decides: 8 writers, 8 readers, one who prunes and one who finds damage, on a disk and on a bucket.

    PYTHONPATH=tools python -m harness.sim --schedules 1000000 --seed 0 --processes 2

`Place`, the catalog, leases and removal are the real code; what is simulated lies below them. On every schedule:

    a reader sees one whole version, which was current at some moment since it began, or is told that it was pruned
    `current` leads to a whole version at every moment, and no version that has a pointer is deleted
    a version in which damage was found is not current again while it is known for it
    a publication that was acknowledged happened exactly once; one that was not, at most once
    a manifest is there only where its payload is, and is never replaced by that of another store
    under a lease nothing is deleted
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

from harness.ground import Figures
from harness.sim_actors import Actors
from harness.sim_backends import FILES, Disk, Faults, Note, SimBucket, SimDisk, SimObjects, note_of
from prep_assets.errors import StoreError
from prep_assets.extensions.buckets import backend as bucket_versions
from prep_assets.extensions.buckets import backend as catalog
from prep_assets.stores import published
from prep_assets.stores.files import loads
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import Published

Ground = Literal["bucket", "disk"]
WRITERS, READERS, PASSES, SCRUBS = 8, 8, 12, 3
NOTES = [
    Note(key * 20, config, (key + twin) * 20, refused)
    for key in "abcd"
    for twin, config, refused in (("0", "one", ""), ("0", "two", ""), ("0", "one", "refused"), ("1", "one", ""))
]
FIRST = Note("f" * 20, "one", "f" * 20)
parsed = lru_cache(1 << 12)(loads)
ROUGH = Faults(refused=0.02, lost=0.04, late=0.02, conflict=0.04)


class SimPlace(Place):
    """A place on a simulated backend."""

    made: Callable[[], Any]

    @property
    def backend(self) -> Any:
        return self.made()

    def recalled(self, manifest: Manifest, *, publishing: bool = False) -> str:
        """Nothing: only its store is simulated, and no record of recalls beside it."""
        return ""


class World:
    """One schedule: its place, and what must hold of it."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.actors = Actors(seed)
        self.place = SimPlace("root", "asset", "part")  # type: ignore[arg-type]
        self.known: dict[str, Any] = {"generation": 0, "pointers": {}, "condemned": {}}
        self.tokens: dict[str, tuple[str, str]] = {}
        self.now = self.damaged = ""
        self.since: dict[str, set[str]] = {}
        self.accepting: dict[str, str] = {}
        self.accepted = Counter[str]()
        self.writing = WRITERS + 1
        self.acknowledged = self.whole = self.told = self.removed = self.set_aside = 0
        if ground == "bucket":
            self.objects = SimObjects(self.actors)
            self.objects.watch = self.bucket_written
            object.__setattr__(self.place, "made", lambda: SimBucket(self.objects, None))  # type: ignore[arg-type]
        else:
            self.disk = Disk(self.actors)
            self.actors.on_death.append(self.disk.dies)
            object.__setattr__(self.place, "made", lambda: SimDisk(self.disk, self.disk_written))

    def token(self, size: int = 8) -> str:
        """A token that says who drew it, and what that one is about to accept."""
        name, made = self.actors.now, str(len(self.tokens))
        self.tokens[made] = (name, self.accepting.get(name, ""))
        return made

    def moved(self, version: str, whole: bool) -> None:
        """`current` leads somewhere else, or nowhere, where what it led to was set aside."""
        if not whole:
            self.actors.wrong(f"current leads to {version}, which is not whole")
        if version and version == self.damaged:
            self.actors.wrong(f"current leads to {version}, in which damage was found")
        if not version and self.now != self.damaged:
            self.actors.wrong(f"{self.now} is not current any more, and damage was found in {self.damaged or 'nothing'}")
        self.now = version
        for seen in self.since.values():
            seen.add(version)

    def disk_written(self, pointer: str, version: str) -> None:
        disk, name = self.disk, self.actors.now
        if pointer == "damaged":
            self.damaged = version
        if pointer == "current":
            if self.accepting.get(name) == version:
                self.accepted[name] += 1
            self.moved(version, not version or (version in disk.versions and len(disk.versions[version][1]) == len(FILES)))
        elif not pointer and version in disk.pointers.values():
            self.actors.wrong(f"{version} is deleted, and a pointer leads there")

    def bucket_written(self, key: str, data: bytes | None) -> None:
        before = self.objects.held.get(key)
        if key == catalog.KEY:
            assert data is not None
            self._catalog(parsed(data))
        elif key.startswith("versions/") and "." not in key.split("/")[1]:
            self._payload(key, before.data if before else None, data)

    def _catalog(self, after: dict[str, Any]) -> None:
        before, self.known = self.known, after
        if after["generation"] != before["generation"] + 1:
            self.actors.wrong("the catalog lost a change")
        for pointer, version in after["pointers"].items():
            if version and not self._whole(version):
                self.actors.wrong(f"{pointer} leads to {version}, which is not whole")
        self.damaged = after["pointers"].get("damaged", "")
        current, token = after["pointers"]["current"], after["done"][-1] if after["done"] else ""
        writer, version = self.tokens.get(token, ("", ""))
        if version and version == current and self.accepting.get(writer) == version:
            self.accepted[writer] += 1
        if current != self.now:
            if current and current == before["pointers"].get("damaged"):
                self.actors.wrong(f"{current} is accepted, in which damage was found")
            self.moved(current, True)

    def _whole(self, version: str) -> bool:
        held = self.objects.held
        manifest = held.get(f"versions/{version}/{MANIFEST}")
        if manifest is None:
            return False
        note = note_of(manifest.data)
        files = (held.get(f"versions/{version}/{name}") for name in FILES)
        return all(each is not None and each.data.decode() == note.content(name) for name, each in zip(FILES, files, strict=True))

    def _payload(self, key: str, before: bytes | None, data: bytes | None) -> None:
        _, version, name = key.split("/")
        if data is None and version in self.known["pointers"].values():
            self.actors.wrong(f"{key} is deleted, and a pointer leads there")
        if name == MANIFEST and data is not None and version not in self.known["condemned"]:
            if before is not None and not note_of(before).same_store(note_of(data)):
                self.actors.wrong(f"{key} is replaced by the manifest of another store")
            if any(f"versions/{version}/{each}" not in self.objects.held for each in FILES):
                self.actors.wrong(f"{key} is there before its payload")

    # -- what actors do -----------------------------------------------------------------------------------------------------------------

    def write(self, note: Note) -> None:
        """Build, check and publish, as the engine does."""
        try:
            self._publish(note)
        finally:
            self.writing -= 1

    def _publish(self, note: Note) -> None:
        try:
            made = self.place.propose(
                note.build_key,
                lambda *_: note,  # type: ignore[arg-type, return-value]
                config_key=note.config_key,
                recipe={},
            )
            self.actors.turn()
            name = self.actors.now
            self.accepting[name] = made.version
            began = self.now == made.version
            self.since[f"accept {name}"] = {self.now}
            self.place.accept(made, {})
        except StoreError:
            return
        self.acknowledged += 1
        seen = self.since.pop(f"accept {name}")
        if made.version not in seen and not began:
            self.actors.wrong(f"{made.version} was acknowledged and never current")
        if self.accepted[name] > 1:
            self.actors.wrong(f"{made.version} was published {self.accepted[name]} times by one who published it once")

    def read(self) -> None:
        """Open what is current and read all of it, twice."""
        self.actors.turn()
        name = self.actors.now
        for _ in range(2):
            self.since[name] = {self.now}
            try:
                found = self.place.current()
                files: Any = found.directory if found else None
            except StoreError:
                self.told += 1
                continue
            if found is None:
                self.actors.wrong("nothing is current, and something was")
                return
            note: Any = found.manifest
            if files != [note.content(each) for each in FILES]:
                self.actors.wrong(f"{found.version} was read as {files}")
            if found.version not in self.since[name]:
                self.actors.wrong(f"{found.version} was read, and was not current meanwhile")
            self.whole += 1

    def scrub(self) -> None:
        """Set what is current aside, as if damage had been found in it, a few times while others publish."""
        for _ in range(SCRUBS):
            self.actors.turn()
            with contextlib.suppress(StoreError):
                if (found := self.place.current()) is not None and self.place.set_aside(found, {}):
                    self.set_aside += 1

    def prune(self) -> None:
        """Delete what is unused, again and again while others publish."""
        for _ in range(PASSES):
            with contextlib.suppress(StoreError):
                self.removed += len(self.place.remove_unused())
            if self.writing == 0:
                return


def schedule(ground: Ground, seed: int) -> World:
    """One schedule, with what does not hold on it in `actors.violations`."""
    world = World(ground, seed)
    actors, chance = world.actors, world.actors.chance
    secret = SimpleNamespace(token_hex=world.token)
    clock = SimpleNamespace(
        monotonic=actors.time, time=actors.time, gmtime=lambda seconds: int(seconds), strftime=lambda _, day: f"{day:08d}"
    )
    with mock.patch.multiple(bucket_versions, time=clock, secrets=secret), mock.patch.object(catalog, "secrets", secret):
        actors.add("first writer", partial(world.write, FIRST))
        actors.run()
        if ground == "bucket" and seed % 4:
            world.objects.faults = ROUGH
        few = chance.random() < 0.5  # writers of a few stores, or of many
        for number in range(WRITERS):
            actors.add(f"writer {number}", partial(world.write, chance.choice(NOTES[:4] if few else NOTES)))
        for number in range(READERS):
            actors.add(f"reader {number}", world.read)
        actors.add("pruner", world.prune)
        if seed % 2:
            actors.add("scrubber", world.scrub)
        actors.run(deaths=0.003 if seed % 3 == 0 else 0.0)
        actors.end()
    if ground == "bucket":
        world.objects.settle()
    return world


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Builds write nothing on this machine, leases and leftovers have the times of schedules, and a catalog that many look at is parsed once."""

    def build(backend: Any, about: Any, write: Any, *, before: Any) -> str:
        version: str = backend.build(write(None, None))
        return version

    def verify(self: Published) -> None:
        if self.keeper is not None and self.keeper.faults(self.version, self.manifest):
            raise StoreError(f"{self.version} is damaged")

    with (
        mock.patch.object(Published, "verify", verify),
        mock.patch.object(published, "build_version", build),
        mock.patch.multiple(bucket_versions, LEASE=100_000, DAY=60, KEPT=100_000),
        mock.patch.object(catalog, "loads", parsed),
        mock.patch.dict(os.environ, clear=True),  # each error looks for secrets in it
    ):
        yield


def schedules(ground: Ground, first: int, count: int) -> Figures:
    """So many schedules, with seeds that follow one another."""
    figures = Figures()
    with simulated():
        for seed in range(first, first + count):
            figures.points += 1
            figures.violations += [f"{ground}, seed {seed}: {each}" for each in schedule(ground, seed).actors.violations]
    return figures


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    step, began, failed = 250, time.monotonic(), 0
    for ground, share in (("bucket", 0.7), ("disk", 1.0)):
        total, wrong, first = 0, 0, options.seed
        with ProcessPoolExecutor(options.processes) as pool:
            while total < options.schedules // 2 and time.monotonic() - began < options.seconds * share:
                starts = [first + number * step for number in range(options.processes)]
                for figures in pool.map(schedules, repeat(ground), starts, repeat(step)):
                    total += figures.points
                    wrong += len(figures.violations)
                    print("".join(f"{violation}\n" for violation in figures.violations[:5]), end="")
                first += step * options.processes
        print(f"schedules on a {ground}: {total:,}, violations: {wrong:,}, seeds {options.seed} to {first - 1}", flush=True)
        failed += wrong
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
