"""What a night over unchanged domains costs, beside runs of Dagster that do nothing: processes that carry out one run each, in turns.

    python benchmarks/nights.py --domains 50 --rounds 3

The history of the runs is Dagster's own, SQLite in a folder of the benchmark. An empty run is one asset without a body; an empty run of the same
shape is as many assets as the family has, with as many partitions, whose bodies do nothing, so that Dagster records a materialization of each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from frame import Case, Table, measure, rows_of

ROOT = Path(__file__).resolve().parents[1]
ROWS = 20
EMPTY = """
import dagster as dg

domains = dg.StaticPartitionsDefinition([f"d{{number:04}}" for number in range({domains})])
one_run = dg.BackfillPolicy.single_run()

@dg.asset
def nothing() -> None: ...

@dg.asset(partitions_def=domains, backfill_policy=one_run)
def raw() -> None: ...

@dg.asset(partitions_def=domains, backfill_policy=one_run, deps=[raw])
def tokens() -> None: ...

@dg.asset(deps=[tokens])
def packed() -> None: ...

jobs = [
    dg.define_asset_job("empty", selection=[nothing], executor_def=dg.in_process_executor),
    dg.define_asset_job("same_shape", selection=[raw, tokens, packed], executor_def=dg.in_process_executor),
]
defs = dg.Definitions(assets=[nothing, raw, tokens, packed], jobs=jobs)
"""


def prepare(folder: Path, domains: int) -> None:
    """Sources and configuration of a family of so many domains, and a module with runs that do nothing."""
    for name in ("configs", "data", "home"):
        (folder / name).mkdir()
    listed = {}
    for number in range(domains):
        path = folder / "data" / f"d{number:04}.jsonl"
        rows = ([["user", f"Domain {number}: what is {n}?"], ["assistant", f"It is {n + 1}."]] for n in range(ROWS))
        lines = (json.dumps({"messages": [{"role": role, "content": text} for role, text in row]}) for row in rows)
        path.write_text("\n".join(lines) + "\n", "utf-8")
        listed[path.stem] = {"files": [str(path)], "schema": "messages"}
    family = {"tokenizer": str(ROOT / "configs" / "tokenizer"), "template": "tokenizer", "packing": {"row_len": 256}, "domains": listed}
    (folder / "configs" / "sft.yaml").write_text(yaml.safe_dump(family, sort_keys=False), "utf-8")
    (folder / "empty.py").write_text(EMPTY.format(domains=domains), "utf-8")
    (folder / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")


def carry_out(job: str, domains: int) -> None:
    """One run in a process of its own; prints what it took."""
    where = ["-m", "prep_assets.definitions"] if job == "rebuild_sft" else ["-f", "empty.py"]
    ends = {"dagster/asset_partition_range_start": "d0000", "dagster/asset_partition_range_end": f"d{domains - 1:04}"}
    tags = {} if job == "empty" else {**ends, "dagster/schedule_name": "nightly_sft"}
    began = time.monotonic()
    command = [str(Path(sys.executable).parent / "dagster"), "job", "execute", *where, "-j", job, "--tags", json.dumps(tags)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"seconds": time.monotonic() - began, "processor": used.ru_utime + used.ru_stime, "events": done.stderr.count("\n")}))


def main() -> None:
    """Build once, record once, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        carry_out(asked.run, asked.domains)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder, asked.domains)
        os.chdir(folder)
        os.environ.update(
            DAGSTER_HOME=str(folder / "home"),
            PREP_ASSETS_CONFIG_DIR=str(folder / "configs"),
            PREP_ASSETS_STORE_DIR=str(folder / "stores"),
            PYTHONPATH=str(ROOT),
            PYTHONDONTWRITEBYTECODE="",  # else this package is compiled in each process, and Dagster, which pip has compiled, is not
            PYTHONPYCACHEPREFIX=str(folder / "bytecode"),
        )
        command = [sys.executable, str(Path(__file__).resolve()), "--domains", str(asked.domains), "--run"]
        subprocess.run([*command, "rebuild_sft"], check=True, stdout=subprocess.DEVNULL)
        names = {
            "an empty run": "empty",
            f"an empty run of {asked.domains} domains": "same_shape",
            f"a night over {asked.domains} unchanged domains": "rebuild_sft",
        }
        table = Table("nights", [Case(name, [*command, job]) for name, job in names.items()], asked.rounds, next(iter(names)))
        print("\n".join(rows_of(table, measure(table, folder / "results.jsonl"))))


if __name__ == "__main__":
    main()
