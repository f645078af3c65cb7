"""Megatron-Bridge's `GPTSFTPackedDataset` on our rows: inputs, labels, mask and both kinds of borders are those of the store.

The published package reads rows as NumPy objects, its main branch from Parquet; the collator is the same.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prep_assets import export
from prep_assets.training import PackedDataset
from prep_assets_tests.extensions.exports.readers import bridge
from prep_assets_tests.extensions.topology.conftest import ALIGN, ROW_LEN, Aligned
from prep_assets_tests.extensions.topology.test_formats import EOS, rows_in

pytestmark = pytest.mark.readers


def test_its_batch_is_the_rows_of_the_store(aligned: Aligned, tmp_path: Path) -> None:
    out = export(aligned.folder, "aligned_parquet", tmp_path / "out", eos_id=EOS)
    rows = rows_in(out)
    objects = np.empty(len(rows), object)
    objects[:] = rows
    np.save(tmp_path / "rows.npy", objects)
    dataset = bridge().GPTSFTPackedDataset(
        file_path=str(tmp_path / "rows.npy"),
        tokenizer=SimpleNamespace(eos_id=EOS, bos_id=0, eod=EOS),
        pad_seq_to_mult=ALIGN,
        pack_metadata_file_path=out / "packed_metadata.json",
        max_seq_length=ROW_LEN,
        prompt_template="{input} {output}",
        label_key="output",
        truncation_field="input",
        answer_only_loss=True,
    )
    batch = dataset.collate_fn([dataset[number] for number in range(len(dataset))])
    assert batch["tokens"].shape == (len(rows), ROW_LEN)
    for number, row in enumerate(PackedDataset(aligned.folder)):
        places, borders = torch.zeros(ROW_LEN, dtype=torch.bool), row["cu_seqlens_padded"].tolist()
        for begin, length in zip(borders[:-1], row["seq_lengths"].tolist(), strict=True):
            places[begin : begin + length] = True
        tokens, trained = batch["tokens"][number], batch["loss_mask"][number] > 0
        assert torch.equal(tokens[places], row["input_ids"][places])
        assert (tokens[~places] == EOS).all()
        assert torch.equal(torch.cat([torch.tensor([False]), trained[:-1]]), row["labels"] != -100)
        assert torch.equal(batch["labels"][number][trained], row["labels"][row["labels"] != -100])
        assert torch.equal(batch["position_ids"][number], row["position_ids"])
        count = len(borders)
        assert batch["cu_seqlens"][number][:count].tolist() == borders
        assert (batch["cu_seqlens"][number][count:] == -1).all()  # it adds no border of its own: ours end where the row does
        assert batch["cu_seqlens_unpadded"][number][:count].tolist() == row["cu_seqlens"].tolist()
