"""The frame of all benchmarks: cases that are run in turns, each in a process of its own, and tables of ratios.

A case is a name and a command that prints one line of JSON last: ``{"seconds": …, "mb": …, …}``. The cases of one table are run one after the
other, and all of them again, as often as asked; each is compared with one of them in the same round, so that a busy machine is slow for both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASE = "prep-assets"
"""The case that others are compared with where a table says no other."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured.

    Attributes:
        name: in the table.
        command: what is run; its last line of output is JSON with `seconds`, and whatever else it says.
        env: variables beside those that there are.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run said, with seconds by the clock and of processors; `peak_mb` is the memory of its largest process."""

    said: Mapping[str, Any]
    peak_mb: float
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cases of one work; the one named `base` is what the others are compared with."""

    title: str
    cases: Sequence[Case]
    rounds: int = 3
    base: str = BASE


def run_case(case: Case) -> Run:
    """Run a case in a process of its own; one that fails says why."""
    before = time.monotonic()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **case.env}  # the environment of the peers has none of ours
    process = subprocess.Popen(case.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True)
    assert process.stdout is not None and process.stderr is not None
    out, error = process.stdout.read(), ""
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        return Run({}, 0, (error.strip().splitlines() or [f"exit {status}"])[-1][:160])
    said = json.loads(out.strip().splitlines()[-1])
    said = {"seconds": time.monotonic() - before, "processor": usage.ru_utime + usage.ru_stime, **said}
    return Run(said, float(said.get("peak_mb", usage.ru_maxrss / 1024)))


def measure(table: Table, results: Path) -> dict[str, list[Run]]:
    """Run all cases in turns. Each round is written to `results` as it ends, so that what was measured is not lost."""
    runs: dict[str, list[Run]] = {case.name: [] for case in table.cases}
    for number in range(table.rounds):
        for case in table.cases:
            if number and runs[case.name][0].failed:
                continue
            run = run_case(case)
            runs[case.name].append(run)
            print(f"{table.title}, round {number + 1}: {case.name}: {run.failed or _short(run)}", file=sys.stderr, flush=True)
        with results.open("a", encoding="utf-8") as file:
            for name, each in runs.items():
                if len(each) > number:
                    file.write(json.dumps({"table": table.title, "case": name, "round": number, **each[number].said}) + "\n")
    return runs


def _short(run: Run) -> str:
    return f"{run.said['seconds']:.2f} s, {run.said['processor']:.2f} processor seconds, {run.peak_mb:,.0f} MB"


Ratios = dict[str, float]
"""Case → its time as a multiple of that of the base, the median of the rounds."""


def ratios_of(table: Table, runs: Mapping[str, Sequence[Run]]) -> Ratios:
    """Of each case that was run, by the clock."""
    return {case.name: statistics.median(values) for case in table.cases if (values := _ratios(table, runs, case, "seconds"))}


def rows_of(table: Table, runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """A Markdown table: how many times as long as the base each takes, median with minimum and maximum of the rounds; peak memory of a process."""
    lines = [f"| | times {table.base} | memory |", "|---|---|---|"]
    for case in table.cases:
        each = runs[case.name]
        if not each or each[0].failed:
            lines.append(f"| {case.name} | was not run: {each[0].failed if each else 'no round'} | |")
            continue
        spread = _spread(_ratios(table, runs, case, "seconds"))
        lines.append(f"| {case.name} | {spread} | {max(run.peak_mb for run in each):,.0f} MB |")
    return lines


def _ratios(table: Table, runs: Mapping[str, Sequence[Run]], case: Case, figure: str) -> list[float]:
    pairs = zip(runs[case.name], runs[table.base], strict=False)
    return [run.said[figure] / base.said[figure] for run, base in pairs if run.said and base.said.get(figure)]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})" if values else ""
