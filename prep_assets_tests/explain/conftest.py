"""A small workspace with every asset and a few exports, built once without its checks, and copies of it that a test may spoil."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import all_unchecked, copy_of, domain, jsonl, shipped, with_groups, workspace_in


def entry(source: str, to: str, **options: Any) -> dict[str, Any]:
    """An export."""
    return {"from": source, "to": to, "options": options}


EXPORTS: dict[str, dict[str, Any]] = {
    "pretrain": {"text": entry("pretrain_tokens", "megatron")},
    "sft": {
        "trl": entry("sft_packed", "hf_arrow", layout="trl"),
        "axolotl": entry("sft_packed", "hf_arrow", layout="axolotl"),
        "by_domain": entry("sft_tokens", "hf_arrow", layout="open_instruct"),
    },
    "preference": {"dpo": entry("preferences", "hf_arrow"), "reward": entry("preference_tokens", "hf_arrow")},
    "rl": {"verl": entry("rl_prompts", "verl", data_source="openai/gsm8k"), "groups": entry("rl_groups", "hf_arrow")},
}

ROWS = [
    {"messages": [{"role": "user", "content": "Grüße 🙂!"}, {"role": "assistant", "content": "Hallo, schön 🎉."}]},
    {"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}] * 3},
    {"messages": [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}] * 3},
    {"messages": [{"role": "user", "content": "Say nothing."}]},
]
"""Characters of several tokens, several rounds, a duplicate, and a chat that is refused."""


def families(folder: Path) -> dict[str, dict[str, Any]]:
    """Configurations of all four families, with few records."""
    found = with_groups(shipped(), folder, count=12)
    folder.mkdir(exist_ok=True)
    found["sft"]["domains"] = {
        "gsm8k": domain("gsm8k.jsonl", "gsm8k", max_items=16),
        "own": domain(jsonl(folder / "own.jsonl", ROWS), "messages"),
    }
    found["sft"]["packing"] = {"strategy": "concat", "row_len": 128}
    found["pretrain"]["domains"]["docs"]["max_items"] = 12
    found["pretrain"]["domains"]["notes"]["max_items"] = 20
    found["preference"]["max_per_source"] = 12
    found["rl"]["domains"]["gsm8k"]["max_items"] = 16
    found["rl"]["arithmetic"]["n"] = 20
    for family, exports in EXPORTS.items():
        found[family]["exports"] = exports
    return found


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Tests only read it."""
    folder = tmp_path_factory.mktemp("lineage")
    return all_unchecked(workspace_in(folder, families(folder / "data")))


def with_sources(workspace: Workspace, folder: Path) -> Workspace:
    """A copy for one test to change, its sources too."""
    mine = copy_of(workspace, folder)
    for path in mine.configs.iterdir():
        path.write_text(path.read_text("utf-8").replace(str(workspace.configs.parent / "data"), str(folder / "data")), "utf-8")
    return mine


@pytest.fixture
def mine(made: Workspace, tmp_path: Path) -> Workspace:
    return with_sources(made, tmp_path / "mine")


Command = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command line in a workspace: ``run(workspace, "trace", "sft_packed", "--row", 0)``."""
    from typer.testing import CliRunner

    from prep_assets.cli.main import app

    def run(workspace: Workspace, *words: object) -> Any:
        monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
        monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])

    return run
