"""Stores of each form that others read, built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prep_assets.engine.execute import build
from prep_assets.extensions.neighbours.description import Description, describe
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.neighbours.fake_hub import FakeHub, serving
from prep_assets_tests.graph.workspaces import copy_of, domain, jsonl, minimal, shipped, workspace_in

CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHATS = [
    {"prompt": [{"role": "user", "content": f"What is {n}?"}, {"role": "assistant", "content": f"It is {n}."}, {"role": "user", "content": "?"}],
     "gold": str(n)}
    for n in range(12)
]  # fmt: skip
HUB = {"hub": {"from": "sft_packed", "to": "hf_parquet", "options": {"rows_per_file": 10}}}
EXPORTED = ("sft_export_hub", "preferences", "rl_prompts", "sft_packed")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A packed table and its export in three files, pairs of texts, and prompts that are messages. Tests only read them."""
    folder = tmp_path_factory.mktemp("neighbours")
    sft = {**shipped()["sft"], "exports": HUB, "licence": "cc-by-4.0", "test_fraction": 0.0}
    sft["domains"] = {name: sft["domains"][name] for name in ("dolly", "chats")}
    pairs = {name: {**each, "licence": "apache-2.0"} for name, each in shipped()["preference"]["domains"].items()}
    prompts = domain(jsonl(folder / "prompts.jsonl", [*CHATS, CHATS[0], {"prompt": "Nothing"}]), "rl_prompt")
    families = {"sft": sft, **minimal("preference", pairs, test_fraction=0.1), **minimal("rl", {"own": prompts})}
    workspace = workspace_in(folder, families)
    for asset in EXPORTED:
        build(workspace, asset)
    return workspace


@pytest.fixture(scope="session")
def said(built: Workspace) -> dict[str, Description]:
    """What is said of each."""
    return {asset: describe(built, asset)[0] for asset in EXPORTED}


@pytest.fixture
def mine(built: Workspace, tmp_path: Path) -> Workspace:
    """A copy, for one test to change."""
    return copy_of(built, tmp_path / "mine")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub that commands and libraries take for the real one."""
    from huggingface_hub import constants

    with serving() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", found.url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_averysecrettoken")
        yield found
