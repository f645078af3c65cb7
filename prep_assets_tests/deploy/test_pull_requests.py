"""The GitHub Action and the pre-commit hook: what their shell does with stores that are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.graph.workspaces import build, domain, minimal, workspace_in

ACTION: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "actions" / "verify" / "action.yml").read_text("utf-8"))
STEP = ACTION["runs"]["steps"][-1]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Workspace]:
    folder = tmp_path_factory.mktemp("requests")
    made = [
        workspace_in(folder / name, minimal("sft", {"chats": domain("chats.jsonl", "messages", max_items=most)}, template="chatml"))
        for name, most in (("before", 60), ("after", 50))
    ]
    for workspace in made:
        build(workspace, "sft_tokens", "chats")
    return made[0], made[1]


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """`prep-assets` of this environment and this checkout, and a `gh` that keeps what it is told to post."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "prep-assets").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m prep_assets.cli.main "$@"\n')
    (folder / "gh").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\ncp "$5" {tmp_path}/comment\n')
    for command in folder.iterdir():
        command.chmod(0o755)
    return folder


def run(stores: Path, configs: Path, commands: Path, before: str = "", token: str = "t") -> subprocess.CompletedProcess[str]:
    given = {
        "PREP_ASSETS_CONFIG_DIR": str(configs),
        "PREP_ASSETS_STORE_DIR": str(stores),
        "BEFORE": before,
        "GH_TOKEN": token,
        "NUMBER": "12",
    }
    assert given.keys() == STEP["env"].keys()
    summary = {"GITHUB_STEP_SUMMARY": str(commands.parent / "summary"), "COLUMNS": "200"}
    env = {**os.environ, **given, **summary, "PATH": f"{commands}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-e", "-c", STEP["run"]], env=env, capture_output=True, text=True, check=False)


def test_a_pull_request_gets_what_differs(both: tuple[Workspace, Workspace], commands: Path) -> None:
    before, after = both
    done = run(after.stores, after.configs, commands, str(before.stores))
    assert done.returncode == 0, done.stdout + done.stderr
    comment = (commands.parent / "comment").read_text("utf-8")
    assert comment == done.stdout == (commands.parent / "summary").read_text("utf-8")
    assert "of 2 stores passed" in comment
    assert "| `sft_tokens[chats]` | records |  |  | 0 in, 10 out, 0 changed, 50 the same |" in comment
    assert (commands.parent / "said").read_text("utf-8").startswith("pr comment 12 --body-file ")


def test_what_does_not_hold_fails_it(both: tuple[Workspace, Workspace], commands: Path, tmp_path: Path) -> None:
    _, after = both
    nothing = run(tmp_path / "none", after.configs, commands, token="")
    assert nothing.returncode == 1 and "there is no store" in nothing.stdout
    assert not (commands.parent / "said").exists()
    wrong = run(after.stores, after.configs, commands, str(tmp_path / "nowhere"))
    assert wrong.returncode == 1 and "there is no such folder of stores" in wrong.stdout


def test_the_hook_verifies() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["entry"] == "prep-assets verify" and hook["stages"] == ["pre-push"]
    cli = (ROOT / "pyproject.toml").read_text("utf-8").split("cli = [")[1].split("]")[0]
    assert [package.strip(' "') for package in cli.split(",")] == hook["additional_dependencies"]
