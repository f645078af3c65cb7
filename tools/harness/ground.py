"""A place that is disturbed again and again, and what must hold of it afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from harness.shim import COUNT, Outcome, run
from harness.workloads import Workload
from prep_assets.stores.published import Place


@dataclass
class Figures:
    """What a harness did.

    Attributes:
        points: places at which it struck.
        violations: what does not hold, in words.
    """

    points: int = 0
    violations: list[str] = field(default_factory=list)


def tree(folder: Path) -> dict[str, str]:
    """Every entry below a folder, by relative path: where links lead, hashes of files. When a source was last looked at is left out."""
    found = {}
    for above, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".hashes"]
        for name in (*folders, *files):
            path = Path(above) / name
            what = str(path.readlink()) if path.is_symlink() else "folder" if path.is_dir() else sha256(path.read_bytes()).hexdigest()
            found[path.relative_to(folder).as_posix()] = what
    return found


class Ground:
    """A place that begins each time as the workload wants it. It is made when it is first needed."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.workload = workload
        self.place = Place(folder / "live" / "stores", workload.asset, workload.partition)
        self._start, self._temporary = folder / "start", folder / "live" / "temporary"

    @cached_property
    def _undisturbed(self) -> tuple[int, dict[str, str]]:
        self._start.mkdir(parents=True)
        self.workload.before(replace(self.place, root=self._start))
        self.reset()
        self.workload.work(self.place)  # imports what forked processes would import each for itself
        self.reset()
        outcome = self.run()
        assert outcome.status == 0, f"{self.workload.name}: {outcome.said}\n{outcome.trace}"
        return outcome.calls, tree(self.place.root)

    @property
    def calls(self) -> int:
        """How many calls on files the workload makes."""
        return self._undisturbed[0]

    @property
    def end(self) -> dict[str, str]:
        """What is there after it."""
        return self._undisturbed[1]

    def reset(self) -> None:
        """Begin again."""
        shutil.rmtree(self.place.root.parent, ignore_errors=True)
        self._temporary.mkdir(parents=True)
        shutil.copytree(self._start, self.place.root, symlinks=True)

    def run(self, mode: int = COUNT, number: int = 0, error: int = 0) -> Outcome:
        """Carry out the workload."""

        def work() -> None:
            tempfile.tempdir = str(self._temporary)
            self.workload.work(self.place)

        return run(work, self.place.root.parent, mode, number, error)

    def faults(self, was_current: bool) -> Iterator[str]:
        """What does not hold right after a disturbance."""
        if self.workload.name.startswith("set aside") and self.place.pointers.damaged:
            return
        try:
            current = self.place.current()
        except Exception as error:
            yield f"current cannot be read: {error}"
            return
        if current is None:
            if was_current:
                yield "current is gone"
        elif self.workload.name != "repair":
            try:
                current.verify()
            except Exception as error:
                yield f"current is not whole: {error}"

    def recovered(self, mode: int = COUNT) -> Iterator[str]:
        """What does not hold when the workload is carried out once more, undisturbed."""
        last = self.run(mode)
        if last.status:
            yield f"the next run fails: {last.said}"
        elif (found := tree(self.place.root)) != self.end:
            yield f"the next run ends otherwise: {sorted(set(found.items()) ^ set(self.end.items()))[:4]}"


def open_reader(place: Place) -> tuple[str, memoryview] | None:
    """A file of the current store, mapped, and its hash."""
    current = None if place.pointers.damaged else place.current()
    if current is None:
        return None
    path = next(current.directory / name for name, entry in sorted(current.manifest.files.items()) if entry["bytes"])
    mapped = np.memmap(path, np.uint8, "r")
    return sha256(mapped).hexdigest(), mapped.data
