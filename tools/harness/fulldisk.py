"""Fill a disk at every point of a build: file systems of 125 sizes, from one that holds nothing to one that holds it all. Needs root.

    PYTHONPATH=tools python -m harness.fulldisk --sizes 125

Each time: success, or one sentence that names the file, what is needed and what is free; no signal; what was written is gone; the old store is
whole. The same build on more room then ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from harness.ground import Figures, Ground
from harness.shim import OFF, under_shim
from harness.strikes import untold
from harness.workloads import NEW, Workload, publish, tokens, workloads

PAGE = os.sysconf("SC_PAGE_SIZE")
ROOM = "64m"


@cache
def missing() -> str:
    """Why there can be no small file systems here; empty where there can."""
    if os.geteuid() or not shutil.which("mount"):
        return "needs root" if os.geteuid() else "needs mount"
    try:
        with tempfile.TemporaryDirectory() as folder, small(Path(folder) / "disk"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no file systems in memory here: {error.stderr.decode().strip()}"


@contextmanager
def small(folder: Path) -> Iterator[Path]:
    """A file system in memory."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def resize(folder: Path, size: str) -> None:
    """Give it another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True, capture_output=True)


def filled(disk: Path, ground: Ground, figures: Figures, pages: int) -> None:
    """One build with so many pages of room beyond what is there."""
    ground.reset()
    was = ground.place.exists
    used = shutil.disk_usage(disk).used
    resize(disk, str(max(used + pages * PAGE, PAGE)))  # 0 would be without a limit
    figures.points += 1
    outcome = ground.run(OFF)
    faults = list(ground.faults(was))
    if outcome.status:
        faults += untold(outcome.status, outcome.said, str(disk))
        if "are free at" not in outcome.said and os.strerror(errno.ENOSPC).lower() not in outcome.said.lower():
            faults.append(f"does not say that the disk is full: {outcome.said}")
        if left := ground.place.leftovers():
            faults.append(f"left {left[0]}")
    resize(disk, ROOM)
    faults += ground.recovered(OFF)
    figures.violations += [f"{ground.workload.name}, {pages} pages: {fault}" for fault in faults]


def large() -> list[Workload]:
    """Stores of more pages than there are sizes, in each format that a library writes for us."""
    payloads = {storage: tokens(storage, 20) for storage in ("h5", "bin")}
    return [
        Workload(f"large: tokens {storage}", lambda place: None, lambda place, each=payload: publish(place, NEW, each) and None)
        for storage, payload in payloads.items()
    ]


def harness(folder: Path, *, sizes: int, most: int | None = None) -> dict[str, Figures]:
    """Builds of every workload, or of the `most` first, each on as many sizes as there are pages in what it writes, at most `sizes`; by workload."""
    found = {}
    for number, workload in enumerate([*large(), *workloads()][:most]):
        figures = found[workload.name] = Figures()
        with small(folder / str(number)) as disk:
            ground = Ground(disk / "ground", workload)
            assert ground.end
            pages = max(shutil.disk_usage(disk).used // PAGE, 1) + 8
            for step in range(min(sizes, pages)):
                filled(disk, ground, figures, pages * step // sizes if pages > sizes else step)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, default=125)
    parser.add_argument("--workloads", type=int)
    options = parser.parse_args()
    if reason := missing():
        raise SystemExit(f"full disks: skipped, {reason}")
    under_shim()
    with tempfile.TemporaryDirectory() as folder:
        found = harness(Path(folder), sizes=options.sizes, most=options.workloads)
    violations = [violation for figures in found.values() for violation in figures.violations]
    print("\n".join([f"{figures.points:>5}  {name}" for name, figures in found.items()] + violations[:40]))
    points = sum(figures.points for figures in found.values())
    print(f"full disks: {points:,} in {options.sizes} sizes at most, violations: {len(violations):,}")
    raise SystemExit(bool(violations))


if __name__ == "__main__":
    main()
