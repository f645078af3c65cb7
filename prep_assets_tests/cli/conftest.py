"""A small workspace, built once, and copies of it that a test may spoil."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS, copy_of, make

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
Run = Callable[..., Result]


def _domain(name: str, schema: str) -> dict[str, object]:
    return {"files": [str(CONFIGS / "samples" / name)], "schema": schema}


def _write_configs(folder: Path) -> None:
    tokenizer = {"tokenizer": str(CONFIGS / "tokenizer")}
    families = {
        "pretrain": {"domains": {"notes": _domain("notes.txt", "text")}},
        "sft": {
            "preprocessing": {"max_seq_len": 80},
            "packing": {"row_len": 256},
            "domains": {"dolly": {**_domain("dolly.jsonl", "dolly"), "ignore": ["category"]}, "chats": _domain("chats.jsonl", "messages")},
        },
        "preference": {"domains": {"hh": _domain("hh.jsonl.gz", "hh")}, "test_fraction": 0.1},
        "rl": {"domains": {"gsm8k": _domain("gsm8k.jsonl", "gsm8k")}, "arithmetic": {"n": 50}},
    }
    folder.mkdir()
    for family, options in families.items():
        (folder / f"{family}.yaml").write_text(yaml.safe_dump({**tokenizer, **options}, sort_keys=False), "utf-8")


@pytest.fixture(scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("cli")
    _write_configs(root / "configs")
    workspace = Workspace(root / "configs", root / "stores")
    for asset in SHIPPED_ASSETS.values():
        for partition in asset.partitions(workspace):
            make(workspace, asset, partition)
    return workspace


def _use(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "PREP_ASSETS_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    return workspace


@pytest.fixture
def built(_built: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Every asset built; tests share it and leave it as it is."""
    return _use(_built, monkeypatch)


@pytest.fixture
def mine(_built: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A copy of `built` for one test."""
    return _use(copy_of(_built, tmp_path / "mine"), monkeypatch)


@pytest.fixture
def empty(_built: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The configuration, and no store."""
    return _use(Workspace(_built.configs, tmp_path / "stores"), monkeypatch)


@pytest.fixture
def run() -> Run:
    """Run a command line: ``run("verify", "sft_packed")``."""
    # a width of its own: test runners set COLUMNS as they like
    return lambda *words: CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(word) for word in words])
