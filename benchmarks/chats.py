"""One way to make a packed table of chats, timed; `run.py` calls it.

    python benchmarks/chats.py {ours,workers,checks,tlfs,datasets,trl} FILE.jsonl TOKENIZER [TEMPLATE]

FILE has rows ``{"messages": [{"role", "content"}, …]}``, for TRL and us also with `tool_calls`, and with `tools` as JSON in a string. Prints seconds,
processor seconds and tokens as JSON. Ours is `sft_raw`, `sft_tokens` and `sft_packed` with their audits; `workers` is the same by two workers, their
start included; `checks` are all checks of the three.
train-llm-from-scratch's way encodes each message with tiktoken, builds ids and mask as lists, and packs them in order; it has no checks. TRL renders
and tokenizes with `apply_chat_template` in `datasets.map`, with the mask of the template's ``{% generation %}`` tags where it has them. Every run but
`workers` is on one core, where the system can pin one; imports and opening the tokenizer are not timed, but for
workers, who open it themselves.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.compute
import pyarrow.json  # noqa: F401 - with what stores and checks import, before the clock starts

from prep_assets.config.models import Sft
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.graph.graph import ASSETS, CHECKS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets.workers.pool import Pool

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
    """Seconds of wall and processor time that some work takes, with that of processes that end in it, and how many tokens it gives."""
    wall, processor = time.perf_counter(), sum(os.times()[:4])
    tokens = work()
    return {"seconds": time.perf_counter() - wall, "processor": sum(os.times()[:4]) - processor, "tokens": tokens}


STEPS = (("sft_raw", "chats"), ("sft_tokens", "chats"), ("sft_packed", ""))


def accepted(workspace: Workspace, steps: Iterable[tuple[str, str]]) -> dict[str, Published]:
    """The stores of these assets and partitions, accepted."""
    published = {}
    for asset, partition in steps:
        made = ASSETS[asset].build(workspace, partition)
        published[asset] = made.propose()
        made.place.accept(published[asset], {})
    return published


def checking(workspace: Workspace, steps: Sequence[tuple[str, str]], counted: str) -> Row:
    """All checks of these stores, timed, and the tokens of one of them. Stops where a check fails."""
    published = accepted(workspace, steps)

    def check() -> int:
        for asset, store in published.items():
            for each, verdict in verdicts(workspace, ASSETS[asset], store, CHECKS[asset]):
                if not verdict.passed:
                    raise SystemExit(f"{asset}: {each} fails: {verdict.summary}")
        return int(published[counted].manifest.counts["tokens"])

    return timed(check)


def ours(source: Path, tokenizer: Path, template: str) -> Row:
    """The three stores."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, template, Path(name))
        return timed(lambda: int(accepted(workspace, STEPS)["sft_tokens"].manifest.counts["tokens"]))


def workers(source: Path, tokenizer: Path, template: str) -> Row:
    """The three stores, by two workers; `driver` is the processor time of the process that started them."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, template, Path(name))

        def work() -> int:
            with Pool() as pool:
                return int(accepted(replace(workspace, workers=2, pool=pool), STEPS)["sft_tokens"].manifest.counts["tokens"])

        before = time.process_time()
        return timed(work) | {"driver": time.process_time() - before}


def checks(source: Path, tokenizer: Path, template: str) -> Row:
    """Their checks."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, template, Path(name))
        return checking(workspace, STEPS, "sft_tokens")


def tlfs(source: Path, tokenizer: Path, template: str) -> Row:
    """The way of train-llm-from-scratch: lists of ids and mask of each message, packed one chat after the other."""
    import tiktoken

    from prep_assets.text.vocabulary import load_vocabulary

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

    return timed(work)


def trl(source: Path, tokenizer: Path, template: str) -> Row:
    """What TRL's trainer does before it trains: `apply_chat_template` of each chat, and packing."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl.data_utils import pack_dataset

    from prep_assets.text.load_template import named_templates

    disable_progress_bars()
    opened = AutoTokenizer.from_pretrained(str(tokenizer))
    opened.chat_template = named_templates()[template]
    tagged = re.search(r"\{%-?\s*generation\b", opened.chat_template) is not None
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": tagged}

    def prepare(chat: Row) -> Row:
        tools = json.loads(chat["tools"]) if chat.get("tools") else None
        found = opened.apply_chat_template(chat["messages"], tools=tools, **options)
        return {name: found[name] for name in ("input_ids", "assistant_masks") if name in found}

    def work() -> int:
        chats = Dataset.from_list([json.loads(line) for line in source.open(encoding="utf-8")])
        made = chats.map(prepare, remove_columns=chats.column_names)
        packed = pack_dataset(made, ROW_LEN, "bfd")
        return sum(map(len, packed["input_ids"]))

    return timed(work)


def datasets_map(source: Path, tokenizer: Path, template: str) -> Row:
    """The way of LLaMA-Factory: `datasets.map` over batches, each turn encoded by itself, questions given the label that is ignored, and chats that fit
    put into rows together."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer

    disable_progress_bars()
    opened = AutoTokenizer.from_pretrained(str(tokenizer))

    def prepare(batch: dict[str, list[list[dict[str, str]]]]) -> dict[str, list[list[int]]]:
        made: list[tuple[list[int], list[int]]] = []
        for chat in batch["messages"]:
            ids: list[int] = []
            labels: list[int] = []
            for message in chat:
                own = opened.encode(f"<|{message['role']}|>\n{message['content']}{opened.eos_token}", add_special_tokens=False)
                ids += own
                labels += own if message["role"] == "assistant" else [-100] * len(own)
            made.append((ids[:ROW_LEN], labels[:ROW_LEN]))
        rows: list[tuple[list[int], list[int]]] = []
        spaces: list[int] = []
        for ids, labels in sorted(made, key=lambda pair: -len(pair[0])):
            at = next((at for at, space in enumerate(spaces) if space >= len(ids)), None)
            if at is None:
                rows.append(([], []))
                spaces.append(ROW_LEN)
                at = -1
            rows[at][0].extend(ids)
            rows[at][1].extend(labels)
            spaces[at] -= len(ids)
        return {"input_ids": [ids for ids, _ in rows], "labels": [labels for _, labels in rows]}

    def work() -> int:
        chats = Dataset.from_list([json.loads(line) for line in source.open(encoding="utf-8")])
        made = chats.map(prepare, batched=True, batch_size=1000, remove_columns=chats.column_names)
        return sum(map(len, made["input_ids"]))

    return timed(work)


WAYS = {"datasets": datasets_map, "ours": ours, "workers": workers, "checks": checks, "tlfs": tlfs, "trl": trl}

if __name__ == "__main__":
    way, file, directory, *rest = sys.argv[1:]
    if hasattr(os, "sched_setaffinity") and way != "workers":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(WAYS[way](Path(file).resolve(), Path(directory).resolve(), rest[0] if rest else "plain")))
