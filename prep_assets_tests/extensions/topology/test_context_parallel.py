"""Two ranks of context parallelism compute the loss of one, and that of each document alone; with borders that are off by one they do not.

Ranks take chunks of each document as Transformer Engine's ``thd_get_partitioned_indices`` gives them to them: of 2 × CP chunks, the one of their number
and the one as far from the end, so that causal attention costs all of them the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from prep_assets import export
from prep_assets.training import PackedDataset
from prep_assets_tests.extensions.topology.conftest import PAD, ROW_LEN, Aligned

WIDTH, HEADS, VOCABULARY = 16, 2, 100
Row = tuple[Tensor, Tensor, Tensor, Tensor]
"""Inputs, the next token of each where it is trained (-100 elsewhere), positions, and the borders of documents, padding included."""


class Tiny(nn.Module):
    """Two layers of causal attention with learnt positions. Queries may be of other places than keys."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2 * ROW_LEN, WIDTH)
        self.project = nn.ModuleList([nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2)])
        self.mix = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def losses(self, row: Row, ranks: list[Tensor]) -> Tensor:
        """The summed loss of ranks that have some places each; keys and values go around."""
        tokens, labels, positions, borders = row
        hidden = [self.tokens(tokens[places]) + self.positions(positions[places]) for places in ranks]
        everywhere = torch.cat(ranks)
        for project, mix in zip(self.project, self.mix, strict=True):
            parts = [project(own).view(len(own), 3, HEADS, -1).permute(1, 2, 0, 3) for own in hidden]
            keys, values = (torch.cat([part[which] for part in parts], 1) for which in (1, 2))
            for rank, places in enumerate(ranks):
                document, of_keys = (torch.searchsorted(borders, of, right=True) for of in (places, everywhere))
                allowed = (document[:, None] == of_keys) & (places[:, None] >= everywhere)
                seen = nn.functional.scaled_dot_product_attention(parts[rank][0], keys, values, allowed)
                hidden[rank] = hidden[rank] + mix(seen.transpose(0, 1).reshape(len(places), -1))
        sums = [
            nn.functional.cross_entropy(self.head(torch.tanh(own)), labels[places], ignore_index=-100, reduction="sum")
            for own, places in zip(hidden, ranks, strict=True)
        ]
        return torch.stack(sums).sum()


def chunks(borders: Tensor, total: int, ranks: int) -> list[Tensor]:
    """The places of each rank."""
    per_rank = [border // ranks for border in borders.tolist()]
    found = []
    for rank in range(ranks):
        places = []
        for place in range(total // ranks):
            document = max(number for number in range(len(per_rank) - 1) if per_rank[number] <= place)
            half, inside = (per_rank[document + 1] - per_rank[document]) // 2, place - per_rank[document]
            chunk = rank if inside < half else (ranks - 1) * 2 - rank
            places.append(inside + per_rank[document] * ranks + half * chunk)
        found.append(torch.tensor(places, dtype=torch.long))
    return found


def shifted(labels: Tensor, borders: Tensor) -> Tensor:
    """Labels at the inputs that predict them; none at the last place of a document."""
    following = torch.cat([labels[1:], torch.tensor([-100])])
    following[borders[1:] - 1] = -100
    return following


def from_data_set(table: Path, out: Path) -> Iterator[Row]:
    for item in PackedDataset(table):
        borders = item["cu_seqlens_padded"].long()
        yield item["input_ids"], shifted(item["labels"], borders), item["position_ids"], borders


def from_parquet(table: Path, out: Path) -> Iterator[Row]:
    """As Megatron-Bridge collates it: of each document all tokens but the last are inputs."""
    for row in pq.read_table(export(table, "aligned_parquet", out, eos_id=PAD) / "splits" / "train").to_pylist():
        ids, mask, ends = np.array(row["input_ids"]), np.array(row["loss_mask"]), [*row["seq_start_id"], len(row["input_ids"])]
        parts = [slice(begin, end - 1) for begin, end in pairwise(ends)]
        targets = np.concatenate([np.where(mask[part], np.roll(ids, -1)[part], -100) for part in parts])
        lengths = [part.stop - part.start for part in parts]
        yield (
            torch.from_numpy(np.concatenate([ids[part] for part in parts])),
            torch.from_numpy(targets),
            torch.cat([torch.arange(length) for length in lengths]),
            torch.tensor([0, *lengths]).cumsum(0),
        )


@torch.no_grad()
def alone(model: Tiny, aligned: Aligned) -> list[float]:
    """The loss of the documents of each row, one by one and without padding."""
    sums = []
    for row in aligned.rows:
        total = 0.0
        for tokens, mask in row:
            ids = torch.tensor(tokens)
            labels = torch.where(torch.tensor(mask) > 0, ids, -100)
            borders = torch.tensor([0, len(ids)])
            whole = (ids, shifted(labels, borders), torch.arange(len(ids)), borders)
            total += float(model.losses(whole, [torch.arange(len(ids))]))
        sums.append(total)
    return sums


@torch.no_grad()
@pytest.mark.parametrize("read", [from_data_set, from_parquet])
def test_two_ranks_have_the_loss_of_one(read, aligned: Aligned, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model, wanted = Tiny(), alone(Tiny(), aligned)
    assert sum(wanted) > 100
    for row, expected in zip(read(aligned.folder, tmp_path / "out"), wanted, strict=True):
        assert int(row[3][-1]) == len(row[0]) == ROW_LEN
        ranks = chunks(row[3], ROW_LEN, 2)
        assert sorted(torch.cat(ranks).tolist()) == list(range(ROW_LEN))
        for places in ([torch.arange(ROW_LEN)], ranks):
            assert float(model.losses(row, places)) == pytest.approx(expected, rel=1e-5, abs=1e-4)


@torch.no_grad()
def test_borders_that_are_off_by_one_give_another(aligned: Aligned, tmp_path: Path) -> None:
    """Each document of one place less, as Megatron-Bridge has them where stored lengths, not inputs, are multiples."""
    model, differ, rows = Tiny(), 0, 0
    for row, expected in zip(from_data_set(aligned.folder, tmp_path), alone(Tiny(), aligned), strict=True):
        tokens, labels, positions, borders = row
        kept = torch.cat([torch.arange(int(begin), int(end) - 1) for begin, end in pairwise(borders)])
        fewer = borders - torch.arange(len(borders))
        wrong = (tokens[kept], labels[kept], positions[kept], fewer)
        total = len(kept) - len(kept) % 2
        ranks = chunks(fewer, total, 2)
        rows += 1
        differ += sorted(torch.cat(ranks).tolist()) != list(range(len(kept)))
        differ += abs(float(model.losses(wrong, ranks)) - expected) > 1e-3
    assert differ >= 1.5 * rows


@torch.no_grad()
def test_without_padding_between_documents_ranks_mix_them(aligned: Aligned) -> None:
    """The dense rows of the store, split at the borders of tokens."""
    model, differ = Tiny(), 0
    wanted = alone(Tiny(), aligned)
    for row, expected in zip(aligned.rows, wanted, strict=True):
        if sum(len(tokens) for tokens, _ in row) < 2:
            continue
        ids = torch.tensor([token for tokens, _ in row for token in tokens])
        labels = torch.tensor([token if mask else -100 for tokens, masks in row for token, mask in zip(tokens, masks, strict=True)])
        borders = torch.tensor([0, *(len(tokens) for tokens, _ in row)]).cumsum(0)
        positions = torch.cat([torch.arange(len(tokens)) for tokens, _ in row])
        ranks = chunks(borders, len(ids) - len(ids) % 2, 2)
        differ += abs(float(model.losses((ids, shifted(labels, borders), positions, borders), ranks)) - expected) > 1e-3
    assert differ > len(aligned.rows) / 3
