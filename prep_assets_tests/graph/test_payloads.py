"""What is in the stores, against obvious re-implementations that use the reference tokenizer and the sources directly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow
import pytest
from tokenizers import Tokenizer

from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.lines import open_lines
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import open_published
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import SAMPLES, SHIPPED, SHIPPED_ASSETS, TOKENIZER, failing, refusals

EOS, START, END, PAD = 0, 1, 2, 3


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")


def ids(text: str) -> list[int]:
    """Ids of ordinary text. No sample holds a control token's text."""
    assert "<|" not in text
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def chatml(messages: list[dict[str, str]]) -> tuple[list[int], list[int]]:
    """Ids and loss mask of a conversation, piece by piece: the header and what it heads are one text; the answer is found by its length."""
    tokens: list[int] = []
    mask: list[int] = []
    for number, message in enumerate(messages):
        before = "\n" if number else ""
        lead = ids(before) if before else []
        header, whole = ids(f"{message['role']}\n"), ids(f"{message['role']}\n{message['content']}")
        assert whole[: len(header)] == header
        train = int(message["role"] == "assistant")
        tokens += [*lead, START, *whole, END]
        mask += [0] * len(lead) + [0] + [0] * len(header) + [train] * (len(whole) - len(header)) + [train]
    return [*tokens, *ids("\n")], [*mask, 0]


def rows_of(name: str) -> list[Any]:
    path = SAMPLES / name
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".zst":
        data = pyarrow.input_stream(pyarrow.BufferReader(data), compression="zstd").read()
    if ".json" in name and ".jsonl" not in name:
        return list(json.loads(data))
    return [json.loads(line) if "json" in name else {"text": line} for line in data.decode().split("\n") if line]


def records(store: TokenStore, key: str) -> Iterator[list[Any]]:
    for i in range(len(store)):
        yield store.record(i, key).tolist()


def stores(workspace: Workspace) -> list[Published]:
    return [open_published(workspace.stores, name, each) for name, asset in SHIPPED_ASSETS.items() for each in asset.partitions(workspace)]


def test_every_check_of_every_store_holds(built: Workspace) -> None:
    assert [(each.manifest.asset, failing(built, each)) for each in stores(built) if failing(built, each)] == []


def test_the_books_balance_in_every_store(built: Workspace) -> None:
    for published in stores(built):
        counts = published.manifest.counts
        if "read" in counts:
            listed = refusals(published)
            assert counts["read"] == counts["kept"] + len(listed), published.directory
            assert sum(counts["refused"].values()) == len(listed)
        else:
            assert EVERY[published.manifest.asset].source is None, "what reads records counts them"


@pytest.mark.parametrize(("name", "file"), [("docs", "docs.jsonl.zst"), ("notes", "notes.txt")])
def test_pretraining_streams_are_the_documents_in_order_each_ended(built: Workspace, name: str, file: str) -> None:
    directory = open_published(built.stores, "pretrain_tokens", name).directory
    train, dev = (open_tokens(directory, f"{name}_{split}") for split in ("train", "dev"))
    documents = [[*ids(row["text"]), EOS] for row in rows_of(file)]
    held_out = dev.row.tolist()
    assert 0 < len(held_out) < len(documents)
    assert np.asarray(train.arrays["tokens"][:]).tolist() == list(chain(*(d for i, d in enumerate(documents) if i not in held_out)))
    assert np.asarray(dev.arrays["tokens"][:]).tolist() == list(chain(*(documents[i] for i in held_out)))
    assert np.asarray(train.arrays["tokens"][:]).dtype == np.int32


def test_sft_tokens_and_masks_of_chats(built: Workspace) -> None:
    directory = open_published(built.stores, "sft_tokens", "chats").directory
    rows = [row["messages"] for row in rows_of("chats.jsonl")]
    seen = []
    for split in ("train", "dev"):
        store = open_tokens(directory, split)
        for row, tokens, mask in zip(store.row.tolist(), records(store, "tokens"), records(store, "loss_mask"), strict=True):
            assert (tokens, mask) == chatml(rows[row]), row
            seen.append(row)
    assert sorted(seen) == list(range(len(rows)))


def test_sft_answers_of_gsm8k_say_the_source_without_calculator_notes(built: Workspace) -> None:
    store = open_tokens(open_published(built.stores, "sft_tokens", "gsm8k").directory, "train")
    rows = rows_of("gsm8k.jsonl")
    for row, tokens, mask in zip(store.row.tolist(), records(store, "tokens"), records(store, "loss_mask"), strict=True):
        plain, at = "", rows[row]["answer"]
        while "<<" in at:
            head, _, rest = at.partition("<<")
            plain, at = plain + head, rest.partition(">>")[2]
        reasoning, _, final = (plain + at).partition("####")
        answer = f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        question = rows[row]["question"].strip()
        assert (tokens, mask) == chatml([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])


@pytest.mark.parametrize(("table", "split"), [("sft_packed", "train"), ("sft_dev_packed", "dev")])
def test_a_packed_table_is_the_concatenation_of_its_documents(built: Workspace, table: str, split: str) -> None:
    packed = open_packed(open_published(built.stores, "sft_packed").directory, table)
    domains = {name: open_tokens(open_published(built.stores, "sft_tokens", name).directory, split) for name in packed.sources}
    documents = {field: np.asarray(values).tolist() for field, values in packed.documents.items()}
    order = list(dict.fromkeys(zip(documents["source"], documents["record"], strict=True)))
    assert len(order) == sum(map(len, domains.values())), "every record once"
    for key, fill in (("tokens", PAD), ("loss_mask", 0)):
        stream = list(chain(*(domains[packed.sources[source]].record(record, key).tolist() for source, record in order)))
        row_len = SHIPPED["sft"]["packing"]["row_len"]
        stream += [fill] * (-len(stream) % row_len)
        table_rows = np.asarray(getattr(packed, key)[:])
        assert table_rows.tolist() == [stream[at : at + row_len] for at in range(0, len(stream), row_len)]
    assert list(packed.sources) == sorted(SHIPPED["sft"]["domains"])


def test_the_packed_files_have_the_layout_that_trainers_open(built: Workspace) -> None:
    directory = open_published(built.stores, "sft_packed").directory
    packed = open_packed(directory, "sft_packed")
    shape = (len(packed), SHIPPED["sft"]["packing"]["row_len"])
    if (directory / "sft_packed.h5").is_file():
        import h5py

        with h5py.File(directory / "sft_packed.h5") as file:
            found = {key: (file[key].shape, file[key].dtype.name) for key in file}
        assert found == {"tokens": (shape, "int32"), "loss_mask": (shape, "int8")}
    else:
        shard = directory / "sft_packed" / "shard_0000"
        meta = json.loads((shard / "meta.json").read_text())
        assert meta["sequence"]["dtype"] == "int32"
        assert np.fromfile(shard / "sequence.bin", "<i4").size == shape[0] * shape[1]
        positions = np.fromfile(shard / "position_ids.bin", "<i4").reshape(shape)
        for row, offset, length in zip(
            *(np.asarray(packed.documents[key]).tolist() for key in ("row", "row_offset", "length")), strict=True
        ):
            assert positions[row, offset : offset + length].tolist() == list(range(length))


def _hh(row: dict[str, str]) -> dict[str, str]:
    prompt, _, chosen = row["chosen"].rpartition("\n\nAssistant:")
    rejected = row["rejected"].rpartition("\n\nAssistant:")[2]
    return {"prompt": prompt.strip(), "chosen": chosen.strip(), "rejected": rejected.strip()}


def _ultrafeedback(row: dict[str, Any]) -> dict[str, str]:
    return {"prompt": row["prompt"], "chosen": row["chosen"][-1]["content"], "rejected": row["rejected"][-1]["content"]}


def test_preference_pairs_are_those_of_the_sources_each_once(built: Workspace) -> None:
    directory = open_published(built.stores, "preferences").directory
    expected = [_hh(row) for row in rows_of("hh.jsonl.gz")] + [_ultrafeedback(row) for row in rows_of("ultrafeedback.jsonl")]
    train, test = (list(open_lines(directory, name)) for name in ("preferences", "preferences_test"))
    as_lines = sorted(map(json.dumps, [*train, *test]))
    assert as_lines == sorted({json.dumps(row) for row in expected})
    assert test and {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in test)


def test_preference_tokens_are_the_two_conversations_with_loss_on_the_answers(built: Workspace) -> None:
    pairs = list(open_lines(open_published(built.stores, "preferences").directory, "preferences"))
    directory = open_published(built.stores, "preference_tokens").directory
    for side in ("chosen", "rejected"):
        store = open_tokens(directory, side)
        assert store.row.tolist() == list(range(len(pairs)))
        for pair, tokens, mask in zip(pairs, records(store, "tokens"), records(store, "loss_mask"), strict=True):
            assert (tokens, mask) == chatml([{"role": "user", "content": pair["prompt"]}, {"role": "assistant", "content": pair[side]}])


def test_gsm8k_golds_are_the_last_line_of_the_answer(built: Workspace) -> None:
    directory = open_published(built.stores, "rl_prompts").directory
    gold = {
        row["question"].strip(): float(row["answer"].split("\n")[-1][len("#### ") :].replace(",", "")) for row in rows_of("gsm8k.jsonl")
    }
    train, test = (list(open_lines(directory, name)) for name in ("rl_prompts_train", "rl_prompts_test"))
    assert {row["prompt"]: row["gold"] for row in (*train, *test)} == gold
    assert len(train) + len(test) == len(gold) and test


def test_the_arithmetic_curriculum_is_right(built: Workspace) -> None:
    rows = list(open_lines(open_published(built.stores, "arithmetic_prompts").directory, "arithmetic_prompts"))
    assert len(rows) == 300
    for row in rows:
        question = row["prompt"].removeprefix("What is ").removesuffix("?")
        left, operator, right = question.split()
        worked = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator]
        assert row["gold"] == worked


def test_rl_tokens_end_with_the_generation_prompt(built: Workspace) -> None:
    directory = open_published(built.stores, "rl_tokens").directory
    for stream, asset, name in (("prompts", "rl_prompts", "rl_prompts_train"), ("arithmetic", "arithmetic_prompts", "arithmetic_prompts")):
        store = open_tokens(directory, stream)
        prompts = [row["prompt"] for row in open_lines(open_published(built.stores, asset).directory, name)]
        for prompt, tokens in zip(prompts, records(store, "tokens"), strict=True):
            assert tokens == [START, *ids(f"user\n{prompt}"), END, *ids("\n"), START, *ids("assistant\n")]
