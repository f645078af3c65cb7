"""Workers: how much sooner several processes write a store than one, and how much memory each needs as the input grows.

Every run is a process of its own, and the runs of one size take turns. CPU seconds are told beside the clock's, because they say the same on a
busy machine. Memory is that of the largest process of a run.

With --ray, what a Ray cluster on this machine takes beside as many workers without it:

    python benchmarks/workers.py rows.jsonl --tokenizer DIR --family pretrain --size 1074 --shards 64 --workers 2 --ray
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from cluster import Head, ray_head

RUN = """
import sys
from dataclasses import replace
from pathlib import Path
from prep_assets.pipeline.workspace import Workspace
from prep_assets.engine import build
build(replace(Workspace(Path(sys.argv[1]), Path(sys.argv[2])), workers=int(sys.argv[4])), sys.argv[3], force=True)
"""
WRITE = """
import json, sys
from dataclasses import replace
from pathlib import Path
from prep_assets.graph import graph
from prep_assets.pipeline.workspace import Workspace
from prep_assets.workers.pool import Pool
with Pool() as pool:
    workspace = replace(Workspace(Path(sys.argv[1]), Path(sys.argv[2])), workers=int(sys.argv[4]), pool=pool)
    workspace = workspace.overriding(sys.argv[3].partition("_")[0], {"cluster": json.loads(sys.argv[5])})
    made = graph.EVERY[sys.argv[3]].build(workspace, "rows").propose(again=True)
    print(made.manifest.content_hash)
"""

REST = 10
"""Seconds of watching a cluster that does nothing."""


def rows(path: Path, size: int) -> Iterator[str]:
    """The rows of a file over and over, each time with another number in its first text, until there are so many bytes."""
    read = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    done = 0
    for time_around in count():
        for row in read:
            line = json.dumps(_numbered(row, time_around)) + "\n"
            yield line
            if (done := done + len(line)) >= size:
                return


def _numbered(row: dict[str, Any], number: int) -> dict[str, Any]:
    if "messages" in row:
        first, *others = row["messages"]
        return {"messages": [{**first, "content": f"{number}: {first['content']}"}, *others]}
    key = "text" if "text" in row else next(key for key, value in row.items() if isinstance(value, str))
    return {**row, key: f"{number}: {row[key]}"}


def measure(script: str, *arguments: str) -> tuple[float, float, float, str]:
    """Seconds, CPU seconds and peak MB of the largest process, and what was printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [
        sys.executable,
        "-c",
        f"{script}\nimport resource\nprint(*(resource.getrusage(who).ru_maxrss for who in (0, -1)))",
        *arguments,
    ]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, cpu, max(map(int, said[-2:])) / 1024, said[0] if len(said) > 2 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines: chats with messages, or documents with text")
    parser.add_argument("--tokenizer", required=True, type=Path)
    parser.add_argument("--family", choices=("sft", "pretrain"), default="sft")
    parser.add_argument("--schema", default=None, help="messages, or text")
    parser.add_argument("--template", default="chatml")
    parser.add_argument("--size", type=float, default=16, help="MB of rows; of 1, 4 and 16 times as many with --memory")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="how memory grows, instead of how time shrinks")
    parser.add_argument("--shards", type=int, help="about how many; left out: one for each 4 MB")
    parser.add_argument("--ray", action="store_true", help="beside the largest number of workers a Ray cluster of as many processors")
    chosen = parser.parse_args()
    started = ray_head(max(chosen.workers)) if chosen.ray else nullcontext()
    with tempfile.TemporaryDirectory() as folder, started as head:
        if head:  # on a busy machine a run takes longer, and they are there as long as it takes
            before = head.used()
            time.sleep(REST)
            print(f"Ray's services at rest: {(head.used() - before).total() / REST:.3f} CPU s a second", flush=True)
        for scale in (1, 4, 16) if chosen.memory else (1,):
            compare(Path(folder), chosen, round(chosen.size * 1e6 * scale), head)


def compare(folder: Path, chosen: argparse.Namespace, size: int, head: Head | None) -> None:
    """One size: prints a line for each number of workers."""
    with (folder / "rows.jsonl").open("w") as out:
        out.writelines(rows(chosen.file.absolute(), size))
    configs, stores = folder / "configs", folder / "stores"
    configs.mkdir(exist_ok=True)
    shutil.rmtree(stores, ignore_errors=True)
    schema = chosen.schema or ("messages" if chosen.family == "sft" else "text")
    family: dict[str, Any] = {"tokenizer": str(chosen.tokenizer.absolute()), "tokenizer_loader": "file"}
    family |= {"template": chosen.template} if chosen.family == "sft" else {}
    family |= {"domains": {"rows": {"files": [str(folder / "rows.jsonl")], "schema": schema}}}
    (configs / f"{chosen.family}.yaml").write_text(yaml.safe_dump(family), "utf-8")
    asset = f"{chosen.family}_tokens"
    measure(RUN, str(configs), str(stores), f"{chosen.family}_raw", "1")
    about = {"shards": chosen.shards or "auto"}
    ways = {f"{number:3} workers": (number, about) for number in chosen.workers}
    if head:
        ways[f"{max(chosen.workers):3} on Ray "] = max(chosen.workers), {**about, "kind": "ray", "address": head.address}
    found: dict[str, list[tuple[float, float, float, str]]] = {way: [] for way in ways}
    for _ in range(1 if chosen.memory else chosen.repeats):
        for way, (number, cluster) in ways.items():
            before = head.used() if head else Counter[str]()
            took, cpu, peak, content = measure(WRITE, str(configs), str(stores), asset, str(number), json.dumps(cluster))
            theirs = head.used() - before if head and "Ray" in way else Counter[str]()
            found[way].append((took, cpu + theirs.total(), peak, content))
            print(f"{way}: {took:.1f} s, {cpu:.1f} CPU s" + "".join(f", {name} {spent:.1f}" for name, spent in theirs.items()), flush=True)
    assert len({run[3] for runs in found.values() for run in runs}) == 1, "stores differ"
    first = [statistics.median([run[:3][i] for run in found[next(iter(ways))]]) for i in range(3)]
    for way, runs in found.items():
        took, cpu, peak = (statistics.median([run[:3][i] for run in runs]) for i in range(3))
        print(
            f"{size / 1e6:7.1f} MB  {way}  {took:7.1f} s  {first[0] / took:5.2f} times as fast  {cpu:7.1f} CPU s"
            f"  ({cpu / first[1]:4.2f} times)  {peak:6.0f} MB in the largest process",
            flush=True,
        )


if __name__ == "__main__":
    main()
