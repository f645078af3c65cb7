"""The memory of builds against the size of what they read: each asset in a process of its own, from one size of source and from 16 times as much.

    python -m prep_assets_tests.harness.memory --megabytes 8 --times 16

What counts is the most memory that the system could not take back (anonymous pages), with all checks of the asset. It may grow by a tenth.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prep_assets.assets.graph import family_assets
from prep_assets.assets.workspace import Workspace
from prep_assets.engine import build
from prep_assets_tests.assets.workspaces import domain, jsonl, minimal, workspace_in

ALLOWED = 1.1
LOOK = 0.02
WORDS = [random.Random(n).choice("bdfglmnprst") + random.Random(n + 999).choice("aeiou") * (1 + n % 2) + "nrst"[n % 4] for n in range(300)]


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def _rows(family: str, chance: random.Random) -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        number += 1
        asked, said = f"{number}: {_text(chance, 30)}", _text(chance, 120)
        if family == "pretrain":
            yield {"text": f"{number} {_text(chance, 150)}"}
        elif family == "sft":
            yield {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}
        elif family == "preference":
            yield {"prompt": asked, "chosen": said, "rejected": _text(chance, 120)}
        else:
            yield {"prompt": asked, "gold": number}


SCHEMAS = {"pretrain": "text", "sft": "messages", "preference": "preference", "rl": "rl_prompt"}


def _sized(rows: Iterable[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
    for row in rows:
        if size <= 0:
            return
        yield row
        size -= len(json.dumps(row)) + 1


def workspace_of(folder: Path, family: str, megabytes: float) -> Workspace:
    """One family with one domain of so much text."""
    folder.mkdir(parents=True)
    source = jsonl(folder / "rows.jsonl", _sized(_rows(family, random.Random(0)), int(megabytes * 2**20)))
    options = {"rl": {"arithmetic": {"n": 100}}, "sft": {"template": "chatml"}}.get(family, {})
    return workspace_in(folder, minimal(family, {"a": domain(source, SCHEMAS[family])}, workers=1, **options))


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def measured(folder: Path, asset: str) -> int:
    """Build an asset in this process; the most memory that it had."""
    peak, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(LOOK):
            peak[0] = max(peak[0], _anonymous())

    watch = threading.Thread(target=look)
    watch.start()
    try:
        build(Workspace(folder / "configs", folder / "stores"), asset)
    finally:
        done.set()
        watch.join()
    return max(peak[0], _anonymous())


def grown(folder: Path, family: str, megabytes: float, times: int, only: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name of each asset of a family, and its memory from the small and from the large source."""
    small, large = (workspace_of(folder / f"{family}-{size:g}", family, size) for size in (megabytes, megabytes * times))
    for asset in family_assets(small, family).values():
        if only and asset.name not in only:
            continue
        if "report" not in asset.name:
            one, other = (_in_a_process(each.configs.parent, asset.name) for each in (small, large))
            yield asset.name, one, other


def _in_a_process(folder: Path, asset: str) -> int:
    command = [sys.executable, "-m", __spec__.name, "--measure", asset, "--folder", str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--families", nargs="*", default=list(SCHEMAS))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--measure")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.measure:
        print(measured(options.folder, options.measure))
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families:
            for name, one, other in grown(Path(folder), family, options.megabytes, options.times, options.only):
                over = other > ALLOWED * one
                wrong += over
                print(f"{name:20} {one >> 20:6,} MiB → {other >> 20:6,} MiB  {other / one:5.2f}{'  GROWS' if over else ''}", flush=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
