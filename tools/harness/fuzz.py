"""Feed readers with what is nearly right: every reader of bytes that a stranger or a bad disk may have written (`fuzz_targets`).

    PYTHONPATH=tools python -m harness.fuzz --inputs 10000000 --seconds 1200 --seed 0
    PYTHONPATH=tools python -m harness.fuzz --replay "schema messages" --hex 7b7d

Only `Refused` and `PrepAssetsError` may come out, each input within two seconds of processor time and without much memory. A batch is read in a
process of its own, so that a crash in a library is a violation and not an end. Where atheris is installed, libFuzzer chooses the inputs: those
that reach new lines of the package are kept and changed again. Every violation is printed with its bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.fuzz_targets import Target, changed_bytes, changed_json, targets
from harness.ground import Figures
from prep_assets.errors import PrepAssetsError, Refused

SECONDS, MEMORY, ADDRESSES = 2.0, 1 << 30, 8 << 30
SHOWN = 1500
PACKAGE = Path(__file__).parents[2] / "prep_assets"


@dataclass
class Fed:
    """One batch of inputs of one target, fed in this process.

    Attributes:
        count: how many so far, in memory that the parent sees.
        said: a file of what does not hold, the first of each kind.
        faults: which kinds.
    """

    name: str
    target: Target
    folder: Path
    count: mmap.mmap
    said: Path
    faults: set[str] = field(default_factory=set)
    _before: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def __call__(self, data: bytes) -> None:
        """Feed one input."""
        began = time.process_time()
        try:
            self.target.feed(self.folder, data)
        except (Refused, PrepAssetsError):
            pass
        except BaseException as error:
            self._fault(f"{type(error).__name__} at {_where(error)}", str(error)[:300], data)
        if (took := time.process_time() - began) > SECONDS:
            self._fault("slow", f"{took:.1f} s", data)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before) * 1024
        if grown > MEMORY:
            self._fault("memory", f"{grown:,} bytes", data)
        self.count[:8] = (int.from_bytes(self.count[:8], "little") + 1).to_bytes(8, "little")

    def _fault(self, kind: str, what: str, data: bytes) -> None:
        shown = data.hex() if len(data) <= SHOWN else f"{data[:SHOWN].hex()}… ({len(data):,} bytes)"
        if kind not in self.faults:
            self.faults.add(kind)
            with self.said.open("a", encoding="utf-8", errors="backslashreplace") as said:
                said.write(f"{self.name}: {kind}: {what!r}; --hex {shown}\n")


def _where(error: BaseException) -> str:
    """The innermost line of all, and that of the package."""
    lines = [f"{at.filename}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__)]
    ours = [line for line in lines if line.startswith(str(PACKAGE))]
    return " of ".join(dict.fromkeys((lines[-1], *ours[-1:])))


Feeding = Callable[[Fed, int, int, Path], None]


def plain(fed: Fed, seed: int, size: int, corpus: Path) -> None:
    """`size` inputs made of the sound ones."""
    chance = random.Random(seed)
    for _ in range(size):
        fed(changed(fed.target, chance.choice(fed.target.sound), chance))


def changed(target: Target, data: bytes, chance: random.Random) -> bytes:
    """An input made of another one."""
    return changed_json(data, chance) if target.is_json and chance.random() < 0.6 else changed_bytes(data, chance)


def batch(name: str, target: Target, feeding: Feeding, seed: int, size: int, place: Path) -> tuple[int, list[str]]:
    """Feed `size` inputs in a process of its own; how many were read, and what does not hold, in words."""
    corpus, folder = place / "corpus" / name.replace("/", "_"), place / "fed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    corpus.mkdir(parents=True, exist_ok=True)
    count, said = mmap.mmap(-1, 8), place / "said"
    said.write_bytes(b"")
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        status = 1
        try:
            feeding(Fed(name, target, folder, count, said), seed, size, corpus)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code, found = os.waitstatus_to_exitcode(status), said.read_text("utf-8", "replace").splitlines()
    done = int.from_bytes(count[:8], "little")
    ended = f"{name}, seed {seed}: the process ended with {code} at input {done:,}; it was {_last(folder)}"
    return done, found + [ended] * bool(code)


def _last(folder: Path) -> str:
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime)
    return files[-1].read_bytes()[:SHOWN].hex() if files else "in memory"


@dataclass
class Counts(Figures):
    """Figures with the number of inputs by target."""

    by_target: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[str]:
        """A table."""
        for name, count in sorted(self.by_target.items(), key=lambda each: -each[1]):
            yield f"{count:>10,}  {name}"


def harness(
    folder: Path, *, inputs: int, seed: int, seconds: float, size: int = 20_000, feeding: Feeding = plain, only: str = ""
) -> Counts:
    """So many inputs in batches, for so many seconds; the targets in turn, or those that have a text in their names."""
    warnings.simplefilter("ignore")
    counts, end, number = Counts(), time.monotonic() + seconds, 0
    found = {name: target for name, target in targets(folder / "sound").items() if only in name}
    while counts.points < inputs and time.monotonic() < end:
        for at, (name, target) in enumerate(found.items()):
            if counts.points >= inputs or time.monotonic() > end:
                break
            its = min(max(1, int(size * target.share)), inputs - counts.points)
            done, faults = batch(name, target, feeding, seed + number * len(found) + at, its, folder)
            counts.points += done
            counts.by_target[name] += done
            counts.violations += faults
            print("".join(f"{fault}\n" for fault in faults), end="", flush=True)
        number += 1
        print(f"round {number}: {counts.points:,} inputs, {len(counts.violations):,} violations", flush=True)
    return counts


def main(feeding: Feeding = plain) -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="TEXT", help="targets with this in their names")
    parser.add_argument("--replay", metavar="TARGET")
    parser.add_argument("--hex", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        folder = Path(name)
        if options.replay:
            fed = folder / "fed"
            fed.mkdir()
            with contextlib.suppress(Refused, PrepAssetsError):
                targets(folder / "sound")[options.replay].feed(fed, bytes.fromhex(options.hex))
            return
        counts = harness(folder, inputs=options.inputs, seed=options.seed, seconds=options.seconds, feeding=feeding, only=options.only)
    print("\n".join(counts.lines()))
    print(f"inputs: {counts.points:,} over {len(counts.by_target)} readers, violations: {len(counts.violations):,}, seed {options.seed}")
    raise SystemExit(bool(counts.violations))


if __name__ == "__main__":
    main()
