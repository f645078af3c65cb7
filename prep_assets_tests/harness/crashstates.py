"""Every folder that a crash may leave of a publication, by a model that promises nothing but what was synced.

    python -m prep_assets_tests.harness.crashstates --states 10000 --seed 0

On each state: `current` is the old store or the new one, whole; once the publication was acknowledged it is the new one; the next run ends with
the bytes of an undisturbed one. And each fsync proves its worth: without it, at least one state fails.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prep_assets.stores.published import Place
from prep_assets_tests.harness.ground import Figures, tree
from prep_assets_tests.harness.model import Disk, Operation, recorded, unsure
from prep_assets_tests.harness.workloads import FORMATS, NEW, OLD, publish

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
    "prune": (
        lambda place: publish(place, OLD, FORMATS["lines"]),
        lambda place: publish(place, NEW, FORMATS["lines"]),
        lambda place: place.remove_unused(),
    ),
}


class Scene:
    """A recorded sequence of steps: its operations, after which of them each step was acknowledged, and what is current then."""

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
                current = place.current()
                assert current is not None
                self.acknowledged.append((len(recorder.operations), current.directory.name))
        self.operations, self._start, self.end = recorder.operations, recorder.start, tree(root)

    def faults(self, upto: int, lost: frozenset[int], torn: int | None, operations: Sequence[Operation] | None = None) -> Iterator[str]:
        """What does not hold after a crash behind operation `upto`, of which those `lost` never reached the disk."""
        disk: Disk = copy.deepcopy(self._start)
        for number, operation in enumerate((operations or self.operations)[:upto]):
            if number not in lost:
                disk.apply(operation, torn=number == torn)
        state = self._folder / "state"
        shutil.rmtree(state, ignore_errors=True)
        disk.materialize(state)
        yield from self._look(Place(state, "asset", "part"), upto)

    def _look(self, place: Place, upto: int) -> Iterator[str]:
        done = [name for at, name in self.acknowledged if at <= upto]
        coming = [name for at, name in self.acknowledged if at > upto][:1]
        try:
            current = place.current()
            found = current.directory.name if current else ""
            if current:
                current.verify()
            begun = upto > max(at for at, _ in self.acknowledged if at <= upto)
            if found not in (done[-1], *(coming if begun else ())):
                yield f"current is {found or 'nothing'}, {done[-1]} was acknowledged"
            for step in self._steps[len(done) - 1 if coming else len(done) - 2 :]:
                step(place)
            now = place.current()
            if now is None or now.directory.name != self.acknowledged[-1][1]:
                yield "the next run ends with another store"
            else:
                now.verify()
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


def harness(folder: Path, *, states: int, seed: int) -> Figures:
    """At least so many distinct states over all scenes."""
    figures, chance = Figures(), random.Random(seed)
    scenes = [Scene(folder / str(number), name) for number, name in enumerate(SCENES)]
    points = [(scene, upto) for scene in scenes for upto in range(len(scene.operations) + 1)]
    seen: set[tuple[str, int, frozenset[int], int | None]] = set()
    more = 0
    while figures.points < states and more < 64:
        chance.shuffle(points)
        for scene, upto in points:
            for lost, torn in scene.states(scene.operations, upto, chance, more):
                if (key := (scene.name, upto, lost, torn)) in seen or figures.points >= states:
                    continue
                seen.add(key)
                figures.points += 1
                figures.violations += [f"{scene.name}, crash after {upto}: {fault}" for fault in scene.faults(upto, lost, torn)]
        more = more * 2 or 2
    return figures


def needless(folder: Path, name: str, chance: random.Random) -> tuple[int, list[str]]:
    """How many fsyncs a scene makes, and those without which every state that is tried holds."""
    scene = Scene(folder, name)
    syncs = [number for number, operation in enumerate(scene.operations) if operation.kind == "sync"]
    found = []
    for sync in syncs:
        without = [Operation("nothing", -1) if number == sync else operation for number, operation in enumerate(scene.operations)]
        acknowledged = [at for at, _ in scene.acknowledged if at > sync]
        crashes = dict.fromkeys([*acknowledged, *range(sync + 1, len(without) + 1)])
        if not any(
            next(scene.faults(upto, lost, torn, without), None) for upto in crashes for lost, torn in scene.states(without, upto, chance, 0)
        ):
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
