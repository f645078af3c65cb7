"""Stores of all four families, built once by Dagster from rows of the shipped samples."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from prep_assets_tests.extensions.dagster.runs import CONFIGS, DOMAINS, run
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS

FEEDS = {above for asset in SHIPPED_ASSETS.values() for _, input_asset in asset.inputs if (above := input_asset.name) in SHIPPED_ASSETS}
"""What another asset is made from."""


@dataclass(frozen=True)
class Everything:
    """Stores and the history of the runs that built them. Read only: tests that build use `built`."""

    stores: Path
    instance: dg.DagsterInstance


@pytest.fixture(scope="session", autouse=True)
def unstamped() -> Iterator[None]:
    """Databases in memory do without the number of Dagster's last migration: it takes longer to write than the tables, and nobody reads it."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("event_log", "runs"):
            patch.setattr(f"dagster._core.storage.{kind}.in_memory.stamp_alembic_rev", lambda config, connection: None)
        yield


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration that the definitions were loaded with."""
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(CONFIGS))


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    """All assets, each family by one request for what comes last in it."""
    stores = tmp_path_factory.mktemp("stores")
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("PREP_ASSETS_CONFIG_DIR", str(CONFIGS))
        patch.setenv("PREP_ASSETS_STORE_DIR", str(stores))
        for last in (name for name, asset in SHIPPED_ASSETS.items() if not asset.partitioned and name not in FEEDS):
            assert run(instance, last).success
        assert run(instance, "pretrain_raw", "pretrain_tokens", between=DOMAINS["pretrain"]).success
        patch.undo()
        yield Everything(stores, instance)


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of stores, which every run of the test uses."""
    folder = tmp_path / "stores"
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(folder))
    return folder


@pytest.fixture
def built(stores: Path, everything: Everything) -> Path:
    """A copy of all stores, which every run of the test uses; its instance knows of nothing."""
    shutil.copytree(everything.stores, stores, symlinks=True)
    return stores


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance without history."""
    with dg.DagsterInstance.ephemeral() as fresh:
        yield fresh
