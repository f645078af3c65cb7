"""Inputs of builds in shards: duplicates near and far, lines that are no JSON, records that are too long."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from prep_assets_tests.graph.workspaces import SAMPLES, TOKENIZER, domain, jsonl, minimal

CHATS = [json.loads(line) for line in (SAMPLES / "chats.jsonl").read_text("utf-8").splitlines()]
DOCUMENTS = [{"text": f"Document {n}: {'many words and ' * (n % 40)} an end.", "kind": ["even", "odd"][n % 2]} for n in range(400)]


def spoiled(rows: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """Rows with duplicates of some that came long before, and of their neighbours."""
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        found += [row, rows[number // 2], row] if number % every == every - 1 else [row]
    return found


def with_bad_lines(path: Path) -> Path:
    """Some lines that are no JSON, between the others."""
    lines = path.read_text("utf-8").splitlines()
    path.write_text(
        "\n".join(line for at, line in enumerate(lines) for line in ([line, "no json"] if at % 30 == 7 else [line])) + "\n", "utf-8"
    )
    return path


def chats(folder: Path) -> Mapping[str, Any]:
    """Two files to train on and one that is held out, with records in common; some of each are not read."""
    folder.mkdir(parents=True)
    longer = [[*row["messages"], *turns(number)] for number, row in enumerate(CHATS * 2)]
    rows = spoiled([*CHATS, *({"messages": messages} for messages in longer)], 9)
    first, second = (jsonl(folder / f"{name}.jsonl", part) for name, part in (("a", rows[:130]), ("b", rows[60:])))
    held_out = jsonl(folder / "test.jsonl", rows[::12])
    with_bad_lines(first)
    read = domain(first, "messages", test_files=[str(held_out)], max_items=170)
    return minimal(
        "sft",
        {"chats": {**read, "files": [str(first), str(second)]}},
        test_fraction=0.1,
        template="chatml",
        preprocessing={"max_seq_len": 150},
    )


def turns(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": f"{number}!"}]


def hidden(folder: Path) -> Mapping[str, Any]:
    """Chats of which the later ones need an attention mask, and the last ones fractions too."""
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    for n in range(400):
        answer = {
            "type": "assistant",
            "content": [{"a": "Perhaps."}, {"b": f" It is {n}."}],
            "semantic_loss_weight": [0, 0.5 if n > 390 else 1],
        }
        asked = {
            "type": "user",
            "content": [{"q": f"What is {n}?" + " Please." * (n % 50)}],
            "semantic_attention_mask": [int(n < 200 or n % 2)],
        }
        rows.append({"semantic_data_array": [asked, {**answer, "semantic_attention_mask": [int(n < 300), 1]}]})
    path = with_bad_lines(jsonl(folder / "rows.jsonl", spoiled(rows, 9)))
    return minimal("sft", {"hidden": domain(path, "semantic")}, test_fraction=0.1, preprocessing={"max_seq_len": 60})


def distilled(folder: Path) -> Mapping[str, Any]:
    """Texts with what a teacher says of them; some entries are shifted, and some rows come twice."""
    folder.mkdir(parents=True)
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    rows: list[dict[str, Any]] = []
    for n in range(300):
        ids = backend.encode(f"Document {n}: {'many words and ' * (n % 9)} an end.", add_special_tokens=False).ids
        said = [*ids[2:], 7] if n % 10 == 9 else ids[1:]
        entries = [[token, 9 + n % 3] if at % 4 else [token] for at, token in enumerate(said)]
        rows.append({"input_ids": ids, "token_ids": entries, "top_values": [[-0.5, -2.0][: len(each)] for each in entries]})
    read = {**domain(jsonl(folder / "rows.jsonl", spoiled(rows, 9)), "distilled"), "tokenized_by": TOKENIZER}
    options = {"teacher_ids_key": "token_ids", "logprobs_key": "top_values"}
    return minimal("sft", {"taught": {**read, "options": options}}, test_fraction=0.1)


def documents(folder: Path) -> Mapping[str, Any]:
    """A compressed file; one document weighs less, so that all of it has a mask."""
    folder.mkdir(parents=True)
    path = with_bad_lines(jsonl(folder / "docs.jsonl", spoiled(DOCUMENTS, 7)))
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    return minimal("pretrain", {"docs": domain(packed, "text", where={"kind": {"!=": "odd"}}, ignore=["kind"])}, test_fraction=0.1)


def pairs(folder: Path) -> Mapping[str, Any]:
    """Pairs, some of which are too long once they are rendered; late ones have a margin."""
    folder.mkdir(parents=True)
    rows = [{"prompt": f"What is {n}?", "chosen": f"It is {n}." + " Yes." * (n % 50), "rejected": "I do not know."} for n in range(400)]
    rows = [row | ({"margin": n / 7} if n > 250 else {}) for n, row in enumerate(rows)]
    return minimal("preference", {"pairs": domain(jsonl(folder / "pairs.jsonl", rows), "preference")}, preprocessing={"max_seq_len": 60})


def prompts(folder: Path) -> Mapping[str, Any]:
    """Prompts, some of which are too long once they are rendered."""
    folder.mkdir(parents=True)
    rows = [{"prompt": f"What is {n}?" + " Please." * (n % 50), "gold": str(n)} for n in range(400)]
    read = domain(jsonl(folder / "prompts.jsonl", rows), "rl_prompt")
    return minimal("rl", {"prompts": read}, preprocessing={"max_seq_len": 60}, arithmetic={"n": 300})
