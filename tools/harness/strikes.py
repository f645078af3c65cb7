"""Strike at every call on files that a workload makes: kill the process there, or let the call fail, and look at what is left.

    PYTHONPATH=tools python -m harness.strikes killpoints --seconds 600 --seed 0 [--families]
    PYTHONPATH=tools python -m harness.strikes faults --seconds 600 --seed 0 [--families]

Killed: at every call once, then at calls and pairs of them drawn by the seed, the second while the next run recovers; a reader that was open reads
on. Failing: calls with errors drawn by the seed, none twice; some with all calls after them. Each failure is success, or one sentence that names a file
and a remedy, and what was written is gone. After each strike: `current` is the old store or the new one, whole; the next run ends with the bytes of an
undisturbed one, and nothing else is left.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path

from harness.ground import Figures, Ground, open_reader
from harness.shim import FAIL, FAIL_ON, KILL, under_shim
from harness.workloads import Workload, workloads

SIGKILL = -9
ERRORS = ("ENOSPC", "EIO", "EMFILE", "EROFS", "EDQUOT")
OURS = "prep_assets.errors."
Strike = tuple[int, str, int]
"""Number of a call; for one that fails its error, else none; for one that is killed that of the next run's call which is killed as well, else how it fails."""


def strikes(what: str, grounds: Sequence[Ground], chance: random.Random, *, every: bool) -> Iterator[tuple[Ground, Strike]]:
    """Strikes without an end, each workload as often as any other; with `every` all calls come first, where they are killed."""

    def drawn() -> Iterator[tuple[Ground, Strike]]:
        seen: set[tuple[str, Strike]] = set()
        while True:
            ground = chance.choice(grounds)
            number = chance.randint(1, ground.calls)
            if what == "killpoints":
                yield ground, (number, "", chance.choice((0, chance.randint(1, ground.calls))))
                continue
            error = chance.choice(ERRORS)
            strike = number, error, chance.choice((FAIL, FAIL_ON)) if error in ("ENOSPC", "EROFS") else FAIL
            if (key := (ground.workload.name, strike)) not in seen:
                seen.add(key)
                yield ground, strike

    calls = ((ground, (number, "", 0)) for ground in grounds for number in range(1, ground.calls + 1))
    return chain(calls if every and what == "killpoints" else (), drawn())


def killed(ground: Ground, number: int, again: int) -> Iterator[str]:
    """Kill at a call, and maybe again while the next run recovers; what does not hold."""
    was, reader = ground.place.exists, open_reader(ground.place)
    outcome = ground.run(KILL, number)
    if outcome.status not in (SIGKILL, 0):
        yield f"ended with {outcome.status}: {outcome.said}"
    yield from ground.faults(was)
    if again:
        ground.run(KILL, again)
        yield from ground.faults(was)
    yield from ground.recovered()
    if reader is not None and sha256(reader[1]).hexdigest() != reader[0]:
        yield "an open reader reads something else"


def failed(ground: Ground, number: int, error: str, mode: int) -> Iterator[str]:
    """Let one call fail, or all from one on; what does not hold."""
    was = ground.place.exists
    outcome = ground.run(mode, number, getattr(errno, error))
    yield from ground.faults(was)
    if outcome.status:
        yield from untold(outcome.status, outcome.said, str(ground.place.root.parent))
        if outcome.status > 0 and "could not be deleted" not in outcome.said and (left := ground.place.leftovers()):
            yield f"left {left[0]} and did not say so"
    yield from ground.recovered()


def untold(status: int, said: str, root: str) -> Iterator[str]:
    """What is wrong with how a process ended and with the words of its error."""
    kind, _, text = said.partition(": ")
    if status < 0:
        yield f"ended by signal {-status}"
    elif not kind.startswith(OURS):
        yield f"not in words: {said}"
    elif root not in text or len(text) < 40 or "Traceback" in text:
        yield f"does not name file and remedy: {said}"


def harness(what: str, grounds: Sequence[Ground], *, seconds: float, seed: int, most: int | None = None) -> Figures:
    """Strikes for so many seconds, or so many."""
    figures, end = Figures(), time.monotonic() + seconds
    for ground, (number, error, more) in islice(strikes(what, grounds, random.Random(seed), every=most is None), most):
        if time.monotonic() > end:
            break
        ground.reset()
        figures.points += 1
        faults = failed(ground, number, error, more) if error else killed(ground, number, more)
        figures.violations += [f"{ground.workload.name}, call {number}, {error or 'killed'}, {more}: {fault}" for fault in faults]
    return figures


def main() -> None:
    """The command: figures are printed, and it ends with 1 where something does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["killpoints", "faults"])
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
        figures = harness(options.what, grounds, seconds=options.seconds, seed=options.seed, most=options.points)
    print("\n".join(figures.violations[:40]))
    print(
        f"{options.what}{' of families' * options.families}: {figures.points:,}, violations: {len(figures.violations):,}, seed {options.seed}"
    )
    raise SystemExit(bool(figures.violations))


def _workloads(of_families: bool) -> list[Workload]:
    if of_families:
        from harness.families import families  # takes a second

        return families()
    return workloads()


if __name__ == "__main__":
    main()
