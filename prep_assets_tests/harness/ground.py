"""A place that is disturbed again and again, and what must hold of it afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

from prep_assets.stores.published import Place
from prep_assets_tests.harness.shim import COUNT, Outcome, run
from prep_assets_tests.harness.workloads import Workload


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
    """Every entry below a folder, by relative path: where links lead, hashes of files."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above) / name
            what = str(path.readlink()) if path.is_symlink() else "folder" if path.is_dir() else sha256(path.read_bytes()).hexdigest()
            found[path.relative_to(folder).as_posix()] = what
    return found


class Ground:
    """A place that begins each time as the workload wants it."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.workload, self._folder = workload, folder
        self.place = Place(folder / "stores", "asset", "part")
        self._start = folder / "start"
        shutil.rmtree(folder, ignore_errors=True)
        self._start.mkdir(parents=True)
        workload.before(Place(self._start, "asset", "part"))
        self.reset()
        self.calls = self.run().calls
        self.end = tree(self.place.root)

    def reset(self) -> None:
        """Begin again."""
        shutil.rmtree(self.place.root, ignore_errors=True)
        shutil.copytree(self._start, self.place.root, symlinks=True)

    def run(self, mode: int = COUNT, number: int = 0, error: int = 0) -> Outcome:
        """Carry out the workload."""
        return run(lambda: self.workload.work(self.place), self._folder / "stores", mode, number, error)

    def faults(self, was_current: bool) -> Iterator[str]:
        """What does not hold right after a disturbance."""
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


def open_reader(place: Place) -> tuple[str, memoryview] | None:
    """A file of the current store, mapped, and its hash."""
    current = place.current()
    if current is None:
        return None
    path = next(current.directory / name for name, entry in sorted(current.manifest.files.items()) if entry["bytes"])
    mapped = np.memmap(path, np.uint8, "r")
    return sha256(mapped).hexdigest(), mapped.data
