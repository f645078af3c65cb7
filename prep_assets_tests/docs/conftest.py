"""The stores that the snippets on the pages open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.graph.workspaces import build_all, shipped, workspace_in


def as_shipped(storage_format: str) -> dict[str, dict[str, Any]]:
    """The configuration that the repository ships with, whatever a user has made of ``configs/`` since."""
    families = shipped(storage_format)
    families["sft"] |= {"packing": {"strategy": "concat", "row_len": 1024}, "test_fraction": 0.0}
    families["pretrain"]["test_fraction"] = 0.05
    families["rl"]["arithmetic"] = {"n": 5000}
    return families


@pytest.fixture(scope="session")
def data_h5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with all stores in ``data/stores``."""
    folder = tmp_path_factory.mktemp("h5")
    build_all(workspace_in(folder / "data", as_shipped("h5")))
    return folder


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with ``storage_format: bin``, of the two families that trainers memory-map."""
    folder = tmp_path_factory.mktemp("bin")
    build_all(workspace_in(folder / "data", as_shipped("bin")), ("pretrain", "sft"))
    return folder


def enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Commands and snippets find the stores of one of these directories, and the tokenizer."""
    patch.chdir(folder)
    patch.setenv("PREP_ASSETS_CONFIG_DIR", str(folder / "data" / "configs"))
    patch.setenv("PREP_ASSETS_STORE_DIR", str(folder / "data" / "stores"))
    tokenizer = folder / "data" / "configs" / "tokenizer"
    if not tokenizer.exists():
        tokenizer.symlink_to(ROOT / "configs" / "tokenizer")
