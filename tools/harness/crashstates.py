"""Every folder that a crash may leave of a publication, by a model that promises nothing but what was synced.

    PYTHONPATH=tools python -m harness.crashstates --states 10000 --seed 0

On each state: `current` is the old store or the new one, whole; once the publication was acknowledged it is the new one; the next run ends with
the bytes of an undisturbed one. And each fsync proves its worth: without it, at least one state fails.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from harness.ground import Figures
from harness.model import Operation, recorded, unsure
from harness.workloads import FORMATS, NEW, OLD, in_shards, publish, set_aside
from prep_assets.stores.published import Place

Steps = Sequence[Callable[[Place], object]]
SCENES: dict[str, Steps] = {
    "publish": (lambda place: publish(place, OLD, FORMATS["tokens bin"]),),
    "replace": (lambda place: publish(place, OLD, FORMATS["lines"]), lambda place: publish(place, NEW, FORMATS["packed h5"])),
    "build again": (
        lambda place: publish(place, OLD, FORMATS["lines"]),
        lambda place: publish(place, OLD, FORMATS["lines"], seed=2, again=True),
    ),
    "reuse": (
        lambda place: publish(place, OLD, FORMATS["lines"]),
        lambda place: publish(place, NEW, FORMATS["lines"], seed=2),
        lambda place: publish(place, OLD, FORMATS["lines"]),
    ),
    "check": (
        lambda place: publish(place, OLD, FORMATS["lines"]),
        lambda place: publish(place, NEW, FORMATS["lines"], accept=False),
        lambda place: publish(place, NEW, FORMATS["lines"]),
    ),
    "in shards": (lambda place: publish(place, OLD, in_shards), lambda place: publish(place, NEW, in_shards, seed=9)),
    "set aside": (lambda place: publish(place, OLD, FORMATS["lines"]), set_aside, lambda place: publish(place, OLD, FORMATS["lines"])),
    "prune": (
        lambda place: publish(place, OLD, FORMATS["lines"]),
        lambda place: publish(place, NEW, FORMATS["lines"]),
        lambda place: place.remove_unused(),
    ),
}


class Scene:
    """A recorded sequence of steps: its operations, after which of them each step was acknowledged, and what is current then.

    Attributes:
        found: what did not hold in each state that was looked at, by the steps that were acknowledged, whether one more had begun, and the disk.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._folder, self._steps = name, folder, SCENES[name]
        root = folder / "recorded"
        shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        place = Place(root, "asset", "part")
        self.acknowledged: list[tuple[int, str]] = [(0, "")]
        with recorded(root) as recorder:
            for step in self._steps:
                step(place)
                self.acknowledged.append((len(recorder.operations), _standing(place)))
        self.operations, self._start = recorder.operations, recorder.start
        self.found: dict[tuple[int, bool, str], list[str]] = {}

    def faults(self, upto: int, lost: frozenset[int], torn: int | None, operations: Sequence[Operation] | None = None) -> Sequence[str]:
        """What does not hold after a crash behind operation `upto`, of which those `lost` never reached the disk."""
        disk, done = self._start.copy(), sum(at <= upto for at, _ in self.acknowledged)
        for number, operation in enumerate((operations or self.operations)[:upto]):
            if number not in lost:
                disk.apply(operation, torn=number == torn)
        begun = upto > self.acknowledged[done - 1][0]
        if (key := (done, begun, disk.contents())) not in self.found:
            state = self._folder / "state"
            shutil.rmtree(state, ignore_errors=True)
            disk.materialize(state)
            self.found[key] = [
                f"{self.name}, crash after {upto}: {fault}" for fault in self._look(Place(state, "asset", "part"), done, begun)
            ]
        return self.found[key]

    def _look(self, place: Place, done: int, begun: bool) -> Iterator[str]:
        """What does not hold where so many steps were acknowledged, and perhaps the next one had begun."""
        names = [name for _, name in self.acknowledged]
        try:
            found = _standing(place)
            if found not in names[done - 1 : done + begun]:
                yield f"current is {found or 'nothing'}, {names[done - 1] or 'nothing'} was acknowledged"
            for step in self._steps[min(done, len(self._steps)) - 1 :]:
                step(place)
            if _content(_standing(place)) != _content(names[-1]):
                yield "the next run ends with another store"
            if place.leftovers():
                yield f"the next run leaves {place.leftovers()}"
        except Exception as error:
            yield f"{type(error).__name__}: {error}"

    def states(
        self, operations: Sequence[Operation], upto: int, chance: random.Random, more: int
    ) -> Iterator[tuple[frozenset[int], int | None]]:
        """What may be lost at a crash: nothing, everything, all of one file or folder, all but that, and `more` drawn at random."""
        loose = unsure(operations[:upto])
        yield frozenset(), None
        yield frozenset(loose), None
        for of in sorted({operations[number].of for number in loose}):
            its = frozenset(number for number in loose if operations[number].of == of)
            yield its, None
            yield frozenset(loose) - its, None
        for _ in range(more if loose else 0):
            kept = chance.random()
            lost = frozenset(number for number in loose if chance.random() > kept)
            writes = [number for number in loose if number not in lost and operations[number].kind == "write"]
            yield lost, chance.choice(writes) if writes and chance.random() < 0.5 else None


def _standing(place: Place) -> str:
    """The version that is current, or set aside, after a look at all of its bytes."""
    now = place.pointers
    if version := now.damaged or now.current:
        place.backend.published(version).verify()
    return f"set aside: {version}" if now.damaged else version


def _content(version: str) -> str:
    """A version without the number that it has where a crash left a folder of the same content."""
    return "-".join(version.split("-")[:2])


def harness(folder: Path, *, states: int, seed: int) -> Figures:
    """So many distinct states over all scenes, or as many as are found."""
    chance = random.Random(seed)
    scenes = [Scene(folder / str(number), name) for number, name in enumerate(SCENES)]
    points = [(scene, upto) for scene in scenes for upto in range(len(scene.operations) + 1)]

    def tried(more: int) -> Iterator[None]:
        chance.shuffle(points)
        for scene, upto in points:
            for lost, torn in scene.states(scene.operations, upto, chance, more):
                scene.faults(upto, lost, torn)
                yield

    for _ in chain.from_iterable(tried(more) for more in (0, 2, 4, 8, 16, 32, 64, 128)):
        if sum(len(scene.found) for scene in scenes) == states:
            break
    found = [faults for scene in scenes for faults in scene.found.values()]
    return Figures(len(found), [fault for faults in found for fault in faults])


def needless(folder: Path, name: str, chance: random.Random) -> tuple[int, list[str]]:
    """How many fsyncs a scene makes, and those without which every state that is tried holds."""
    scene = Scene(folder, name)
    syncs = [number for number, operation in enumerate(scene.operations) if operation.kind == "sync"]
    found = []
    for sync in syncs:
        without = [Operation("nothing", -1) if number == sync else operation for number, operation in enumerate(scene.operations)]
        acknowledged = [at for at, _ in scene.acknowledged if at > sync]
        crashes = dict.fromkeys([*acknowledged, *range(sync + 1, len(without) + 1)])
        if not any(scene.faults(upto, lost, torn, without) for upto in crashes for lost, torn in scene.states(without, upto, chance, 0)):
            found.append(f"{name}: operation {sync}, {scene.operations[sync]}")
    return len(syncs), found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--syncs", action="store_true", help="also take away each fsync")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        figures = harness(Path(folder), states=options.states, seed=options.seed)
        print("\n".join(figures.violations[:20]))
        print(f"crash states: {figures.points:,}, violations: {len(figures.violations):,}, seed {options.seed}")
        if options.syncs:
            for name in SCENES:
                syncs, useless = needless(Path(folder) / name, name, random.Random(options.seed))
                print("\n".join(useless) or f"{name}: each of {syncs} fsyncs is needed")
    raise SystemExit(bool(figures.violations))


if __name__ == "__main__":
    main()
