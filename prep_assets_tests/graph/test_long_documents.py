"""Documents and chats of more than a million tokens: their tokens, rows, positions and borders, and what reads them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets import load
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.training import SequenceDataset
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, jsonl, workspace_in

BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
WORDS = ("river", "stone", "seven", "under", "moves", "quiet", "green", "after", "light")
SHORT = [f"{number}: a short one." for number in range(6)]
MILLION = 1 << 20


@pytest.fixture(scope="module")
def long_text() -> str:
    return " ".join(random.Random(0).choices(WORDS, k=MILLION + 1000))


@pytest.fixture(scope="module")
def documents(long_text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("long")
    texts = [*SHORT[:3], long_text, *SHORT[3:]]
    source = domain(jsonl(folder / "d.jsonl", [{"text": text} for text in texts]), "text")
    yield workspace_in(folder, {"pretrain": {"tokenizer": TOKENIZER, "domains": {"d": source}, "output": {"storage_format": "bin"}}})


def test_a_document_of_a_million_tokens_is_one_record(documents: Workspace, long_text: str) -> None:
    published = build(documents, "pretrain_tokens", "d")
    store = open_stream(published.directory, "d_train")
    eos = BACKEND.token_to_id("<|endoftext|>")
    ids = store.record(3, "tokens").tolist()
    assert len(ids) > MILLION and ids[-1] == eos and eos not in ids[:-1]
    assert BACKEND.decode(ids[:-1]) == long_text
    assert [BACKEND.decode(store.record(number, "tokens").tolist()[:-1]) for number in (2, 4)] == [SHORT[2], SHORT[3]]
    windows = SequenceDataset(load(published.directory / "d_train"), 4096)
    flat = np.asarray(store.columns["tokens"].values)
    for number in (0, len(windows) // 2, len(windows) - 1):
        assert windows[number]["input_ids"].tolist() == flat[number * 4096 : (number + 1) * 4096].tolist()


def test_rows_of_a_long_chat_by_buckets(tmp_path: Path, long_text: str) -> None:
    """A row of two million places and rows of short chats; the one cut to rows of 2^18 begins at 0 in each."""

    def asked(text: str) -> dict[str, list[dict[str, str]]]:
        return {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}]}

    half = long_text[: len(long_text) // 2]
    source = domain(jsonl(tmp_path / "c.jsonl", [asked(half), *map(asked, SHORT)]), "messages")
    packing = {"strategy": "bfd_split", "row_len": 1 << 18, "buckets": [1 << 10]}
    family = {
        "tokenizer": TOKENIZER,
        "template": "chatml",
        "domains": {"c": source},
        "packing": packing,
        "output": {"storage_format": "bin"},
    }
    workspace = workspace_in(tmp_path, {"sft": {**family, "preprocessing": {"max_seq_len": 1 << 22}}})
    published = build(workspace, "sft_packed")
    record = max(open_stream(workspace.built("sft_tokens", "c").directory, "train").lengths.tolist())
    assert record > MILLION
    table = open_stream(published.directory, "sft_packed")
    rows, starts, lengths = (np.asarray(table.pieces.fields[name]) for name in ("row", "start", "length"))
    whole = np.asarray(table.pieces.fields["record"])
    longest = int(np.bincount(whole, lengths).argmax())
    assert not {*rows[whole == longest].tolist()} & {*rows[whole != longest].tolist()}, "the short ones share no row with it"
    [file] = published.directory.rglob("position_ids.bin")
    for row, positions in enumerate(np.fromfile(file, np.int32).reshape(len(table), -1)):
        expected = np.concatenate([np.arange(length) for length in lengths[rows == row].tolist()])
        assert positions[: len(expected)].tolist() == expected.tolist() and not positions[len(expected) :].any()
    mask = open_stream(workspace.built("sft_tokens", "c").directory, "train").record(longest, "loss_mask")
    begins = range(0, record, 1 << 18)
    trained = [begin for begin in begins if mask[begin : begin + (1 << 18)].any()]
    assert starts[whole == longest].tolist() == trained
    left_out = sum(min(record - begin, 1 << 18) for begin in begins if begin not in trained)
    assert published.manifest.counts["tokens_in_untrained_rows"] == left_out > MILLION // 4
