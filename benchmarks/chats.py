"""Chats to a packed table: ours against train-llm-from-scratch's way and TRL's preparation, on the same chats, in turn.

    python benchmarks/chats.py FILE.jsonl --tokenizer DIRECTORY [--template NAME] [--repeats 3]

FILE has rows ``{"messages": [{"role", "content"}, …]}``. Prints ratios of processor time and of wall time, with their lowest, median and highest
value. Ours is `sft_raw`, `sft_tokens` and `sft_packed` with their audits; their checks are timed apart. train-llm-from-scratch's way encodes each
message with tiktoken, builds ids and mask as lists, and packs them in order; it has no checks. TRL renders and tokenizes with
`apply_chat_template` in `datasets.map`, with the mask of its ``{% generation %}`` tags; it runs where TRL is installed and the template has such tags.
Every run has a process of its own, on one core where the system can pin one. Loading the tokenizer is not timed.
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
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from prep_assets.assets.graph import ASSETS, CHECKS
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Sft
from prep_assets.engine.checking import verdicts

ROW_LEN = 2048
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
Row = dict[str, Any]


def workspace_for(source: Path, tokenizer: Path, template: str, folder: Path) -> Workspace:
    """A workspace of one domain, its tokenizer loaded and its engine chosen."""
    config = {
        "tokenizer": str(tokenizer),
        "template": template,
        "packing": {"strategy": "bfd", "row_len": ROW_LEN},
        "preprocessing": {"max_seq_len": ROW_LEN},
        "domains": {"chats": {"files": [str(source)], "schema": "messages"}},
    }
    (folder / "sft.yaml").write_text(json.dumps(config), "utf-8")
    workspace = Workspace(folder, folder / "stores")
    workspace.engines(workspace.family(Sft)).first.encode(["word"])  # imports what the engine answers with
    return workspace


def timed(work: Callable[[], int]) -> Row:
    """Seconds of wall and processor time that some work takes, and how many tokens it gives."""
    wall, processor = time.perf_counter(), time.process_time()
    tokens = work()
    seconds = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
    return {**seconds, "tokens": tokens, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def ours(source: Path, tokenizer: Path, template: str) -> list[Row]:
    """The three stores, and their checks."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, template, Path(name))
        published = {}

        def build() -> int:
            for asset, partition in (("sft_raw", "chats"), ("sft_tokens", "chats"), ("sft_packed", "")):
                made = ASSETS[asset].build(workspace, partition)
                published[asset] = made.propose()
                made.place.accept(published[asset], {})
            return int(published["sft_tokens"].manifest.counts["tokens"])

        def check() -> int:
            for asset, store in published.items():
                for name, verdict in verdicts(workspace, ASSETS[asset], store, CHECKS[asset]):
                    if not verdict.passed:
                        raise SystemExit(f"{asset}: {name} fails: {verdict.summary}")
            return 0

        return [{"name": "ours", **timed(build)}, {"name": "checks", **timed(check)}]


def from_scratch(source: Path, tokenizer: Path, template: str) -> list[Row]:
    """The way of train-llm-from-scratch: lists of ids and mask of each message, packed one chat after the other."""
    import h5py
    import tiktoken

    from prep_assets.tokenization.load import load_vocabulary

    vocabulary = load_vocabulary(str(tokenizer))
    special = set(vocabulary.control.values())
    ranks = {own: number for number, own in enumerate(vocabulary.token_bytes or ()) if number not in special}
    encoding = tiktoken.Encoding("local", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    end = vocabulary.eos_id

    def work() -> int:
        flat: list[int] = []
        masks: list[int] = []
        for line in source.open(encoding="utf-8"):
            ids: list[int] = []
            mask: list[int] = []
            for message in json.loads(line)["messages"]:
                header = encoding.encode_ordinary(f"<|{message['role']}|>\n")
                content = [*encoding.encode_ordinary(message["content"]), end]
                ids += [*header, *content]
                mask += [0] * len(header) + [int(message["role"] == "assistant")] * len(content)
            if len(ids) <= ROW_LEN and any(mask):
                flat += ids
                masks += mask
        rows = len(flat) // ROW_LEN
        with tempfile.NamedTemporaryFile(suffix=".h5") as file, h5py.File(file.name, "w") as table:
            table["tokens"] = np.array(flat[: rows * ROW_LEN], np.int32).reshape(rows, ROW_LEN)
            table["loss_mask"] = np.array(masks[: rows * ROW_LEN], np.int8).reshape(rows, ROW_LEN)
        return len(flat)

    return [{"name": "train-llm-from-scratch", **timed(work)}]


def trl(source: Path, tokenizer: Path, template: str) -> list[Row]:
    """What TRL's trainer does before it trains: `apply_chat_template` of each chat, and packing."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl.data_utils import pack_dataset

    from prep_assets.templates.chat_template import named_templates

    disable_progress_bars()
    opened = AutoTokenizer.from_pretrained(str(tokenizer))
    opened.chat_template = named_templates()[template]
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}

    def prepare(chat: Row) -> Row:
        found = opened.apply_chat_template(chat["messages"], **options)
        return {"input_ids": found["input_ids"], "assistant_masks": found["assistant_masks"]}

    def work() -> int:
        chats = Dataset.from_list([json.loads(line) for line in source.open(encoding="utf-8")])
        made = chats.map(prepare, remove_columns=chats.column_names)
        packed = pack_dataset(made, ROW_LEN, "bfd")
        return sum(map(len, packed["input_ids"]))

    return [{"name": "TRL", **timed(work)}]


WAYS = {"ours": ours, "train-llm-from-scratch": from_scratch, "TRL": trl}


def run(source: Path, tokenizer: Path, template: str, repeats: int) -> list[Row]:
    """The rows of all runs, in turn: name, seconds of wall and processor, tokens, peak memory of the process."""
    names = [name for name in WAYS if name != "TRL" or (find_spec("trl") and find_spec("datasets"))]
    command = [sys.executable, __file__, str(source), "--tokenizer", str(tokenizer), "--template", template, "--way"]
    rows: list[Row] = []
    for _ in range(repeats):
        for name in names:
            done = subprocess.run([*command, name], check=True, capture_output=True, text=True)
            rows += json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    """Run the ways in turn, and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--template", default="plain")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    source, tokenizer = arguments.file.resolve(), arguments.tokenizer.resolve()
    if arguments.way:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps(WAYS[arguments.way](source, tokenizer, arguments.template)))
        return
    rows = run(source, tokenizer, arguments.template, arguments.repeats)
    by_name = {name: [row for row in rows if row["name"] == name] for name in dict.fromkeys(row["name"] for row in rows)}
    for name, found in by_name.items():
        tokens, peak = f"{found[0]['tokens']:,} tokens, " if found[0]["tokens"] else "", max(row["peak_mb"] for row in found)
        print(f"{name}: {tokens}peak {peak:,.0f} MB")
        for clock in ("processor", "wall") if name != "ours" else ():
            ratios = sorted(row[clock] / own[clock] for row, own in zip(found, by_name["ours"], strict=True))
            print(f"  {clock} time, times ours: {ratios[0]:.2f} to {ratios[-1]:.2f}, median {median(ratios):.2f}")


if __name__ == "__main__":
    main()
