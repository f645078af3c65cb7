"""The sampler: AstrAI's vectors, every sample exactly once, and going on where a run stopped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.training import ResumableDistributedSampler
from prep_assets_tests.effort import examples

EPOCH_0, EPOCH_1 = [2, 6, 1, 8, 4, 5, 0, 9, 3, 7], [8, 4, 9, 0, 5, 1, 6, 7, 2, 3]


def sampler(n: int, rank: int = 0, ranks: int = 1, **options: Any) -> ResumableDistributedSampler:
    return ResumableDistributedSampler(range(n), rank=rank, world_size=ranks, **options)


def test_two_epochs() -> None:
    found = sampler(10)
    assert (list(found), list(found)) == (EPOCH_0, EPOCH_1)
    assert len(found) == 10


def test_resume_at_an_iteration() -> None:
    found = sampler(10, start_epoch=1, start_iter=4)
    assert len(found) == 6
    assert list(found) == [5, 1, 6, 7, 2, 3]
    assert len(found) == 10


@pytest.mark.parametrize(("n", "ranks", "expected"), [(10, 4, [[0, 4], [1, 5], [2, 6], [3, 7]]), (3, 4, [[], [], [], []])])
def test_drop_last(n: int, ranks: int, expected: list[list[int]]) -> None:
    samplers = [sampler(n, rank, ranks, shuffle=False, drop_last=True) for rank in range(ranks)]
    assert [len(each) for each in samplers] == [len(each) for each in expected]
    assert [list(each) for each in samplers] == expected


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 40), st.integers(1, 8), st.integers(0, 3), st.booleans())
def test_every_sample_exactly_once_over_all_ranks(n: int, ranks: int, epoch: int, shuffle: bool) -> None:
    samplers = [sampler(n, rank, ranks, pad=False, shuffle=shuffle, start_epoch=epoch) for rank in range(ranks)]
    lengths = [len(each) for each in samplers]
    parts = [list(each) for each in samplers]
    assert sorted(i for part in parts for i in part) == list(range(n))
    assert lengths == [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 40), st.integers(1, 8))
def test_padding_repeats_the_fewest_samples(n: int, ranks: int) -> None:
    parts = [list(sampler(n, rank, ranks)) for rank in range(ranks)]
    each = -(-n // ranks)
    assert [len(part) for part in parts] == [each] * ranks
    handed_out = [parts[rank][turn] for turn in range(each) for rank in range(ranks)]
    assert sorted(handed_out[:n]) == list(range(n))
    assert handed_out[n:] == (handed_out[:n] * ranks)[: each * ranks - n]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 8), st.integers(1, 4), st.integers(0, 12), st.integers(0, 5))
def test_going_on_with_other_ranks_trains_each_sample_once(n: int, before: int, after: int, batch: int, batches: int, epoch: int) -> None:
    """Stop after some batches on some ranks, go on with other ranks: together exactly one epoch."""
    order = list(sampler(n, start_epoch=epoch))
    old = [sampler(n, rank, before, batch_size=batch, pad=False, start_epoch=epoch) for rank in range(before)]
    trained = [i for each in old for i in list(each)[: batches * batch]]
    for each in old:
        each.consume(batches)
    states = [each.state_dict() for each in old]
    assert all(state == states[0] for state in states)
    new = [sampler(n, rank, after, pad=False) for rank in range(after)]
    for each in new:
        each.load_state_dict(states[0])
    rest = [i for each in new for i in each]
    if states[0]["epoch"] == epoch:
        assert sorted(trained + rest) == sorted(order)
    else:
        assert sorted(trained) == sorted(order) == sorted(rest)


@pytest.mark.parametrize(
    ("workers", "stop"),
    [*((0, stop) for stop in range(1, 12)), *(pytest.param(2, stop, marks=[] if stop == 3 else pytest.mark.soak) for stop in (1, 3, 5))],
)
def test_resume_counts_trained_batches_not_fetched_ones(workers: int, stop: int) -> None:
    """An uninterrupted run against one that is stopped after `stop` batches, while workers have fetched ahead. n = 10 is no multiple of 4."""

    def train(feed: ResumableDistributedSampler, batches: int) -> list[list[int]]:
        found: list[list[int]] = []
        while len(found) < batches:
            for batch in DataLoader(range(10), batch_size=4, sampler=feed, num_workers=workers):  # type: ignore[arg-type]
                found.append(batch.tolist())
                feed.consume()
                if len(found) == batches:
                    break
        return found

    whole = train(sampler(10, batch_size=4), 12)
    first = sampler(10, batch_size=4)
    begun = train(first, stop)
    second = sampler(10, batch_size=4)
    second.load_state_dict(first.state_dict())
    assert begun + train(second, 12 - stop) == whole
    assert sorted(i for batch in whole[:3] for i in batch) == list(range(10))


def test_a_loop_that_breaks_off_goes_on_where_it_stopped() -> None:
    """Workers have fetched the whole epoch when the loop ends; its untrained batches come again."""
    feed = sampler(10, batch_size=2)
    for batch in DataLoader(range(10), batch_size=2, sampler=feed, num_workers=1, prefetch_factor=8):  # type: ignore[arg-type]
        assert batch.tolist() == EPOCH_0[:2]
        feed.consume()
        break
    assert (len(feed), list(feed)) == (8, EPOCH_0[2:])


@pytest.mark.parametrize(("n", "ranks", "batch"), [(3, 1, 4), (5, 2, 3), (4, 2, 2), (1, 3, 1)])
def test_an_epoch_of_one_batch_is_not_skipped(n: int, ranks: int, batch: int) -> None:
    feed = sampler(n, 0, ranks, batch_size=batch)
    epochs = []
    for _ in range(3):
        for found in DataLoader(range(n), batch_size=batch, sampler=feed):  # type: ignore[arg-type]
            epochs.append(found.tolist())
            feed.consume()
    assert epochs == [list(sampler(n, 0, ranks, start_epoch=epoch)) for epoch in range(3)]


def test_a_loader_that_drops_its_last_batch_begins_the_next_epoch() -> None:
    feed = sampler(10, batch_size=4)
    seen = []
    for _ in range(2):
        for batch in DataLoader(range(10), batch_size=4, sampler=feed, drop_last=True):  # type: ignore[arg-type]
            seen.append(batch.tolist())
            feed.consume()
    assert seen == [EPOCH_0[:4], EPOCH_0[4:8], EPOCH_1[:4], EPOCH_1[4:8]]


def test_set_epoch() -> None:
    feed = sampler(10, batch_size=2)
    feed.consume()
    feed.set_epoch(0)
    assert list(feed) == EPOCH_0[2:]
    feed.set_epoch(1)
    assert list(feed) == EPOCH_1


def test_a_pass_that_nobody_counted_has_no_position() -> None:
    feed = sampler(4)
    list(feed)
    with pytest.raises(PrepAssetsError, match="consume"):
        feed.state_dict()


@pytest.mark.parametrize("change", [{"n": 11}, {"seed": 1}, {"shuffle": False}])
def test_a_checkpoint_of_another_order_is_refused(change: dict[str, Any]) -> None:
    state = sampler(10).state_dict()
    with pytest.raises(ConfigError, match=f"{next(iter(change))} was"):
        sampler(change.get("n", 10), **{key: value for key, value in change.items() if key != "n"}).load_state_dict(state)


@pytest.mark.parametrize("options", [{"rank": 1}, {"rank": 2, "world_size": 2}, {"start_iter": 12}, {"batch_size": 0}])
def test_bad_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ResumableDistributedSampler(range(10), **options)


@pytest.mark.parametrize(("n", "ranks", "batch"), [(5, 2, 2), (5, 2, 1), (1, 3, 4), (9, 4, 2), (7, 3, 2)])
def test_without_padding_the_state_of_rank_0_is_right_for_all(n: int, ranks: int, batch: int) -> None:
    """Equal wherever equally many batches were counted; a rank with a batch less is behind rank 0 only at the end of an epoch."""
    samplers = [sampler(n, rank, ranks, pad=False, batch_size=batch) for rank in range(ranks)]
    counts = [-(-len(each) // batch) for each in samplers]
    assert counts[0] == max(counts)
    states: list[list[dict[str, Any]]] = [[] for _ in samplers]
    for each, seen, count in zip(samplers, states, counts, strict=True):
        passed = iter(each)
        for _ in range(count):
            next(passed)
            each.consume()
            seen.append(each.state_dict())
    assert all(seen == states[0][: len(seen)] for seen in states)
    assert states[0][-1] == {**sampler(n).state_dict(), "epoch": 1}


def test_a_rank_without_samples_has_a_position() -> None:
    first, second = (sampler(1, rank, 2, pad=False) for rank in range(2))
    for _ in first:
        first.consume()
    assert list(second) == []
    assert second.state_dict() == first.state_dict()
    assert len(second) == 0
    assert list(first) == [0]
