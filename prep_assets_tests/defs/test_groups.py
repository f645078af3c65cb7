"""`rl_groups` as Dagster's asset, in a workspace that has a domain of scored groups. Without one it is not in the graph: see `test_graph`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml

from prep_assets.defs.site import Site
from prep_assets.defs.together import definitions
from prep_assets.training import DatasetFactory
from prep_assets_tests.assets.workspaces import TOKENIZER, jsonl
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.defs.runs import checks_of, evaluations

ROWS = [{"prompt": f"What is {i} + 2?", "responses": [f"{i + 2}", "No idea."], "rewards": [1.0, -0.25]} for i in range(12)]


def test_groups_and_their_export_are_materialized(
    tmp_path: Path, stores: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = tmp_path / "configs"
    shutil.copytree(ROOT / "configs", configs)
    rl = yaml.safe_load((configs / "rl.yaml").read_text("utf-8"))
    rl["domains"]["scored"] = {"files": [str(jsonl(tmp_path / "scored.jsonl", ROWS))], "schema": "group"}
    rl |= {"tokenizer": TOKENIZER, "exports": {"offline": {"from": "rl_groups", "to": "astrai"}}}
    (configs / "rl.yaml").write_text(yaml.safe_dump(rl), "utf-8")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(configs))
    job = definitions(Site()).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("rl_export_offline")], raise_on_error=False).success
    found = {check: [each.passed for each in evaluations(instance, "rl_groups", check)] for check in checks_of("rl_groups")}
    assert found and all(passed == [True] for passed in found.values()), found
    manifest = json.loads((stores / "rl_groups" / "current" / "manifest.json").read_text())
    assert (manifest["counts"]["kept"], manifest["counts"]["responses"]) == (12, 24)
    held = len(DatasetFactory.load("grpo", stores / "rl_groups" / "current" / "test"))
    for folder in ("rl_groups", "rl_export_offline"):
        found = DatasetFactory.load("grpo", stores / folder)
        assert len(found) == 12 - held
        assert all(item["rewards"].tolist() == [1.0, -0.25] for item in found)
