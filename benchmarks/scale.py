"""What a corpus costs: unit costs measured on this machine, a formula, and a simulation of a cluster that follows it.

    python benchmarks/scale.py measure --tokenizer DIR --out costs.json    # 1×, 4×, 8× and 16× of BASE MB with one and two workers
    python benchmarks/scale.py tell costs.json                             # the formula, its error on the run left out, and the table

CPU seconds are measured, which say the same on a busy machine; every run is a process of its own. The run of 8× with two workers is left out of the fit.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

BASE = 16
TIMES = (1, 4, 8, 16)
LEFT_OUT = (8, 2)
PHASES = ("raw", "encode", "join", "check")
RUN = """
import json, resource, sys
from dataclasses import replace
from pathlib import Path
from prep_assets.graph import graph
from prep_assets.pipeline.workspace import Workspace
from prep_assets.workers.pool import Pool

def used():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [each.ru_utime + each.ru_stime for each in both]

found, before = {}, [0.0, 0.0]
def spent(name, own, theirs):
    global before
    now = used()
    for at, key in enumerate((own, theirs)):
        found[key] = found.get(key, 0.0) + now[at] - before[at]
    before = now

workers, pool = int(sys.argv[2]), Pool()
workspace = replace(Workspace(Path(sys.argv[1]), Path(sys.argv[1]) / "stores"), workers=workers, pool=pool)
for name in ("pretrain_raw", "pretrain_tokens"):
    asset = graph.ASSETS[name]
    build = asset.build(workspace, "docs")
    spent(name, "start", "start")
    made = build.propose()
    pool.close()
    spent(name, "raw" if name.endswith("raw") else "join" if workers > 1 else "encode", "encode")
    build.place.accept(made, {})
    for check in asset.checks:
        graph.run_check(check, workspace, made)
    spent(name, "check", "check")
files = made.manifest.files
print(json.dumps({**found, "tokens": made.manifest.counts["tokens"], "bytes": sum(entry["bytes"] for entry in files.values())}))
"""


def measure(tokenizer: Path, out: Path, base: int) -> None:
    """Measure all sizes and numbers of workers, and write them down as they come."""
    from corpora import pretraining_file

    found: list[dict[str, Any]] = json.loads(out.read_text("utf-8")) if out.exists() else []
    with tempfile.TemporaryDirectory() as work:
        for times in TIMES:
            source = pretraining_file(Path(work) / f"{times}.jsonl", times * base)
            for workers in (1, 2):
                if any((each["times"], each["workers"]) == (times, workers) for each in found):
                    continue
                configs = Path(work) / f"{times}-{workers}"
                configs.mkdir()
                said = f"tokenizer: {tokenizer}\ntokenizer_loader: file\noutput: {{storage_format: bin}}\n"
                (configs / "pretrain.yaml").write_text(f"{said}domains: {{docs: {{files: [{source}], schema: text}}}}\n", "utf-8")
                done = subprocess.run([sys.executable, "-c", RUN, str(configs), str(workers)], check=True, capture_output=True, text=True)
                found.append({"times": times, "workers": workers, "mb": source.stat().st_size / 1e6, **json.loads(done.stdout)})
                out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
                print(found[-1], flush=True)


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds of a phase: `fixed` for each build (of `encode` for each worker as well), and `per_mb` of text; token bytes per MB."""

    fixed: Mapping[str, float]
    per_mb: Mapping[str, float]
    worker: float
    tokens_per_mb: float

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, Any]]) -> Costs:
        """By least squares over runs with several workers; a worker's start from what the smallest of them took beyond one process."""
        several = [run for run in runs if run["workers"] > 1]
        fixed, per_mb = {}, {}
        for phase in PHASES:
            sizes, spent = np.array([run["mb"] for run in several]), np.array([run[phase] for run in several])
            # relative errors count: weights are those of sizes
            (slope, start), *_ = np.linalg.lstsq(
                np.stack([sizes, np.ones_like(sizes)], 1) / sizes[:, None] ** 0.5, spent / sizes**0.5, rcond=None
            )
            fixed[phase], per_mb[phase] = max(0.0, float(start)), float(slope)
        worker = fixed.pop("encode") / max(run["workers"] for run in several)
        fixed["start"] = float(np.mean([run["start"] for run in runs]))
        tokens = float(np.mean([run["tokens"] / run["mb"] for run in runs]))
        return cls(fixed, per_mb, worker, tokens)

    def cpu(self, mb: float, workers: int) -> float:
        """CPU seconds of a build with its checks."""
        return sum(self.fixed.values()) + workers * self.worker + mb * sum(self.per_mb.values())


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is simulated.

    Attributes:
        cores: of all workers.
        shard_mb: text of a shard.
        drivers: builds at a time, each with a core of the head.
        checks: of a store, each done by one worker.
        lost_an_hour: share of workers.
        late, late_times: share of shards that take so many times as long, of which a second copy is begun at four times.
        put: seconds until a bucket has taken a shard.
        puts_a_second: that one prefix, which is a store's, takes.
    """

    cores: int
    shard_mb: float = 64
    drivers: int = 64
    checks: int = 6
    lost_an_hour: float = 0.01
    late: float = 0.01
    late_times: float = 8
    put: float = 0.06
    puts_a_second: float = 3500


@dataclass(slots=True)
class _Domain:
    shards: int
    left: int = 0
    done: int = 0
    joined: float = 0.0
    checks: int = 0


def simulate(costs: Costs, cluster: Cluster, mb: float, domains: int, *, seed: int = 0) -> dict[str, float]:
    """Seconds, core hours and redone shards for a corpus in equal domains. Shards of a domain are joined as they come, one after the other."""
    chance, size = random.Random(seed), mb / domains
    count = max(1, round(size / cluster.shard_mb))
    each = size / count
    spans = {
        "raw": size * costs.per_mb["raw"],
        "encode": each * costs.per_mb["encode"],
        "check": size * costs.per_mb["check"] / cluster.checks,
    }
    waiting, ready = deque(_Domain(count, count) for _ in range(domains)), deque[tuple[str, _Domain]]()
    events: list[tuple[float, int, str, _Domain, float]] = []
    now, free, open_, number, redone, busy = 0.0, cluster.cores, 0, 0, 0, 0.0

    def span_of(kind: str) -> float:
        if kind != "encode":
            return spans[kind]
        late = min(cluster.late_times, 4 + 1) if chance.random() < cluster.late else 1.0
        return spans[kind] * late + max(cluster.put, 1 / cluster.puts_a_second)

    while waiting or ready or events:
        while waiting and open_ < cluster.drivers:
            ready.append(("raw", waiting.popleft()))
            open_ += 1
        while free and ready:
            kind, domain = ready.popleft()
            if kind == "encode" and domain.left:  # one after the other, so that domains share the cores
                domain.left -= 1
                if domain.left:
                    ready.append((kind, domain))
            span, number, free = span_of(kind), number + 1, free - 1
            if chance.random() < cluster.lost_an_hour * span / 3600:
                heapq.heappush(events, (now + span * chance.random(), number, f"lost {kind}", domain, span))
            else:
                heapq.heappush(events, (now + span, number, kind, domain, span))
        now, _, kind, domain, span = heapq.heappop(events)
        if kind != "joined":
            free, busy = free + 1, busy + span
        if kind.startswith("lost"):
            redone += 1
            kind = kind.removeprefix("lost ")
            if kind == "encode":
                domain.left += 1
            if kind != "encode" or domain.left == 1:
                ready.append((kind, domain))
        elif kind == "raw":
            ready.append(("encode", domain))
        elif kind == "encode":
            domain.done += 1
            domain.joined = max(domain.joined, now) + each * costs.per_mb["join"]
            if domain.done == domain.shards:
                number += 1
                heapq.heappush(events, (domain.joined, number, "joined", domain, 0.0))
        elif kind == "joined":
            domain.checks = cluster.checks
            ready.extend([("check", domain)] * cluster.checks)
        elif kind == "check":
            domain.checks -= 1
            open_ -= domain.checks == 0
    return {"seconds": now, "core_hours": (busy + mb * costs.per_mb["join"]) / 3600, "redone": redone, "busy": busy / now / cluster.cores}


def tell(runs: Sequence[Mapping[str, Any]], domains: int) -> Iterator[str]:
    """The formula, its error, and the table of docs/scale.md."""
    left_out = [run for run in runs if (run["times"], run["workers"]) == LEFT_OUT]
    costs = Costs.of([run for run in runs if run not in left_out])
    yield "CPU seconds per GB of text: " + ", ".join(f"{phase} {1000 * cost:.1f}" for phase, cost in costs.per_mb.items())
    yield f"for each build {sum(costs.fixed.values()):.1f} s, for each worker {costs.worker:.1f} s; {costs.tokens_per_mb:,.0f} tokens per MB"
    for run in left_out:
        total = sum(run[phase] for phase in (*PHASES, "start"))
        said = costs.cpu(run["mb"], run["workers"])
        yield f"left out: {run['mb']:.0f} MB, {run['workers']} workers: {total:.1f} CPU s measured, {said:.1f} by the formula ({said / total - 1:+.1%})"
    yield "\n| tokens | cores | domains | hours | core hours | cores busy | begun again |\n|---|---|---|---|---|---|---|"
    for tokens in (1e12, 15e12):
        for cores in (16, 256, 4096):
            for many in (domains, 16 * domains):
                mb = tokens / costs.tokens_per_mb
                # so many shards that their number costs nothing and their loss little
                cluster = replace(Cluster(cores), shard_mb=max(64, mb / 300_000), drivers=max(64, cores // 16))
                found = simulate(costs, cluster, mb, many)
                yield (
                    f"| {tokens / 1e12:.0f} T | {cores:,} | {many:,} | {found['seconds'] / 3600:,.1f} | {found['core_hours']:,.0f} | {found['busy']:.0%} | "
                    f"{found['redone']:,.0f} |"
                )


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--tokenizer", type=Path, required=True)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--base", type=int, default=BASE, help="MB of 1×")
    telling = commands.add_parser("tell")
    telling.add_argument("costs", type=Path)
    telling.add_argument("--domains", type=int, default=64)
    asked = parser.parse_args()
    if asked.command == "measure":
        measure(asked.tokenizer.resolve(), asked.out, asked.base)
    else:
        print("\n".join(tell(json.loads(asked.costs.read_text("utf-8")), asked.domains)))


if __name__ == "__main__":
    main()
