"""What packing must not change: each document in a packed row has the logits and the loss that it has alone.

A tiny random transformer is given only what an export or a collator holds. The control, the same rows without their borders, must differ.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from prep_assets import export
from prep_assets.training import DatasetFactory, PackedDataset, PaddingFree
from prep_assets_tests.extensions.exports.readers import reader as trainers_own
from prep_assets_tests.training.conftest import LENGTHS, ROW_LEN

VOCABULARY, WIDTH, HEADS = 41, 16, 2
Rows = list[tuple[Tensor, Tensor, Tensor]]
"""For each row: tokens, positions, and the number of the document at each place (0 for padding)."""


class Tiny(nn.Module):
    """Two layers of causal attention with learnt positions; attention only inside the same document."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(ROW_LEN + 1, WIDTH)
        self.project = nn.ModuleList([nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2)])
        self.mix = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        """Logits [T, V] of one row."""
        at = torch.arange(len(tokens))
        allowed = (documents[:, None] == documents[None]) & (at[:, None] >= at[None])
        hidden = self.tokens(tokens) + self.positions(positions)
        for project, mix in zip(self.project, self.mix, strict=True):
            query, key, value = (part.view(len(tokens), HEADS, -1).transpose(0, 1) for part in project(hidden).chunk(3, -1))
            hidden = hidden + mix(
                nn.functional.scaled_dot_product_attention(query, key, value, allowed).transpose(0, 1).reshape(len(tokens), -1)
            )
        return self.head(torch.tanh(hidden))  # type: ignore[no-any-return]


def from_positions(positions: Tensor) -> Tensor:
    """A document begins wherever positions begin at 0 again."""
    return (positions == 0).cumsum(0)


def from_packed_data_set(table: Path, out: Path) -> Rows:
    return [(item["input_ids"], item["position_ids"], from_positions(item["position_ids"])) for item in PackedDataset(table)]


def from_padding_free(table: Path, out: Path) -> Rows:
    rows = []
    for item in PackedDataset(table):
        batch = PaddingFree()([item])
        lengths = batch["cu_seqlens"].diff()
        rows.append((batch["input_ids"][0], batch["position_ids"][0], torch.repeat_interleave(torch.arange(len(lengths)), lengths)))
    return rows


def from_trl(table: Path, out: Path) -> Rows:
    found = trainers_own("datasets").load_from_disk(str(export(table, "hf_arrow", out)))
    trainer = trainers_own("trl.trainer.sft_trainer")
    collator = trainer.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    batches = [collator([row]) for row in found]
    return [(batch["input_ids"][0], batch["position_ids"][0], batch["seq_idx"][0]) for batch in batches]


def from_llama_factory(table: Path, out: Path) -> Rows:
    found = trainers_own("datasets").load_from_disk(str(export(table, "hf_arrow", out, layout="llama_factory")))["train"]
    return [tuple(torch.tensor(row[key]) for key in ("input_ids", "position_ids", "attention_mask")) for row in found]  # type: ignore[misc]


def from_parquet(table: Path, out: Path) -> Rows:
    rows = []
    for row in pq.read_table(export(table, "packed_parquet", out) / "splits" / "train").to_pylist():
        starts = torch.tensor(row["seq_start_id"])
        at = torch.arange(len(row["input_ids"]))
        number = torch.searchsorted(starts, at, right=True) - 1
        rows.append((torch.tensor(row["input_ids"]), at - starts[number], number))
    return rows


def from_astrai(table: Path, out: Path) -> Rows:
    dataset = DatasetFactory.load("sft", export(table, "astrai", out), ROW_LEN)
    return [(item["input_ids"], item["position_ids"], from_positions(item["position_ids"])) for item in dataset]


def from_modellink(table: Path, out: Path) -> Rows:
    from prep_assets import load

    store = load(export(table, "megatron", out))
    rows = []
    for row in range(store.num_records):
        tokens, numbers = (torch.from_numpy(store.fetch_record(row, key).astype("int64")) for key in ("input_ids", "attention_mask"))
        at = torch.arange(len(tokens))
        begins = torch.where(numbers.diff(prepend=torch.tensor([-1])) != 0, at, 0).cummax(0).values
        rows.append((tokens, at - begins, numbers))
    return rows


OTHERS = [pytest.param(read, marks=pytest.mark.readers) for read in (from_trl, from_llama_factory)]
READERS = [from_packed_data_set, from_padding_free, *OTHERS, from_parquet, from_astrai, from_modellink]


@torch.no_grad()
def largest_difference(rows: Rows) -> float:
    """Between the logits of each document in its row and alone."""
    model, worst = Tiny(), 0.0
    for (tokens, positions, numbers), lengths in zip(rows, LENGTHS, strict=True):
        logits, at = model(tokens, positions, numbers), 0
        for length in lengths:
            alone = model(tokens[at : at + length], torch.arange(length), torch.zeros(length))
            worst = max(worst, float((logits[at : at + length] - alone).abs().max()))
            at += length
    return worst


@pytest.mark.parametrize("reader", READERS)
def test_documents_do_not_see_each_other(reader: Callable[[Path, Path], Rows], table: Path, tmp_path: Path) -> None:
    assert largest_difference(reader(table, tmp_path / "out")) < 1e-5


def test_the_control_without_borders_differs(table: Path) -> None:
    naive = [(item["input_ids"], torch.arange(ROW_LEN), torch.zeros(ROW_LEN)) for item in PackedDataset(table)]
    positions_only = [(item["input_ids"], item["position_ids"], torch.zeros(ROW_LEN)) for item in PackedDataset(table)]
    assert largest_difference(naive) > 1e-2
    assert largest_difference(positions_only) > 1e-2


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Summed over trained tokens; unshifted labels."""
    return nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=-100, reduction="sum")


@torch.no_grad()
def test_packed_loss_is_unpacked_loss(table: Path) -> None:
    model, items = Tiny(), list(PackedDataset(table))
    rows = [loss(model(item["input_ids"], item["position_ids"], from_positions(item["position_ids"])), item["labels"]) for item in items]
    batch = PaddingFree()(items)
    lengths = batch["cu_seqlens"].diff()
    flat = loss(
        model(batch["input_ids"][0], batch["position_ids"][0], torch.repeat_interleave(torch.arange(len(lengths)), lengths)),
        batch["labels"][0],
    )
    alone = torch.zeros(())
    for item, row in zip(items, LENGTHS, strict=True):
        at = 0
        for length in row:
            tokens = item["input_ids"][at : at + length]
            alone += loss(model(tokens, torch.arange(length), torch.zeros(length)), tokens)
            at += length
    assert torch.stack(rows).sum().item() == pytest.approx(alone.item(), rel=1e-4)
    assert flat.item() == pytest.approx(alone.item(), rel=1e-4)
