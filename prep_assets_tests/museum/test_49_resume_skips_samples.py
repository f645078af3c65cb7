"""After a restart the data was shuffled again, so some samples came twice and others never.

Year: 2023 – 2026
Hit: accelerate#2016, PR#4071, ms-swift PR#9658, datasets#7901, transgenic#59 (15 of 20 wrong)
Cost: Epochs that are none.
Stopped by: `ResumableDistributedSampler`: an epoch's order depends on seed and epoch alone
"""

from __future__ import annotations

import pytest


def test_killed_at_every_step_each_sample_comes_once() -> None:
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


def test_a_fresh_shuffle_as_it_was() -> None:
    pytest.importorskip("torch")
    from prep_assets.training import ResumableDistributedSampler

    first, again = (list(ResumableDistributedSampler(range(13), seed=seed)) for seed in (7, 8))
    assert sorted([*first[:6], *again[6:]]) != list(range(13))
