"""Whether two states of the code say the same: builds configurations, and compares what every command that explains a store prints about it.

    python tools/same_words.py cases FOLDER               write the configurations of `tools/planted`: every family and schema, without `large`
    python tools/same_words.py record OUT.json FOLDER …   build every configuration below the folders, and run the commands
    python tools/same_words.py compare A.json B.json      what differs; exit code 1 where anything does

The commands run with ``--json`` on the first rows of every stream, on the first records of every domain, and on a draft of shorter sequences. Errors count
as answers. Run `record` once with each state, as `tools/same_bytes.py` says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from same_bytes import cases_below, family_of

ROWS = (0, 1, 6)
SHORTER = {"sft": "packing.row_len=64", "preference": "preprocessing.max_seq_len=48", "rl": "preprocessing.max_seq_len=24"}
"""Family → the option of its draft."""
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?"), "TIME"),
    (re.compile(r"/tmp/prep-assets-\w+"), "TEMPORARY"),
    (re.compile(r'"(seconds|took|age)": [0-9.]+'), r'"\1": SECONDS'),
)
"""What differs from run to run."""


def record(case: Path) -> tuple[str, dict[str, list[Any]]]:
    """What the commands say of the stores of a configuration: command line → exit code and text."""
    stores = Path(tempfile.mkdtemp(prefix="same-", dir=os.environ.get("SAME_BYTES_DIR")))
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "PREP_ASSETS_CONFIG_DIR": str(case),
        "PREP_ASSETS_STORE_DIR": str(stores),
    }
    try:
        said = {" ".join(command).replace(str(stores), "STORES"): run(command, stores, case) for command in commands(case, stores)}
    finally:
        shutil.rmtree(stores, ignore_errors=True)
    return str(case), said


def run(command: list[str], stores: Path, case: Path) -> list[Any]:
    """Exit code and output of a command, without what differs from run to run."""
    from typer.testing import CliRunner

    from prep_assets.cli.main import app

    page = stores.with_name(f"{stores.name}.html")
    result = CliRunner().invoke(app, [*command, *(["--out", str(page)] if command[0] == "report" else [])])
    text = result.output + (f"\n{result.exception!r}" if result.exception and not isinstance(result.exception, SystemExit) else "")
    if page.is_file():
        text = page.read_text("utf-8")
        page.unlink()
    text = text.replace(str(page), "PAGE").replace(str(stores), "STORES").replace(str(case), "CONFIGS")
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return [result.exit_code, text]


def commands(case: Path, stores: Path) -> Iterator[list[str]]:
    """Every command line, in order; the stores are built first, and the drafts when the current ones are looked at."""
    import prep_assets as pa
    from prep_assets.errors import PrepAssetsError

    labels = list[str]()
    try:
        labels = list(pa.status(pa.Workspace(case, stores)))
        pa.build(pa.Workspace(case, stores), *dict.fromkeys(label.partition("[")[0] for label in labels), publish=True)
    except PrepAssetsError as error:
        print(f"{case}: {str(error).splitlines()[0]}", file=sys.stderr)
    yield from (["status", "--json"], ["verify", "--json"], ["selftest", "--json"], ["compare", str(stores), "--json"])
    places = [
        (*label.removesuffix("]").partition("[")[::2],)
        for label in labels
        if (stores / label.replace("[", "/").removesuffix("]") / "current").exists()
    ]
    for asset, partition in places:
        chosen = [asset, *(["--partition", partition] if partition else []), "--json"]
        yield from ([name, *chosen] for name in ("stats", "quarantine", "leaks"))
        yield ["report", *chosen[:-1], "--rows", "40"]
        for stream in streams_in((stores / asset / partition / "current").resolve()):
            named = [*chosen, *(["--stream", stream] if stream else [])]
            for row in ROWS:
                yield from (
                    ["inspect", *named, "--row", str(row)],
                    ["trace", *named, "--row", str(row)],
                    ["trace", *named, "--row", str(row), "--token", "9"],
                )
    yield from (
        ["impact", "--set", f"{family}.{option}", "--json"] for family, option in SHORTER.items() if (case / f"{family}.yaml").is_file()
    )
    for domain in dict.fromkeys(partition for _, partition in places if partition):
        yield from (["where", f"{domain}/{number}", "--json"] for number in (1, 2, 5))
    for asset, partition in places:
        if (option := SHORTER.get(family_of(asset))) and not asset.endswith(("_raw", "_template", "_quality", "_leaks")):
            key = [asset, *(["--partition", partition] if partition else [])]
            yield from (
                ["build", *key, "--set", option],
                ["diff", *key, "draft", "--json"],
                ["trace", *key, "--draft", "--row", "0", "--json"],
            )


def streams_in(folder: Path) -> list[str]:
    """The streams of a payload by the names of its files, and none for the default."""
    stems = {path.relative_to(folder).with_suffix("").as_posix() for kind in ("index", "documents") for path in folder.rglob(f"*.{kind}")}
    return ["", *sorted(stems), *(["train", "test"] if "rewards" in stems else [])]


def compare(before: Path, after: Path) -> int:
    """Print what differs; the number of command lines that do."""
    old, new = (json.loads(path.read_text("utf-8")) for path in (before, after))
    differing = 0
    for case in old:
        for command in sorted({*old[case], *new.get(case, {})}):
            was, now = (said.get(case, {}).get(command, [None, ""]) for said in (old, new))
            if was != now:
                lines = zip(was[1].splitlines(), now[1].splitlines(), strict=False)
                first = next(((one, other) for one, other in lines if one != other), ("(more lines)", "(or fewer)"))
                print(f"{case}: {command}: exit {was[0]} → {now[0]}", *(f"    {line[:300]}" for line in first), sep="\n")
                differing += 1
    print(f"{len(old):,} configurations, {sum(map(len, old.values())):,} command lines, {differing:,} differ")
    return differing


def main(arguments: list[str]) -> int:
    command, *more = arguments
    if command == "compare":
        return min(1, compare(Path(more[0]), Path(more[1])))
    if command == "cases":
        from planted.workspaces import workspaces

        workspaces(Path(more[0]))
        shutil.rmtree(Path(more[0], "large"))
        return 0
    with get_context("spawn").Pool(int(os.environ.get("SAME_BYTES_WORKERS", "2")), maxtasksperchild=1) as pool:
        found = {}
        for case, said in pool.imap_unordered(record, [path.resolve() for path in cases_below(more[1:])]):
            found[case] = said
            print(f"{len(found):,} {case}: {len(said):,} command lines", file=sys.stderr)
    Path(more[0]).write_text(json.dumps(dict(sorted(found.items())), indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
