"""Searches for garbage while rows are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from prep_assets.workers.garbage import BETWEEN, FROZEN_AT_START, rare_collections


@pytest.fixture
def thawed() -> Iterator[None]:
    """A process that froze nothing, and afterwards one that froze all, as the tests do (see conftest.py)."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_they_are_rare_inside_and_as_before_afterwards(thawed: None) -> None:
    before = gc.get_threshold()
    with rare_collections(), rare_collections():
        assert (gc.get_threshold()[0], gc.get_freeze_count() > FROZEN_AT_START) == (BETWEEN, True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_what_a_program_froze_itself_stays_frozen(thawed: None) -> None:
    gc.freeze()
    with rare_collections():
        pass
    assert gc.get_freeze_count() > FROZEN_AT_START
