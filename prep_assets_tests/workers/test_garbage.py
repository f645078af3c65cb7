"""Searches for garbage while rows are read."""

from __future__ import annotations

import gc

import pytest

from prep_assets.workers.pool import BETWEEN, rare_collections


def test_they_are_rare_inside_and_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: done.append(name))
    before = gc.get_threshold()
    with rare_collections(), rare_collections():
        assert (gc.get_threshold(), done) == ((BETWEEN, *before[1:]), ["freeze"])
    assert (gc.get_threshold(), done) == (before, ["freeze", "unfreeze"])
