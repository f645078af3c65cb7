"""The memory of builds against the size of what they read: each asset in a process of its own, from one size of source and from 16 times as much.

    PYTHONPATH=tools python -m harness.memory --megabytes 8 --times 16

What counts is the most memory that the system could not take back (anonymous pages), with all checks of the asset. It may grow by a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prep_assets.engine import build
from prep_assets.engine.events import Checked, Event, Started, Written
from prep_assets.graph.graph import family_assets
from prep_assets.own_process import set_up
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.families import FAMILIES, ROW
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

ALLOWED = 1.1
LOOK = 0.01
WORDS = [random.Random(n).choice("bdfglmnprst") + random.Random(n + 999).choice("aeiou") * (1 + n % 2) + "nrst"[n % 4] for n in range(300)]


def text_of(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def _rows(schema: str, chance: random.Random) -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        number += 1
        asked, said = f"{number}: {text_of(chance, 30)}", text_of(chance, 120)
        yield ROW[schema](asked, said, text_of(chance, 120))


def _sized(rows: Iterable[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
    for row in rows:
        if size <= 0:
            return
        yield row
        size -= len(json.dumps(row)) + 1


def workspace_of(folder: Path, family: str, megabytes: float, workers: int = 1) -> Workspace:
    """One family with a domain of so much text for each kind of rows that it has."""
    folder.mkdir(parents=True)
    domains = {}
    for schema in (FAMILIES[family].schema, *(["group"] if family == "rl" else [])):
        source = jsonl(folder / f"{schema}.jsonl", _sized(_rows(schema, random.Random(0)), int(megabytes * 2**20)))
        domains[schema] = domain(source, schema)
    options = {"rl": {"arithmetic": {"n": 100}}, "sft": {"template": "chatml"}}.get(family, {})
    return workspace_in(folder, minimal(family, domains, workers=workers, **options))


def _anonymous(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    except OSError:  # a worker that has ended
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def _workers(process: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text("ascii").split()):
                yield child
                yield from _workers(child)


def _where() -> str:
    """What the threads of this process are doing, the innermost lines of this package."""
    lines = []
    for frame in sys._current_frames().values():
        stack = [f"{Path(each.filename).name}:{each.lineno}" for each in traceback.extract_stack(frame) if "/prep_assets/" in each.filename]
        lines.append(" ".join(stack[-8:]))
    return " | ".join(filter(None, lines))


@dataclass
class Measured:
    """What a build took.

    Attributes:
        peaks: the most memory that its process had, by what was done: the asset before it, `BUILD`, or a check.
        where: what its threads did at that moment.
        worker: the most that one of its workers had.
    """

    peaks: dict[str, int]
    where: dict[str, str]
    worker: int = 0

    @property
    def most(self) -> str:
        """What was done when most was taken."""
        return max(self.peaks, key=self.peaks.__getitem__)


BUILD = "build"


def measured(folder: Path, asset: str, *, force: bool = False) -> Measured:
    """Build an asset in this process; with `force` even where it is sound."""
    found, doing, done = Measured({}, {}), "", threading.Event()

    def look() -> None:
        while not done.wait(LOOK):
            if (now := _anonymous(os.getpid())) > found.peaks.get(doing, 0):
                found.peaks[doing], found.where[doing] = now, _where()
            found.worker = max(found.worker, *map(_anonymous, _workers(os.getpid())), 0)

    def tell(event: Event) -> None:
        nonlocal doing
        if isinstance(event, Started | Written | Checked):
            after, own = [BUILD, *(check.name for check in event.step.asset.checks), ""], event.step.asset.name == asset
            last = event.check if isinstance(event, Checked) else BUILD
            doing = after[after.index(last) + (not isinstance(event, Started))] if own else event.step.asset.name

    watch = threading.Thread(target=look)
    watch.start()
    try:
        build(Workspace(folder / "configs", folder / "stores"), asset, tell=tell, force=force)
    finally:
        done.set()
        watch.join()
    return found


def grown(
    folder: Path, family: str, megabytes: float, times: int, only: list[str], workers: int
) -> Iterator[tuple[str, Measured, Measured]]:
    """Name of each asset of a family, and its memory from the small and from the large source."""
    small, large = (workspace_of(folder / f"{family}-{size:g}", family, size, workers) for size in (megabytes, megabytes * times))
    for asset in family_assets(small, family).values():
        if only and asset.name not in only:
            continue
        if "report" not in asset.name:
            one, other = (in_a_process(each.configs.parent, asset.name) for each in (small, large))
            yield asset.name, one, other


def in_a_process(folder: Path, asset: str, *more: str) -> Measured:
    """The same in a process of its own."""
    command = [sys.executable, "-m", f"{__package__ or __spec__.parent}.memory", "--measure", asset, "--folder", str(folder), *more]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    return Measured(**json.loads(said))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--where", action="store_true", help="say what was done when most was taken")
    parser.add_argument("--measure")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args()
    if options.measure:
        set_up()  # as the command does
        print(json.dumps(asdict(measured(options.folder, options.measure, force=options.force))))
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families:
            for name, small, large in grown(Path(folder), family, options.megabytes, options.times, options.only, options.workers):
                most = small.peaks[small.most], large.peaks[large.most]
                for process, (one, other) in {"": most, " worker": (small.worker, large.worker)}.items():
                    if other >> 20:  # a helper that was only just there is no worker
                        over, ratio = other > ALLOWED * max(one, 1), other / max(one, 1)
                        wrong += over
                        said = f"{name + process:34} {one >> 20:6,} MiB → {other >> 20:6,} MiB  {ratio:5.2f}"
                        print(said, "" if process else f"{small.most}, {large.most}", "GROWS" if over else "", flush=True)
                if options.where:
                    print(f"    {small.where[small.most]}\n    {large.where[large.most]}", flush=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
