"""Megatron-core's GPTDataset on our pair: the samples it trains on are our stream."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import Stream, some
from prep_assets_tests.extensions.exports.readers import reader

pytestmark = pytest.mark.readers
LENGTH = 16


def gpt_dataset(prefix: Path, cache: Path) -> Any:
    """All documents, one epoch, samples of `LENGTH` tokens."""
    import numpy as np

    module, indexed = reader("megatron.core.datasets.gpt_dataset"), reader("megatron.core.datasets.indexed_dataset")
    split = reader("megatron.core.datasets.utils").Split.train
    config = module.GPTDatasetConfig(
        random_seed=1,
        sequence_length=LENGTH,
        blend=([str(prefix)], None),
        split="1",
        path_to_cache=str(cache),
        tokenizer=SimpleNamespace(vocab_size=100, eod=98, pad=97, unique_identifiers={"name": "numbers"}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    data = indexed.IndexedDataset(str(prefix))
    return module.GPTDataset(data, str(prefix), np.arange(len(data), dtype=np.int32), None, split, config)


def test_samples_are_windows_of_the_documents_in_its_order(text: Stream, tmp_path: Path) -> None:
    out = export(text.folder, "megatron", tmp_path / "out", vocab_size=100)
    dataset = gpt_dataset(next(out.glob("*.bin")).with_suffix(""), tmp_path / "cache")
    assert sorted(dataset.document_index.tolist()) == list(range(len(text.documents)))
    stream = [token for number in dataset.document_index.tolist() for token in text.documents[number][0]]
    assert len(dataset) == (len(stream) - 1) // LENGTH
    for place in some(len(dataset)):
        sample, begin = dataset[place], int(dataset.shuffle_index[place]) * LENGTH
        assert sample["tokens"].tolist() == stream[begin : begin + LENGTH]
        assert sample["labels"].tolist() == stream[begin + 1 : begin + LENGTH + 1]
        assert sample["loss_mask"].tolist() == [1.0] * LENGTH
