"""``make bench``: our builds and those of others on the same text, in turns, and the tables of ``results.md``.

    python benchmarks/run.py [--only documents] [--sizes 1 4] [--tokenizers DIR…] [--text FILE.jsonl] [--chats FILE.jsonl] [--peers PYTHON]
        [--megatron CHECKOUT] [--write]

``PYTHON`` is the interpreter of an environment with datatrove and TRL; without them, their lines say so. What was measured is kept in `results.jsonl` of the
work folder as each round ends, and corpora are made once, so that a run that was broken off loses only its last round. ``--write`` puts the tables on the page
and the ratios into `history.jsonl`; what has become slower than in its last entry is said.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from corpora import LIKE, chats_file, like, pairs_file, pretraining_file, tools_file
from frame import BASE, Case, Ratios, Table, measure, ratios_of, rows_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE, HISTORY = HERE / "results.md", HERE / "history.jsonl"
OURS, PEERS = str(HERE / "ours.py"), str(HERE / "peers.py")
SHIPPED = ROOT / "configs" / "tokenizer"


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure, and where files go."""

    folder: Path
    sizes: tuple[int, ...]
    tokenizers: tuple[Path, ...]
    text: Path | None
    chats: Path | None
    peers: str
    megatron: str
    rounds: int


@dataclass(frozen=True, slots=True)
class Family:
    """One table a size.

    Attributes:
        what: its title.
        unit: rows, or MB of text, of size 1.
        file: makes the corpus.
        peers: title → way of `peers.py`.
        template: shipped chat template.
        tokenizer: `None`: the first of the options.
        workers: whether two workers are measured.
    """

    what: str
    unit: int
    file: Callable[[Path, int, Path | None], Path]
    peers: Mapping[str, str]
    template: str = ""
    tokenizer: Path | None = None
    workers: bool = False


FAMILIES = {
    "chats": Family(
        "Chats",
        12_000,
        chats_file,
        {"train-llm-from-scratch's way": "tlfs", "`datasets.map` as LLaMA-Factory uses it": "datasets", "TRL, `bfd`": "trl"},
        "plain",
        workers=True,
    ),
    "documents": Family(
        "Documents",
        20,
        pretraining_file,
        {"`tokenizers` in batches of 1,000": "plain", "datatrove": "datatrove", "Megatron-LM, `--use-gigatoken`, 2 workers": "megatron"},
        workers=True,
    ),
    # the shipped tokenizer has the control tokens of these templates
    "pairs": Family("Preference pairs", 3_000, pairs_file, {"TRL": "trl_pairs"}, "chatml", SHIPPED),
    "tools": Family("Chats with tools", 3_000, tools_file, {"TRL": "trl"}, "qwen3", SHIPPED),
}


def family_tables(name: str, options: Options) -> Iterator[Table]:
    """The limits of the machine, ours, and the peers, most of which do the first size only."""
    family = FAMILIES[name]
    tokenizer = family.tokenizer or options.tokenizers[0]
    for size in options.sizes:
        ending, given = (".jsonl.zst", options.text) if name == "documents" else (".jsonl", options.chats)
        source = str(family.file(options.folder / f"{name}-{size}{ending}", family.unit * size, given))
        ours = {
            "the tokenizer alone, text in memory": "tokenizer",
            "the disk alone": "disk",
            BASE: "build",
            **({f"{BASE}, 2 workers": "build"} if family.workers else {}),
            "its checks": "checks",
            "the command from a cold start, checks included": "cold",
            "the command, nothing to do": "again",
        }
        cases = [
            Case(title, [sys.executable, OURS, way, name, source, str(tokenizer), family.template, "2" if "2 workers" in title else "1"])
            for title, way in ours.items()
        ]
        template = str(ROOT / "prep_assets" / "text" / "named" / f"{family.template}.jinja")
        for title, way in family.peers.items():
            python = sys.executable if way == "tlfs" else options.peers
            if (way == "tlfs" or size == options.sizes[0]) and (way != "megatron" or options.megatron):
                cases.append(Case(title, [python, PEERS, way, source, str(tokenizer), options.megatron if way == "megatron" else template]))
        yield Table(f"{family.what}, {tokenizer.name}, {size}×", cases, options.rounds)


def tokenizer_tables(options: Options) -> Iterator[Table]:
    """Pretraining with each tokenizer, on the same text, and whether the ids of all documents are those of the reference."""
    size, first = options.sizes[0], options.tokenizers[0]
    source = str(pretraining_file(options.folder / f"documents-{size}.jsonl.zst", FAMILIES["documents"].unit * size, options.text))
    tokenizers = (*options.tokenizers, *(like(options.folder, name, first) for name in LIKE))
    names = {path: BASE if path == first else f"{BASE}, {path.name}" for path in tokenizers}
    cases = [Case(name, [sys.executable, OURS, "build", "documents", source, str(path)]) for path, name in names.items()]
    cases += [Case(f"`tokenizers`, {path.name}, ids equal", [sys.executable, PEERS, "equal", source, str(path)]) for path in tokenizers]
    yield Table(f"Tokenizers, {first.name} first, {size}×", cases, options.rounds)


SCRIPTS = {"long chats": "long_chats.py", "packing": "packing.py", "reading": "read_windows.py"}
"""Those that print tables of their own."""


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted({*FAMILIES, "tokenizers", *SCRIPTS})
    parser.add_argument("--only", choices=known)
    units = ", ".join(f"{family.unit:,} {'MB of ' * (name == 'documents')}{name}" for name, family in FAMILIES.items())
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16], help=f"multiples of {units}")
    parser.add_argument("--tokenizers", type=Path, nargs="+", default=_there())
    parser.add_argument("--text", type=Path)
    parser.add_argument("--chats", type=Path, help="JSON lines with messages, for --only tools with tools too")
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--megatron", default="", help="a checkout of Megatron-LM, which PyPI's package leaves its tool out of")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "prep-assets-bench")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    opened = tuple(path.resolve() for path in given.tokenizers)
    options = Options(given.folder, tuple(given.sizes), opened, given.text, given.chats, given.peers, given.megatron, given.rounds)
    for name in [given.only] if given.only else known:
        if name in SCRIPTS:
            more = ["--tokenizer", str(opened[0])] if name == "long chats" else []
            print(f"### {name.capitalize()}\n", flush=True)
            subprocess.run([sys.executable, HERE / SCRIPTS[name], *more], check=True)
            continue
        for table in tokenizer_tables(options) if name == "tokenizers" else family_tables(name, options):
            runs = measure(table, options.folder / "results.jsonl")
            lines, ratios = [f"### {table.title}", "", *rows_of(table, runs)], ratios_of(table, runs)
            print("\n".join([*lines, "", *_slower(table.title, ratios), ""]), flush=True)
            if given.write:
                _write(table.title, "\n".join(lines))
                with HISTORY.open("a", encoding="utf-8") as file:
                    file.write(
                        json.dumps({"table": table.title, "version": version("prep-assets"), "ratios": ratios}, ensure_ascii=False) + "\n"
                    )


def _there() -> list[Path]:
    """The tokenizers of the data that tests use, GPT-2's first; the shipped one where there are none."""
    data = os.environ.get("PREP_ASSETS_TEST_DATA")
    found = sorted(path.parent for path in Path(data or ROOT, "tokenizers").glob("*/tokenizer.json"))
    return sorted(found, key=lambda path: path.name != "gpt2") or [SHIPPED]


def _slower(title: str, now: Ratios) -> Iterator[str]:
    """What is slower than in the last entry: a peer or a limit that has come nearer to ours, or ours that has gone further from it."""
    entries = [json.loads(line) for line in HISTORY.read_text("utf-8").splitlines()] if HISTORY.exists() else []
    before: Ratios = next((entry["ratios"] for entry in reversed(entries) if entry["table"] == title), {})
    for case in before.keys() & now.keys():
        old, new = before[case], now[case]
        ours = case.startswith((BASE, "its ", "the command"))
        if (new > 1.1 * old) if ours else (new < 0.9 * old):
            yield f"SLOWER than before: {case}: {old:.2f} times {BASE} then, {new:.2f} now"


def _write(title: str, section: str) -> None:
    """Put a table in the place of the one of the same title, or at the end of the page."""
    page = PAGE.read_text("utf-8")
    before = re.search(rf"^### {re.escape(title)}\n.*?(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    new = section + "\n\n"
    page = page[: before.start()] + new + page[before.end() :] if before else page.rstrip("\n") + "\n\n" + new
    PAGE.write_text(page.rstrip("\n") + "\n", "utf-8")


if __name__ == "__main__":
    main()
