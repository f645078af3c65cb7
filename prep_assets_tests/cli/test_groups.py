"""The commands on a store of scored groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.training import DatasetFactory
from prep_assets_tests.assets.workspaces import build, domain, jsonl, minimal, workspace_in
from prep_assets_tests.cli.conftest import Run

ROWS = [
    {"prompt": "What is 1 + 2?", "responses": ["3", "It is four."], "rewards": [1.0, -0.25]},
    {"prompt": "What is 3 + 2?", "responses": ["5"], "rewards": [0.125]},
]


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = workspace_in(tmp_path, minimal("rl", {"scored": domain(jsonl(tmp_path / "s.jsonl", ROWS), "group")}))
    build(made, "rl_raw", "scored")
    build(made, "rl_groups")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(made.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(made.stores))
    monkeypatch.setenv("COLUMNS", "200")
    return made


def test_inspect_shows_the_prompt_and_each_response_with_its_reward(scored: Workspace, run: Run) -> None:
    said = run("inspect", "rl_groups").stdout
    assert "rl_groups train group 0 of 2: a prompt of 14 tokens, 2 responses, from scored/s.jsonl:0" in said
    assert "│ response 0, reward 1\n⟦3<|im_end|>⟧" in said
    assert "│ response 1, reward -0.25\n⟦It is four.<|im_end|>⟧" in said
    assert said.rstrip().endswith("2 responses")


def test_inspect_with_ids(scored: Workspace, run: Run) -> None:
    lines = run("inspect", "rl_groups", "--row", "1", "--ids").stdout.splitlines()
    item = DatasetFactory.load("grpo", scored.stores / "rl_groups")[1]
    shown = [line.split()[:3] for line in lines if line[:7].strip().isdigit()]
    ids = [*item["prompts"].tolist(), *item["responses"][0].tolist()]
    assert shown == [[str(i), str(i), str(token)] for i, token in enumerate(ids)]


def test_unknown_streams_and_rows(scored: Workspace, run: Run) -> None:
    assert "no stream 'test'" in run("inspect", "rl_groups", "-s", "test").stderr
    assert "there are 2, numbered from 0" in run("inspect", "rl_groups", "-r", "2").stderr


def test_export_and_how_to_open_it(scored: Workspace, run: Run, tmp_path: Path) -> None:
    said = run("export", "rl_groups", "-t", "astrai", "-o", str(tmp_path / "out")).stdout
    assert f'DatasetFactory.load("grpo", "{tmp_path}/out")' in said
    assert len(DatasetFactory.load("grpo", tmp_path / "out")) == 2
    assert 'dataset[0]["responses"]' in run("export", "rl_groups", "-t", "hf_arrow", "-o", str(tmp_path / "hf")).stdout
    assert "takes" in run("export", "--list").stdout and "groups" in run("export", "--list").stdout
    assert run("export", "rl_groups", "-t", "mds", "-o", str(tmp_path / "no")).exit_code == 1


def test_selftest_finds_the_groups(scored: Workspace, run: Run) -> None:
    assert "another reward" in run("selftest", "rl_groups").stdout
    said = run("selftest", "rl_groups", "-p", "scored")
    assert said.exit_code == 0 and "rewards cut to whole numbers" in said.stdout


def test_where_there_are_no_groups_the_command_says_why(built: Workspace, run: Run) -> None:
    assert "no domain of rl.yaml has a schema that gives a Group" in run("inspect", "rl_groups").stderr
