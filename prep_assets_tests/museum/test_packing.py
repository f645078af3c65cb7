"""Exhibits of packed rows, of their order, and of runs that start again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prep_assets.stores.table import open_stream
from prep_assets_tests.graph.workspaces import refusals
from prep_assets_tests.museum.gallery import ASSISTANT, CHAT, USER, first_run, packed, pairs, said, tokenizer


def test_45_documents_attend_each_other(tmp_path: Path) -> None:
    """A two-dimensional mask of ones disabled the detection of packed rows: documents attended to each other.

    Hit: transformers PR#46634, axolotl PR#3796, torchforge#546, nanoVLM#201, #204, LLaMA-Factory PR#4224
    Stopped by: `row_integrity` proves the borders; `make test-readers` tries trainers' own collators.
    """
    torch = pytest.importorskip("torch")
    from prep_assets.training import PackedDataset, PaddingFree

    stand = packed(tmp_path, [CHAT, CHAT[:2], CHAT[2:]], row_len=128)
    batch = PaddingFree()([PackedDataset(stand.published.directory)[0]])
    ids, lengths = batch["input_ids"][0], batch["cu_seqlens"].diff().tolist()
    assert len(lengths) == 3
    torch.manual_seed(0)
    values = torch.nn.Embedding(int(ids.max()) + 1, 16, dtype=torch.float64)(ids)

    def attended(hidden: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        at = torch.arange(len(hidden))
        allowed = (documents[:, None] == documents[None]) & (at[:, None] >= at[None])
        return torch.nn.functional.scaled_dot_product_attention(hidden[None], hidden[None], hidden[None], allowed)[0]

    expected = torch.cat([attended(part, torch.zeros(len(part))) for part in values.split(lengths)])
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    assert torch.allclose(attended(values, number), expected, atol=1e-12)
    assert not torch.allclose(attended(values, torch.zeros(len(ids))), expected, atol=1e-3)


def test_46_last_token_predicts_the_next_document(tmp_path: Path) -> None:
    """In packed rows a document's last token was trained to predict the next document's first.

    Hit: torchtitan PR#4075, torchtune#1177, profam PR#504
    Stopped by: a document's first token is never a label.
    """
    pytest.importorskip("torch")
    from prep_assets.training import PackedDataset

    folder = tokenizer(tmp_path / "tokenizer", template="{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}")
    chats = [[said(ASSISTANT, f"I am number {number}."), said(USER, "Good.")] for number in range(6)]
    data = PackedDataset(packed(tmp_path, chats, tokenizer=folder, row_len=64).published.directory)
    firsts = 0
    for row in range(len(data)):
        item = {key: value.numpy() for key, value in data[row].items()}
        begins = np.concatenate([[0], np.cumsum(item["seq_lengths"])[:-1]])
        firsts += len(begins)
        assert (item["labels"][begins] == -100).all()
        assert (item["position_ids"][begins] == 0).all()
    assert firsts == len(chats) > len(data)


def test_47_shuffle_of_one(tmp_path: Path) -> None:
    """`local_shuffle` shuffled one document at a time, which shuffles nothing.

    Hit: dolma#139
    Stopped by: a packed table's order is that of the seed.
    """
    chats = [[said(USER, f"What is {number} + 1?"), said(ASSISTANT, f"It is {number + 1}.")] for number in range(400)]
    correlation = {}
    for shuffle in (True, False):
        stand = packed(tmp_path / str(shuffle), chats, row_len=256, packing={"strategy": "simple", "shuffle": shuffle})
        order = np.asarray(open_stream(stand.published.directory, "sft_packed").pieces.fields["record"])
        assert sorted(order) == list(range(len(chats)))
        correlation[shuffle] = np.corrcoef(order, np.arange(len(order)))[0, 1]  # Spearman's, with the order of the source
    assert abs(correlation[True]) < 0.2
    assert correlation[False] > 0.99


def test_48_pairs_equal_after_truncation(tmp_path: Path) -> None:
    """Pairs became equal when both answers were cut, or the answer's border was guessed from text.

    Hit: OpenRLHF#1311, trl PR#2209, PR#6960, trl#1858
    Stopped by: `pair_sanity`; a pair that is too long is rejected.
    """
    same = "one two three four five six seven eight nine ten " * 8
    rows = [("Count.", same + "eleven.", same + "twelve."), ("What is 2 + 2?", "It is 4.", "It is 5.")]
    cut = pairs(tmp_path / "cut", rows, preprocessing={"max_seq_len": 64})
    assert [each.reason for each in refusals(cut.published)] == ["too_long"]
    stand = pairs(tmp_path / "whole", rows)
    for chosen, rejected in zip(stand.rows("chosen"), stand.rows("rejected"), strict=True):
        start, other = first_run(chosen.mask)[0], first_run(rejected.mask)[0]
        assert start == other and np.array_equal(chosen.ids[:start], rejected.ids[:other])
        assert not np.array_equal(chosen.ids, rejected.ids)


def test_49_resume_skips_samples() -> None:
    """After a restart the data was reshuffled: some samples came twice, others never.

    Hit: accelerate#2016, PR#4071, ms-swift PR#9658, datasets#7901, transgenic#59 (15 of 20 wrong)
    Stopped by: `ResumableDistributedSampler`: an epoch's order depends on seed and epoch alone.
    """
    pytest.importorskip("torch")
    from prep_assets.training import ResumableDistributedSampler

    samples, epochs = list(range(13)), 2
    whole = [list(ResumableDistributedSampler(samples, start_epoch=epoch, seed=7)) for epoch in range(epochs)]
    assert [sorted(epoch) for epoch in whole] == [samples] * epochs and whole[0] != whole[1]
    for epoch in range(epochs):
        for killed_at in range(len(samples)):
            before = ResumableDistributedSampler(samples, start_epoch=epoch, seed=7)
            seen = []
            for at, sample in enumerate(before):
                if at == killed_at:
                    break
                seen.append(sample)
                before.consume()
            after = ResumableDistributedSampler(samples, seed=7)
            after.load_state_dict(before.state_dict())
            assert [*seen, *after] == whole[epoch]
    shuffled_anew = ResumableDistributedSampler(samples, seed=8)
    assert sorted([*whole[0][:6], *list(shuffled_anew)[6:]]) != samples, "the historical fault"
