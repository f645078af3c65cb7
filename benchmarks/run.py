"""``make bench``: our builds and those of others on the same text, in turns, and the table of ``docs/performance.md``.

    python benchmarks/run.py [--only pretrain] [--sizes 1 4] [--tokenizers DIR…] [--text FILE.jsonl] [--chats FILE.jsonl] [--peers PYTHON]
        [--megatron CHECKOUT] [--write]

``PYTHON`` is the interpreter of an environment with datatrove and TRL; without them, their lines say so. What was measured is kept in `results.jsonl` of the
work folder as each round ends, and corpora are made once, so that a run that was broken off loses only its last round. What has become slower than on the page
is said. A benchmark is a function of the options that gives tables; another one is added to `BENCHMARKS`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora import LIKE, chats_file, like, pairs_file, pretraining_file, tools_file
from frame import Case, Table, measure, rows_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BASE_MB = 20
CHATS = 12_000
PAIRS = 3_000
TOOL_CHATS = 3_000


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


def pretrain(options: Options) -> Iterator[Table]:
    """``.jsonl.zst`` to a published store, the tokenizer alone, the checks, and peers; one table for each tokenizer and size."""
    script = str(Path(__file__).with_name("pretrain.py"))
    for tokenizer in options.tokenizers:
        for size in options.sizes:
            source = pretraining_file(options.folder / f"text-{size}.jsonl.zst", BASE_MB * size, options.text)
            common = [str(source), str(tokenizer)]
            cases = [
                Case(f"prep-assets, {workers} worker{'s' * (workers > 1)}", [sys.executable, script, "ours", *common, str(workers)])
                for workers in (1, 2)
            ]
            cases.append(Case("its checks", [sys.executable, script, "checks", *common]))
            cases.append(Case("its tokenizer alone, text in memory", [sys.executable, script, "engine", *common]))
            if size == options.sizes[0]:
                cases.append(Case("`tokenizers` in batches of 1,000", [sys.executable, script, "plain", *common]))
                cases.append(Case("datatrove", [options.peers, script, "datatrove", *common]))
                if options.megatron:
                    cases.append(
                        Case(
                            "Megatron-LM, `--use-gigatoken`, 2 workers", [options.peers, script, "megatron", *common, "2", options.megatron]
                        )
                    )
            yield Table(f"Pretraining, {tokenizer.name}, {size}×", cases, options.rounds)


def chats(options: Options) -> Iterator[Table]:
    """Chats to a packed table, on one core and by two workers, the checks, and peers on one core; one table for each tokenizer and size."""
    script = str(Path(__file__).with_name("chats.py"))
    for tokenizer in options.tokenizers:
        for size in options.sizes:
            source = chats_file(options.folder / f"chats-{size}.jsonl", CHATS * size, options.chats)
            common = [str(source), str(tokenizer)]
            cases = [
                Case("prep-assets", [sys.executable, script, "ours", *common]),
                Case("prep-assets, 2 workers", [sys.executable, script, "workers", *common]),
                Case("its checks", [sys.executable, script, "checks", *common]),
                Case("train-llm-from-scratch's way", [sys.executable, script, "tlfs", *common]),
            ]
            if size == options.sizes[0]:
                cases.append(Case("`datasets.map` as LLaMA-Factory uses it", [options.peers, script, "datasets", *common]))
                cases.append(Case("TRL", [options.peers, script, "trl", *common]))
            yield Table(f"Chats, {tokenizer.name}, {size}×", cases, options.rounds)


def tools(options: Options) -> Iterator[Table]:
    """The same of chats with tools, with the shipped tokenizer, which has the control tokens of the template `qwen3`."""
    script, tokenizer = str(Path(__file__).with_name("chats.py")), str(ROOT / "configs" / "tokenizer")
    for size in options.sizes:
        common = [str(tools_file(options.folder / f"tools-{size}.jsonl", TOOL_CHATS * size, options.chats)), tokenizer, "qwen3"]
        cases = [
            Case("prep-assets", [sys.executable, script, "ours", *common]),
            Case("its checks", [sys.executable, script, "checks", *common]),
        ]
        cases += [Case("TRL", [options.peers, script, "trl", *common])] if size == options.sizes[0] else []
        yield Table(f"Chats with tools, {size}×", cases, options.rounds)


def pairs(options: Options) -> Iterator[Table]:
    """Preference pairs to tokens, the checks, and TRL's preparation, on one core; one table for each tokenizer and size."""
    script = str(Path(__file__).with_name("pairs.py"))
    for tokenizer in options.tokenizers:
        for size in options.sizes:
            common = [str(pairs_file(options.folder / f"pairs-{size}.jsonl", PAIRS * size, options.chats)), str(tokenizer)]
            cases = [
                Case("prep-assets", [sys.executable, script, "ours", *common]),
                Case("its checks", [sys.executable, script, "checks", *common]),
            ]
            if size == options.sizes[0]:
                cases.append(Case("TRL", [options.peers, script, "trl", *common]))
            yield Table(f"Preference pairs, {tokenizer.name}, {size}×", cases, options.rounds)


def tokenizers(options: Options) -> Iterator[Table]:
    """Pretraining with each tokenizer, on the same text, and whether the ids of all documents are those of the reference."""
    script, size = str(Path(__file__).with_name("pretrain.py")), options.sizes[0]
    source = str(pretraining_file(options.folder / f"text-{size}.jsonl.zst", BASE_MB * size, options.text))
    base = options.tokenizers[0]
    every = (*options.tokenizers, *(like(options.folder, name, base) for name in LIKE))
    cases = [Case(f"prep-assets, {each.name}", [sys.executable, script, "ours", source, str(each)]) for each in every]
    cases += [Case(f"`tokenizers`, {each.name}, ids equal", [sys.executable, script, "equal", source, str(each)]) for each in every]
    yield Table(f"Tokenizers, {size}×", cases, options.rounds)


BENCHMARKS: Mapping[str, Callable[[Options], Iterator[Table]]] = {
    "chats": chats,
    "pairs": pairs,
    "pretrain": pretrain,
    "tokenizers": tokenizers,
    "tools": tools,
}
SCRIPTS = {"long chats": "long_chats.py", "packing": "packing.py", "reading": "read_windows.py"}
"""Those that print tables of their own."""


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted({*BENCHMARKS, *SCRIPTS}))
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[1, 4, 16],
        help=f"multiples of {BASE_MB} MB, of {CHATS:,} chats, of {PAIRS:,} pairs and of {TOOL_CHATS:,} chats with tools",
    )
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
    chosen = [given.only] if given.only else sorted({*BENCHMARKS, *SCRIPTS})
    for table in (table for name in chosen if name in BENCHMARKS for table in BENCHMARKS[name](options)):
        lines = [f"### {table.title}", "", *rows_of(table, measure(table, options.folder / "results.jsonl"))]
        print("\n".join([*lines, "", *_slower(table.title, lines), ""]), flush=True)
        if given.write:
            _write(table.title, "\n".join(lines))
    for name in chosen:
        if name in SCRIPTS:
            more = ["--tokenizer", str(opened[0])] if name == "long chats" else []
            print(f"### {name.capitalize()}\n", flush=True)
            subprocess.run([sys.executable, Path(__file__).with_name(SCRIPTS[name]), *more], check=True)


def _there() -> list[Path]:
    """The tokenizers of the data that tests use, GPT-2's first; the shipped one where there are none."""
    data = os.environ.get("PREP_ASSETS_TEST_DATA")
    found = sorted(path.parent for path in Path(data or ROOT, "tokenizers").glob("*/tokenizer.json"))
    return sorted(found, key=lambda path: path.name != "gpt2") or [ROOT / "configs" / "tokenizer"]


def _slower(title: str, lines: Sequence[str]) -> Iterator[str]:
    """What is slower than on the page: a peer that has come nearer to ours, or ours that has gone further from its first line."""
    found = _section(title).search(PAGE.read_text("utf-8"))
    before, now = (dict(_ROW.findall(text)) for text in (found.group() if found else "", "\n".join(lines)))
    for case in before.keys() & now.keys():
        old, new = float(before[case]), float(now[case])
        ours = case.startswith(("prep-assets", "its "))
        if (new > 1.1 * old) if ours else (new < 0.9 * old):
            yield f"SLOWER than on the page: {case}: {old} times the first line there, {new} now"


_ROW = re.compile(r"^\| (.+?) \| ([\d.]+) \(", re.MULTILINE)


def _section(title: str) -> re.Pattern[str]:
    return re.compile(rf"^### {re.escape(title)}\n.*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)


def _write(title: str, section: str) -> None:
    """Put a table in the place of the one of the same title, or at the end of the page."""
    page = PAGE.read_text("utf-8") if PAGE.exists() else "# Performance\n"
    found = _section(title).search(page)
    new = section + "\n\n"
    page = page[: found.start()] + new + page[found.end() :] if found else page.rstrip("\n") + "\n\n" + new
    PAGE.write_text(page.rstrip("\n") + "\n", "utf-8")


if __name__ == "__main__":
    main()
