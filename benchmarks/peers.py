"""The work of others on the same files, timed; `run.py` calls it.

    python benchmarks/peers.py {tlfs,datasets,trl,trl_pairs,equal,plain,datatrove,megatron} FILE TOKENIZER [TEMPLATE | CHECKOUT]

Prints seconds, processor seconds and tokens as JSON; imports are not timed. None of them checks anything. `tlfs` is the way of train-llm-from-scratch: it
encodes message by message with tiktoken and packs in order. TRL renders and tokenizes with `apply_chat_template` in `datasets.map`, with the mask of the
template's ``{% generation %}`` tags where it has them, and packs with `bfd`; `trl_pairs` is what its `DPOTrainer` does with a data set before it trains. The
`plain` way for documents reads with `json`, encodes batches of 1,000 with `tokenizers.encode_batch_fast`, and writes raw ids. What makes a packed table or
pairs runs on one core, where the system can pin one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from ours import ROW_LEN, Row, timed

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def lines(source: Path) -> Iterator[bytes]:
    """The lines of a compressed file."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    with zstd.open(source, "rb") as file:
        yield from file


def tlfs(source: Path, tokenizer: Path, template: str) -> Row:
    """The way of train-llm-from-scratch: lists of ids and mask of each message, packed one chat after the other."""
    import h5py
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

    disable_progress_bars()
    opened = AutoTokenizer.from_pretrained(str(tokenizer))
    opened.chat_template = Path(template).read_text("utf-8")
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


def datasets(source: Path, tokenizer: Path, template: str) -> Row:
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


def trl_pairs(source: Path, tokenizer: Path, template: str) -> Row:
    """The data set of TRL's `DPOTrainer`."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    disable_progress_bars()
    opened = AutoTokenizer.from_pretrained(str(tokenizer))
    opened.chat_template = Path(template).read_text("utf-8")
    config = DPOConfig(output_dir=tempfile.gettempdir(), max_length=None, report_to=[], bf16=False)

    def work() -> int:
        pairs = Dataset.from_list([json.loads(line) for line in source.open(encoding="utf-8")])
        made = DPOTrainer._prepare_dataset(SimpleNamespace(_tokenizer=opened), pairs, opened, config, "train")
        return sum(2 * len(row["prompt_ids"]) + len(row["chosen_ids"]) + len(row["rejected_ids"]) for row in made)

    return timed(work)


def equal(source: Path, tokenizer: Path, _: str) -> Row:
    """The reference on the same documents; stops where any id differs from the engine's."""
    from prep_assets.text.engines import choose_engine
    from prep_assets.text.vocabulary import load_vocabulary

    texts = [json.loads(line)["text"] for line in lines(source)]
    batches = [texts[at : at + 200] for at in range(0, len(texts), 200)]
    engines, expected = choose_engine(load_vocabulary(str(tokenizer))), list[Any]()

    def work() -> int:
        expected.extend(map(engines.reference.encode, batches))
        return sum(len(flat.ids) for flat in expected)

    said = timed(work)
    for number, (batch, flat) in enumerate(zip(batches, expected, strict=True)):
        given = engines.first.encode(batch)
        if not (np.array_equal(given.ids, flat.ids) and np.array_equal(given.offsets, flat.offsets)):
            raise SystemExit(f"documents {200 * number} to {200 * number + len(batch)} have other ids than the reference gives them")
    return said


def plain(source: Path, tokenizer: Path, _: str) -> Row:
    """The plain way."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")

    def work() -> int:
        count = 0
        with tempfile.TemporaryFile() as sink:
            rows = lines(source)
            while batch := [json.loads(line)["text"] for line in islice(rows, 1000)]:
                for encoding in backend.encode_batch_fast(batch, add_special_tokens=False):
                    sink.write(np.asarray([*encoding.ids, 0], np.int32).data)
                    count += len(encoding.ids) + 1
        return count

    return timed(work)


def datatrove(source: Path, tokenizer: Path, _: str) -> Row:
    """datatrove's reader and tokenizer, as its examples use them."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    with tempfile.TemporaryDirectory() as folder:
        reader = JsonlReader(str(source.parent), glob_pattern=source.name, compression="zstd")
        name = f"{tokenizer}/tokenizer.json"
        writer = DocumentTokenizer(f"{folder}/out", tokenizer_name_or_path=name, batch_size=1000, shuffle_documents=False)
        executor = LocalPipelineExecutor([reader, writer], logging_dir=f"{folder}/logs", tasks=1, workers=1)
        return timed(lambda: 0 * bool(executor.run()))


def megatron(source: Path, tokenizer: Path, checkout: str) -> Row:
    """Megatron-LM's ``tools/preprocess_data.py`` with its fastest tokenizer and two workers, once imported, on text that is not compressed."""
    import typing

    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]  # Python 3.12 has it
    sys.path[:0] = [checkout, f"{checkout}/tools"]
    import preprocess_data

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        text = Path(folder, "text.jsonl")
        text.write_bytes(b"".join(lines(source)))
        sys.argv = [
            *("preprocess_data.py", "--input", str(text), "--output-prefix", f"{folder}/out", "--append-eod", "--workers", "2"),
            *("--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(tokenizer), "--use-gigatoken"),
        ]
        return timed(lambda: 0 * bool(preprocess_data.main()))


WAYS: dict[str, Callable[[Path, Path, str], Row]] = {
    way.__name__: way for way in (tlfs, datasets, trl, trl_pairs, equal, plain, datatrove, megatron)
}

if __name__ == "__main__":
    way, file, directory, *rest = sys.argv[1:]
    if hasattr(os, "sched_setaffinity") and way in ("tlfs", "datasets", "trl", "trl_pairs"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(WAYS[way](Path(file).resolve(), Path(directory).resolve(), rest[0] if rest else "")))
