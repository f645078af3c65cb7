"""`rl_groups` as Dagster's asset, in a workspace that has a domain of scored groups. Without one it is not in the graph: see `test_graph`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from prep_assets.training import DatasetFactory
from prep_assets_tests.assets.workspaces import TOKENIZER, jsonl
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.defs.test_command_line import environment, materialize

pytestmark = pytest.mark.cli
ROWS = [{"prompt": f"What is {i} + 2?", "responses": [f"{i + 2}", "No idea."], "rewards": [1.0, -0.25]} for i in range(12)]


def test_the_command_line_materializes_groups_and_their_export(tmp_path: Path) -> None:
    configs, stores = tmp_path / "configs", tmp_path / "stores"
    shutil.copytree(ROOT / "configs", configs)
    rl = yaml.safe_load((configs / "rl.yaml").read_text("utf-8"))
    rl["domains"]["scored"] = {"files": [str(jsonl(tmp_path / "scored.jsonl", ROWS))], "schema": "group"}
    rl |= {"tokenizer": TOKENIZER, "exports": {"offline": {"from": "rl_groups", "to": "astrai"}}}
    (configs / "rl.yaml").write_text(yaml.safe_dump(rl), "utf-8")
    env = environment(ROOT, PREP_ASSETS_CONFIG_DIR=str(configs), PREP_ASSETS_STORE_DIR=str(stores))
    said = materialize(tmp_path, "rl_export_offline", env)
    assert said.returncode == 0, said.stderr
    manifest = json.loads((stores / "rl_groups" / "current" / "manifest.json").read_text())
    assert (manifest["counts"]["kept"], manifest["counts"]["responses"]) == (12, 24)
    held = len(DatasetFactory.load("grpo", stores / "rl_groups" / "current" / "test"))
    for folder in ("rl_groups", "rl_export_offline"):
        found = DatasetFactory.load("grpo", stores / folder)
        assert len(found) == 12 - held
        assert all(item["rewards"].tolist() == [1.0, -0.25] for item in found)
    command = [sys.executable, "-m", "prep_assets.cli.main", "verify", "rl_groups"]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and "checks of 1 store passed" in result.stdout, (result.stdout, result.stderr)
