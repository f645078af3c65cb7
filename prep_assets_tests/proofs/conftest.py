"""What the tests of quality share: stores to corrupt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import SAMPLES, all_unchecked, domain, judged, shipped, with_groups, with_others, workspace_in


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """All stores of all families, of at most 60 rows of a domain, bin where tokens are concerned, so that a payload is plain arrays. Only ever copied. That
    every check holds is one of the tests."""
    folder = tmp_path_factory.mktemp("pristine")
    families = shipped("bin")
    few = (SAMPLES / "gsm8k.jsonl").read_text("utf-8").splitlines(keepends=True)[:60]
    (folder / "gsm8k.jsonl").write_text("".join(few), "utf-8")  # and no limit, which would have a domain proven as a whole
    for family in ("sft", "rl"):
        families[family]["domains"]["gsm8k"] = domain(folder / "gsm8k.jsonl", "gsm8k")
    families["rl"]["arithmetic"] = {"n": 60}
    workspace = workspace_in(folder, judged(with_others(with_groups(families, folder), folder)))
    return all_unchecked(workspace)


@pytest.fixture
def stores(pristine: Workspace, tmp_path: Path) -> Workspace:
    """A copy of all stores, for one test to corrupt."""
    shutil.copytree(pristine.configs.parent, tmp_path / "copy", symlinks=True)
    return Workspace(tmp_path / "copy" / "configs", tmp_path / "copy" / "stores")


def spoilable(workspace: Workspace, folder: Path, asset: str) -> Workspace:
    """The stores of one asset copied, for a test to corrupt, and links to those of the others."""
    for store in workspace.stores.iterdir():
        if store.name != asset:
            (folder / store.name).symlink_to(store)
    shutil.copytree(workspace.stores / asset, folder / asset, symlinks=True)
    return Workspace(workspace.configs, folder)
