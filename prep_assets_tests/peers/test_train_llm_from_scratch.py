"""train-llm-from-scratch's own loaders on our `tlfs` exports, and its training on our table beside the one that it makes itself."""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import PAD, ROW_LEN, Stream, Table, some, write_lines
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in
from prep_assets_tests.peers.checkouts import checkout

END = 50_256
"""Its end of text."""


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Modules of ``data_loader/``, by name, from the checkout that PREP_ASSETS_TLFS names.

    Its tokenizer is tiktoken's, which is fetched when it is first used; here a token is a byte.
    """
    folder = checkout("PREP_ASSETS_TLFS", "train-llm-from-scratch")
    tiktoken = types.ModuleType("tiktoken")
    letters = types.SimpleNamespace(encode_ordinary=lambda text: list(text.encode()))
    tiktoken.get_encoding = lambda name: letters  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", tiktoken)
    monkeypatch.syspath_prepend(str(folder))
    yield lambda name: importlib.import_module(f"data_loader.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] in ("data_loader", "scripts", "src")]:
        del sys.modules[name]


@pytest.mark.parametrize("context", [8, 16])
def test_pretraining(loaders: Any, text: Stream, tmp_path: Path, context: int) -> None:
    """An epoch has every window once, in an order drawn by NumPy's global generator."""
    path = export(text.folder, "tlfs", tmp_path / "out") / "pile_train.h5"
    count = (len(text.tokens) - 1) // context
    np.random.seed(0)
    batches = loaders("data_loader").get_batch_iterator(str(path), 1, context)
    found = {}
    for inputs, targets in islice(batches, count):
        assert inputs.shape == targets.shape == (1, context)
        found[tuple(inputs[0].tolist())] = targets[0].tolist()
    for window in range(count):
        begin = window * context
        assert found[tuple(text.tokens[begin : begin + context])] == text.tokens[begin + 1 : begin + context + 1]


def test_sft(loaders: Any, table: Table, tmp_path: Path) -> None:
    """Its trainer takes ``tokens[:, 1:]`` as labels and ``loss_mask[:, 1:]`` with them."""
    path = export(table.folder, "tlfs", tmp_path / "out", pad_id=PAD) / "sft_packed.h5"
    batches = list(loaders("sft_dataset").get_sft_batch_iterator(str(path), 10, shuffle=False, infinite=False))
    tokens = [row for batch, _, _ in batches for row in batch.tolist()]
    masks = [row for _, batch, _ in batches for row in batch.tolist()]
    assert len(tokens) == len(masks) == len(table.rows)
    for row in some(len(table.rows)):
        pad = [PAD] * (ROW_LEN - len(table.tokens(row)))
        assert tokens[row] == table.tokens(row) + pad
        trained = [target for target, kept in zip(tokens[row][1:], masks[row][1:], strict=True) if kept]
        expected = [token for ids, mask in table.rows[row] for token, kept in list(zip(ids, mask, strict=True))[1:] if kept]
        assert trained == expected


def test_its_ranks_share_the_rows(loaders: Any, table: Table, tmp_path: Path) -> None:
    path = export(table.folder, "tlfs", tmp_path / "out", pad_id=PAD) / "sft_packed.h5"
    read = loaders("sft_dataset").get_sft_batch_iterator
    seen = [row for rank in (0, 1) for batch, _, _ in read(str(path), 1, rank=rank, world_size=2, infinite=False) for row in batch.tolist()]
    with h5py.File(path) as file:
        assert sorted(seen) == sorted(file["tokens"][:].tolist())


def test_preferences(loaders: Any, tmp_path: Path) -> None:
    rows = [{"prompt": f"Why {n}? é", "chosen": f"Since {n}.", "rejected": "No."} for n in range(130)]
    folder = export(write_lines(tmp_path / "l", "preferences", rows), "tlfs", tmp_path / "out")
    batches = loaders("preference_dataset").get_preference_iterator(
        str(folder / "preferences.jsonl"), 1, 512, shuffle=False, infinite=False
    )
    for row, batch in zip(rows, batches, strict=True):
        for side in ("chosen", "rejected"):
            length = int(batch[f"{side}_len"][0])
            ids, mask = (batch[f"{side}_{key}"][0].tolist()[:length] for key in ("ids", "mask"))
            assert [token for token, kept in zip(ids, mask, strict=True) if kept] == [*row[side].encode(), END]
            assert row["prompt"].encode() in bytes(token for token in ids if token != END)


def test_rl_prompts(loaders: Any, tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {n} + é?", "gold": float(n)} for n in range(130)]
    folder = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "tlfs", tmp_path / "out")
    prompts = loaders("prompt_dataset").get_prompt_iterator(str(folder / "rl_prompts_train.jsonl"), 10, shuffle=False)
    assert [row for batch in islice(prompts, 13) for row in batch] == rows


STEPS, CONTEXT = 10, 256


def losses(loaders: Any, table: Path) -> list[float]:
    """Its model, optimizer and loss on the rows of a file, two at a time."""
    import torch

    torch.manual_seed(0)
    trained = importlib.import_module("src.models.transformer").Transformer(2, 32, CONTEXT, 50_304, 2)
    optimizer = importlib.import_module("src.post_training.optim").configure_optimizer(trained, 1e-2, 0.1)
    found = []
    for tokens, mask, _ in islice(loaders("sft_dataset").get_sft_batch_iterator(str(table), 2, shuffle=False), STEPS):
        logits, _ = trained(tokens)
        loss = importlib.import_module("src.post_training.sft").sft_loss(logits, tokens, mask)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_ten_steps_on_our_table_and_on_its_own(loaders: Any, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of GSM8K through its own script and through ours. GPT-2's tokenizer is the one of the data here, as tiktoken would fetch it."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(real_data / "tokenizers/gpt2/tokenizer.json"))
    encoding = types.SimpleNamespace(encode_ordinary=lambda text: tokenizer.encode(text).ids)
    monkeypatch.setattr(sys.modules["tiktoken"], "get_encoding", lambda name: encoding)
    script = importlib.import_module("scripts.prepare_sft_data")
    rows = [json.loads(line) for line in (real_data / "gsm8k/train.jsonl").read_text("utf-8").splitlines()[:80]]
    examples = [script.encode_chat(script.gsm8k_to_messages(row["question"], row["answer"])) for row in rows]
    assert script.write_packed(examples, CONTEXT, str(tmp_path / "theirs.h5")) > 2 * STEPS
    family = minimal(
        "sft",
        {"gsm8k": domain(jsonl(tmp_path / "gsm8k.jsonl", rows), "gsm8k")},
        tokenizer=str(real_data / "tokenizers/gpt2"),
        template="plain",
        packing={"strategy": "concat", "row_len": CONTEXT, "shuffle": False, "tail": "drop"},
    )
    packed = build(workspace_in(tmp_path, family), "sft_packed")
    ours = export(packed.directory, "tlfs", tmp_path / "ours") / "sft_packed.h5"
    on_ours = losses(loaders, ours)
    assert on_ours == pytest.approx(losses(loaders, tmp_path / "theirs.h5"), rel=1e-6)
    assert on_ours[-1] < on_ours[0]
    with h5py.File(ours, "r+") as file:
        file["loss_mask"][:] = np.roll(file["loss_mask"][:], 1, axis=1)
    assert losses(loaders, ours) != pytest.approx(on_ours, rel=1e-3)
