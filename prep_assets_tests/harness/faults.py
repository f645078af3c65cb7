"""Let a call on files fail: each one that a workload makes, with each error that the system has for it; and all from one call on.

    python -m prep_assets_tests.harness.faults --seconds 600 --seed 0 [--families]

Each time: one sentence that names a file and a remedy, or success; `current` is the old store or the new one, whole; what was written is gone;
the next run ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Sequence

from prep_assets_tests.harness.command import command
from prep_assets_tests.harness.ground import Figures, Ground, drawn, tree
from prep_assets_tests.harness.shim import FAIL, FAIL_ON

ERRORS = ("ENOSPC", "EIO", "EMFILE", "EROFS", "EDQUOT")
OURS = "prep_assets.errors."


def struck(ground: Ground, figures: Figures, number: int, error: str, mode: int) -> None:
    """Let one call fail, or all from one on, and compare."""
    ground.reset()
    was = ground.place.exists
    figures.points += 1
    outcome = ground.run(mode, number, getattr(errno, error))
    faults = list(ground.faults(was))
    if outcome.status < 0:
        faults.append(f"ended by signal {-outcome.status}")
    elif outcome.status:
        faults += untold(outcome.said, str(ground.place.root.parent))
        if "could not be deleted" not in outcome.said and (left := ground.place.leftovers()):
            faults.append(f"left {left[0]} and did not say so")
    last = ground.run()
    if last.status:
        faults.append(f"the next run fails: {last.said}")
    elif (found := tree(ground.place.root)) != ground.end:
        faults.append(f"the next run ends otherwise: {sorted(set(found.items()) ^ set(ground.end.items()))[:4]}")
    how = "" if mode == FAIL else " and all after it"
    figures.violations += [f"{ground.workload.name}, call {number}{how} fails with {error}: {fault}\n{outcome.trace}" for fault in faults]


def untold(said: str, root: str) -> list[str]:
    """What is wrong with the words of an error."""
    kind, _, text = said.partition(": ")
    if not kind.startswith(OURS):
        return [f"not in words: {said}"]
    if root not in text or len(text) < 40 or "Traceback" in text:
        return [f"does not name file and remedy: {said}"]
    return []


def harness(grounds: Sequence[Ground], *, seconds: float, seed: int, most: int | None = None) -> Figures:
    """Calls of workloads with errors, drawn by the seed, none twice, for so many seconds, or so many."""
    figures, chance, end = Figures(), random.Random(seed), time.monotonic() + seconds
    seen: set[tuple[str, int, str, int]] = set()
    for ground, number in drawn(grounds, chance):
        error = chance.choice(ERRORS)
        mode = chance.choice((FAIL, FAIL_ON)) if error in ("ENOSPC", "EROFS") else FAIL
        if time.monotonic() > end or figures.points == most:
            break
        if (key := (ground.workload.name, number, error, mode)) not in seen:
            seen.add(key)
            struck(ground, figures, number, error, mode)
    return figures


if __name__ == "__main__":
    command("faults", harness)
