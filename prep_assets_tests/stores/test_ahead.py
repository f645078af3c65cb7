"""Reading ahead: the same items in the same order, errors with their message, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import SourceError
from prep_assets.stores.arrays import prefetch


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"reads ahead"}


@given(st.lists(st.one_of(st.none(), st.integers())), st.integers(1, 4))
def test_the_same_items_in_the_same_order(items: list[int | None], depth: int) -> None:
    assert list(prefetch(iter(items), depth=depth)) == items
    assert list(prefetch(prefetch(iter(items), depth=depth))) == items
    assert threads() == set()


def test_it_makes_only_a_few_items_ahead() -> None:
    made: list[int] = []

    def counting() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            yield i

    with closing(prefetch(counting(), depth=2)) as items:
        assert next(items) == 0
        time.sleep(0.3)
        assert len(made) <= 4  # one used, two queued, one in hand


def test_an_error_comes_after_the_items_before_it_with_its_message() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise SourceError("a.jsonl: the file ends early")

    items = prefetch(prefetch(broken()))
    assert next(items) == 1
    with pytest.raises(SourceError, match=r"^a\.jsonl: the file ends early$"):
        next(items)
    assert threads() == set()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_whoever_stops_using_it_ends_the_threads_and_closes_the_source(stop: type[BaseException]) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    with pytest.raises(stop), closing(prefetch(prefetch(endless()))) as items:
        for _ in items:
            raise stop
    assert closed.is_set()
    assert threads() == set()
