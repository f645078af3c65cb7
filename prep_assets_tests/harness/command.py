"""The command line of harnesses that strike at every call of a workload."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from prep_assets_tests.harness.ground import Figures, Ground
from prep_assets_tests.harness.shim import under_shim
from prep_assets_tests.harness.workloads import Workload, workloads


class Harness(Protocol):
    """What strikes, for so many seconds or at so many points."""

    def __call__(self, grounds: Sequence[Ground], *, seconds: float, seed: int, most: int | None = None) -> Figures: ...


def _workloads(of_families: bool) -> list[Workload]:
    if of_families:
        from prep_assets_tests.harness.families import families  # takes a second

        return families()
    return workloads()


def command(what: str, harness: Harness) -> None:
    """Run a harness as the command line asks, print its figures, and end with 1 where something does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int)
    parser.add_argument("--families", action="store_true", help="builds of whole assets in place of what puts stores in their places")
    parser.add_argument("--only", default="", metavar="TEXT", help="workloads with this in their names")
    options = parser.parse_args()
    under_shim()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        tempfile.tempdir = folder
        chosen = [workload for workload in _workloads(options.families) if options.only in workload.name]
        grounds = [Ground(Path(folder) / str(number), workload) for number, workload in enumerate(chosen)]
        figures = harness(grounds, seconds=options.seconds, seed=options.seed, most=options.points)
    print("\n".join(violation.partition("\nTraceback")[0] for violation in figures.violations[:40]))
    what += " of families" if options.families else ""
    print(f"{what}: {figures.points:,}, violations: {len(figures.violations):,}, seed {options.seed}")
    raise SystemExit(bool(figures.violations))
