"""``PYTHONPATH=tools python -m grid``: every chat data set × every tokenizer × every template, through the build's own code, and proven.

A unit is one template on one tokenizer. Finished units are kept in the output folder, in a file that is named by the code and the numbers of rows, so
that a run that was ended goes on where it stopped. After the last unit the tables of graph/real_data.md are written, and ``refusals.md`` in the output
folder: of each reason twenty whole rows, to be read. Needs PREP_ASSETS_TEST_DATA.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from grid.cells import TOKENIZERS, cells, chats, published, records
from grid.judged import JUDGED

from prep_assets_tests.masks.bound import CONTROL

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "prep_assets_tests" / "graph" / "real_data.md"
SHOWN = 20
LONGEST = 6_000

Unit = tuple[str, bool, str]
"""Template, whether it is a shipped one, tokenizer."""
Found = dict[str, Any]


def units(real_data: Path) -> list[Unit]:
    """The shipped templates, which have the most rows, come first."""
    templates = [*((name, True) for name in CONTROL), *((name, False) for name in published(real_data))]
    return [(name, shipped, tokenizer) for name, shipped in templates for tokenizer in TOKENIZERS]


def code() -> str:
    """sha256 of everything that decides what a unit finds."""
    folders = (ROOT / "prep_assets", ROOT / "prep_assets_tests" / "grid", ROOT / "prep_assets_tests" / "masks")
    paths = sorted(path for folder in folders for suffix in ("*.py", "*.jinja") for path in folder.rglob(suffix) if path.stem != "judged")
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def unit(real_data: Path, which: Unit, most: int) -> Found:
    """What one unit finds."""
    name, shipped, tokenizer = which
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            data: asdict(cell) for data, cell in cells(real_data, name, tokenizer, chats(real_data, most), Path(folder), shipped=shipped)
        }
    return {"unit": list(which), "seconds": round(time.process_time() - begin, 1), "cells": found}


def run(real_data: Path, file: Path, rows: int, fewer: int, processes: int, seconds: float) -> list[Found]:
    """Carry out the units that are not in the file yet, for so many seconds; all that are in it then. What is under way at the end is left out."""
    done = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    known = {tuple(found["unit"]) for found in done}
    tasks = [(real_data, which, rows if which[1] else fewer) for which in units(real_data) if which not in known]
    end = time.monotonic() + seconds
    with Pool(processes) as pool, file.open("a", encoding="utf-8") as out:
        for found in pool.imap_unordered(_unit, tasks):
            done.append(found)
            out.write(json.dumps(found, ensure_ascii=False) + "\n")
            out.flush()
            print(_line(found), flush=True)
            if time.monotonic() > end:
                break
    return done


def _unit(task: tuple[Path, Unit, int]) -> Found:
    return unit(*task)


def _line(found: Found) -> str:
    read, kept, tagged = _sums([found])
    faults = [f"\n  {data}: {fault}" for data, cell in found["cells"].items() for fault in cell["faults"]]
    return f"{found['seconds']:6.1f} s {' '.join(map(str, found['unit']))}: {read} read, {kept} kept, {tagged} by tags too{''.join(faults)}"


# -- the report -------------------------------------------------------------------------------------------------------------------------


def by_template(done: Sequence[Found]) -> str:
    """What all units found, and a line for templates of equal figures, over their tokenizers and data sets."""
    lines = defaultdict[str, list[str]](list)
    for name, shipped in dict.fromkeys((found["unit"][0], found["unit"][1]) for found in sorted(done, key=lambda found: found["unit"][:2])):
        mine = [found for found in done if found["unit"][:2] == [name, shipped]]
        refused = ", ".join(f"`{reason}` {count:,}" for reason, count in sorted(_reasons(mine).items()))
        read, kept, tagged = _sums(mine)
        lines[f"{read:,} | {kept:,} | {tagged:,} | {refused}"].append(f"{name}{' (shipped)' * shipped}")
    read, kept, tagged = _sums(done)
    faults = sum(len(cell["faults"]) for found in done for cell in found["cells"].values())
    said = f"{len(done)} units: {read:,} rows read, {kept:,} kept, {tagged:,} of them by tags too, {faults} faults.\n\n"
    rows = "".join(f"| {', '.join(names)} | {figures} |\n" for figures, names in lines.items())
    return f"{said}| templates | read of each | kept | of them by tags too | refused |\n|---|---|---|---|---|\n{rows}"


def _sums(done: Sequence[Found]) -> tuple[int, int, int]:
    cells_of = [cell for found in done for cell in found["cells"].values()]
    read, kept, tagged = (sum(cell[key] for cell in cells_of) for key in ("read", "kept", "tagged"))
    return read, kept, tagged


def _reasons(done: Sequence[Found]) -> Counter[str]:
    return Counter(reason for found in done for cell in found["cells"].values() for _, reason, _ in cell["refused"])


Refusal = tuple[Unit, str, int, str]
"""Unit, data set, row, detail."""


def by_reason(done: Sequence[Found]) -> dict[str, list[Refusal]]:
    """Every refusal, in an order that does not depend on how the units ran."""
    found: dict[str, list[Refusal]] = defaultdict(list)
    for each in sorted(done, key=lambda each: each["unit"]):
        for data, cell in each["cells"].items():
            for row, reason, detail in cell["refused"]:
                found[reason].append((tuple(each["unit"]), data, row, detail))
    return dict(sorted(found.items()))


def sampled(refusals: Sequence[Refusal], seed: int) -> list[Refusal]:
    """Up to `SHOWN` different rows: one of each template and data set first, so that a frequent cell hides no other."""
    order = random.Random(seed).sample(refusals, len(refusals))
    rows = {(data, row): (which, data, row, detail) for which, data, row, detail in reversed(order)}
    first = {(which[:2], data): (which, data, row, detail) for which, data, row, detail in reversed(list(rows.values()))}
    return list(dict.fromkeys([*first.values(), *rows.values()]))[:SHOWN]


def pages(real_data: Path, reasons: dict[str, list[Refusal]], seed: int) -> Iterator[str]:
    """The sampled rows, whole."""

    @cache
    def rows(name: str) -> dict[int, Any]:
        return {record.row: record.payload for record in records(real_data, name)[1]}

    for reason, refusals in reasons.items():
        yield f"\n# {reason}: {len(refusals):,}\n"
        for which, data, row, detail in sampled(refusals, seed):
            whole = json.dumps(rows(data)[row], ensure_ascii=False, indent=1)
            cut = f"{whole[:LONGEST]}\n… {len(whole) - LONGEST:,} characters more" if len(whole) > LONGEST else whole
            yield f"\n## {data}:{row}, template {which[0]}, {which[2]}\n\n{detail}\n\n```json\n{cut}\n```\n"


def tell(real_data: Path, done: Sequence[Found], folder: Path, seed: int) -> None:
    """Write the tables of the page, and the rows to be read."""
    reasons = by_reason(done)
    (folder / "refusals.md").write_text("".join(pages(real_data, reasons, seed)), "utf-8")
    judged = [f"| `{reason}` | {len(refusals):,} | {JUDGED.get(reason, 'not read')} |\n" for reason, refusals in reasons.items()]
    said, _, table = by_template(done).partition("\n\n")
    (folder / "templates.md").write_text(table, "utf-8")
    tables = {"grid": f"{said}\n", "refusals": "| reason | rows | why |\n|---|---|---|\n" + "".join(judged)}
    page = PAGE.read_text("utf-8")
    for name, table in tables.items():
        page = re.sub(
            rf"(<!-- measured: {name} -->\n).*?(<!-- end of measured -->)",
            lambda match, table=table: f"{match[1]}{table}{match[2]}",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
    PAGE.write_text(page, "utf-8")


def main() -> int:
    """0: every unit ran, without a fault; 1: faults; 2: units are left for another run."""
    read = argparse.ArgumentParser(prog="python -m grid", description=__doc__.splitlines()[0] if __doc__ else None)
    read.add_argument("--rows", type=int, default=200, help="rows of each data set with shipped templates")
    read.add_argument("--fewer", type=int, default=24, help="rows of each data set with TRL's templates")
    read.add_argument("--processes", type=int, default=2)
    read.add_argument("--seconds", type=float, default=float("inf"), help="end after so many seconds; what is under way is lost")
    read.add_argument("--seed", type=int, default=0, help="which refused rows are shown")
    read.add_argument(
        "--out", type=Path, default=Path(tempfile.gettempdir()) / "prep-assets-grid", help="folder of finished units and of refusals.md"
    )
    chosen = read.parse_args()
    real_data = Path(os.environ["PREP_ASSETS_TEST_DATA"])
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / f"{code()}-{chosen.rows}-{chosen.fewer}.jsonl"
    done = run(real_data, file, chosen.rows, chosen.fewer, chosen.processes, chosen.seconds)
    missing = len(units(real_data)) - len(done)
    faults = sum(len(cell["faults"]) for found in done for cell in found["cells"].values())
    print(f"{len(done)} units done, {missing} left, {faults} faults; {file}")
    if missing:
        return 2
    tell(real_data, done, chosen.out, chosen.seed)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
