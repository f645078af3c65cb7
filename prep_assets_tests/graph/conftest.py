"""What the tests of pipelines share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.exported import build_exports
from prep_assets_tests.graph.workspaces import build_all, copy_of, shipped, workspace_in

Make = Callable[..., Workspace]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(families, name="")`: a workspace with these configurations, in a folder of this test."""

    def inside(families: dict[str, Any], name: str = "here") -> Workspace:
        return workspace_in(tmp_path / name, families)

    return inside


@pytest.fixture(scope="session", params=["h5", "bin"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """All stores of all families from the shipped samples, in one storage format. Tests only read them."""
    if request.param == "h5":
        return copy_of(request.getfixturevalue("built_h5"), tmp_path_factory.mktemp("built_h5") / "copy")
    workspace = workspace_in(tmp_path_factory.mktemp(f"built_{request.param}"), shipped(request.param))
    build_all(workspace)
    return workspace


@pytest.fixture(scope="session")
def built_h5(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same in h5, to be copied and never opened."""
    workspace = workspace_in(tmp_path_factory.mktemp("built"), shipped())
    build_all(workspace)
    return workspace


@pytest.fixture(scope="session")
def exported(built_h5: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Every fixed asset and every export, built. Tests only read it."""
    return build_exports(built_h5, tmp_path_factory.mktemp("exports") / "made")


@pytest.fixture
def copied(built_h5: Workspace, tmp_path: Path) -> Workspace:
    """A copy of everything, for one test to change."""
    return copy_of(built_h5, tmp_path / "copy")
