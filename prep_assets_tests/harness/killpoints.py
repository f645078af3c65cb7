"""Kill a process at every call on files that a workload makes, and once more while the next run recovers.

    python -m prep_assets_tests.harness.killpoints --seconds 600 --seed 0 [--families]

After each: `current` is the old store or the new one, whole; a reader that was open reads on; the next run ends with the bytes of an
undisturbed one; nothing else is left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain, islice

from prep_assets_tests.harness.command import command
from prep_assets_tests.harness.ground import Figures, Ground, drawn, open_reader, tree
from prep_assets_tests.harness.shim import KILL

SIGKILL = -9


def struck(ground: Ground, figures: Figures, number: int, again: int | None) -> None:
    """Kill at a call, and again while the next run recovers; then compare."""
    ground.reset()
    where = f"{ground.workload.name}, call {number}" + (f", then {again}" if again else "")
    was = ground.place.exists
    reader = open_reader(ground.place)
    figures.points += 1
    outcomes = [ground.run(KILL, number)]
    faults = list(ground.faults(was))
    if again:
        outcomes.append(ground.run(KILL, again))
        faults += ground.faults(was)
    last = ground.run()
    if last.status:
        faults.append(f"the next run fails: {last.said}")
    elif (found := tree(ground.place.root)) != ground.end:
        faults.append(f"the next run ends otherwise: {sorted(set(found.items()) ^ set(ground.end.items()))[:4]}")
    if reader is not None and sha256(reader[1]).hexdigest() != reader[0]:
        faults.append("an open reader reads something else")
    if outcomes[0].status not in (SIGKILL, 0):
        faults.append(f"ended with {outcomes[0].status}: {outcomes[0].said}")
    figures.violations += [f"{where}: {fault}" for fault in faults]


def harness(grounds: Sequence[Ground], *, seconds: float, seed: int, most: int | None = None) -> Figures:
    """Every call of every workload once, then calls and pairs of them drawn by the seed, for so many seconds; or so many that are drawn."""
    figures, chance, end = Figures(), random.Random(seed), time.monotonic() + seconds
    every = ((ground, number, None) for ground in grounds for number in range(1, ground.calls + 1))
    more = ((ground, number, chance.choice((None, chance.randint(1, ground.calls)))) for ground, number in drawn(grounds, chance))
    for ground, number, again in chain(every, more) if most is None else islice(more, most):
        if time.monotonic() > end:
            break
        struck(ground, figures, number, again)
    return figures


if __name__ == "__main__":
    command("kill points", harness)
