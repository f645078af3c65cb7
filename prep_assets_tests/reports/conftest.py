"""Stores of all families and stores of hostile records, built once; tests leave them as they are."""

from __future__ import annotations

import pytest

from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build_all, shipped, with_groups, workspace_in
from prep_assets_tests.reports.hostile import hostile_workspace

Stores = dict[tuple[str, str], Published]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Stores]:
    """Every family, with scored groups."""
    folder = tmp_path_factory.mktemp("families")
    families = with_groups(shipped(), folder, 30)
    families["rl"]["arithmetic"] = {"n": 40}
    for each in (each for options in families.values() for each in options["domains"].values()):
        each["max_items"] = 30
    workspace = workspace_in(folder, families)
    return workspace, build_all(workspace)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Published]]:
    """SFT stores of hostile records, by asset."""
    workspace = hostile_workspace(tmp_path_factory.mktemp("hostile"))
    return workspace, {asset: store for (asset, _), store in build_all(workspace, ["sft"]).items()}
