"""Runs of Dagster on a cluster: a run that is a job of it, and a step that starts one. Both are told of in Dagster's history."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.cluster.conftest import ROOT, Nodes
from prep_assets_tests.cluster.processes import program, wait_for
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal

SHARDS = 9
"""Of 37 MB: less than 32 stay in one process."""


@pytest.fixture
def site(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an instance whose runs are jobs of the cluster, and a family that works on it."""
    nodes.be(2)
    line = "A page of the web with number %d, which says this and that about it. " * 40
    web = jsonl(tmp_path / "web.jsonl", ({"text": line % tuple(range(n, n + 40))} for n in range(13_000)))
    cluster = {"kind": "ray", "address": "auto"}
    [(family, said)] = minimal("pretrain", {"web": domain(web, "text")}, cluster=cluster, workers=2).items()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / f"{family}.yaml").write_text(yaml.safe_dump(dict(said), sort_keys=False), "utf-8")
    (tmp_path / "home").mkdir()
    launcher = yaml.safe_load((ROOT / "deploy" / "dagster-on-ray.yaml").read_text("utf-8"))
    launcher["run_launcher"]["config"]["ray"]["env_vars"] = [
        "DAGSTER_HOME",
        "PREP_ASSETS_CONFIG_DIR",
        "PREP_ASSETS_STORE_DIR",
        "PYTHONPATH",
    ]
    # launched at once: without this a run waits in the queue for a daemon, which test_team.py starts
    at_once = {"run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"}}
    (tmp_path / "home" / "dagster.yaml").write_text(yaml.safe_dump({"telemetry": {"enabled": False}, **at_once, **launcher}), "utf-8")
    environ = {
        "DAGSTER_HOME": tmp_path / "home",
        "RAY_DASHBOARD": nodes.dashboard,
        "PREP_ASSETS_CONFIG_DIR": tmp_path / "configs",
        "PREP_ASSETS_STORE_DIR": tmp_path / "stores",
        "PYTHONPATH": ROOT,
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, str(value))
    yield tmp_path


def test_a_run_is_a_job_of_the_cluster(site: Path) -> None:
    """Launched, finished and recorded, with what its shards took; the job says which run it is."""
    import dagster as dg
    from ray.job_submission import JobSubmissionClient

    job = ["job", "launch", "-m", "prep_assets.definitions", "-j", "rebuild_pretrain"]
    tags = {"dagster/asset_partition_range_start": "web", "dagster/asset_partition_range_end": "web"}
    subprocess.run([program("dagster"), *job, "--tags", json.dumps(tags)], check=True, env=os.environ)
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()

        def ended() -> bool:
            found = instance.get_run_by_id(run.run_id)
            return found is not None and found.is_finished

        wait_for(ended, "the run", seconds=500)
        [launched] = [
            each
            for each in JobSubmissionClient(os.environ["RAY_DASHBOARD"]).list_jobs()
            if each.metadata.get("dagster/run-id") == run.run_id
        ]
        [run] = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.SUCCESS, launched.message
        assert launched.submission_id == f"dagster-run-{run.run_id}"
        [record] = instance.fetch_materializations(dg.AssetKey("pretrain_tokens"), limit=10).records
        assert record.asset_materialization is not None
        assert record.asset_materialization.metadata["shards"].value == SHARDS
        said = [entry.message for entry in instance.all_logs(run.run_id)]
        assert any("tokenize web: " in each and f" of {SHARDS} shards, " in each and each.endswith(" left") for each in said)
    assert Workspace.open().published("pretrain_tokens", "web") is not None


def test_a_step_starts_a_job_of_the_cluster(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The asset of docs/deploy.md: what the job prints comes through, and a job that fails fails the step."""
    assert step(f"{program('prep-assets')} build pretrain_tokens")
    assert "pretrain_tokens[web]" in "".join(capfd.readouterr())
    assert Workspace.open().published("pretrain_tokens", "web") is not None
    assert not step("exit 3")


def step(entrypoint: str) -> bool:
    """Whether the step on the page ends well when it starts this as a job here."""
    [block] = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "deploy.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    here = {
        "prep-assets build pretrain_tokens": entrypoint,
        "/data/configs": os.environ["PREP_ASSETS_CONFIG_DIR"],
        "/data/stores": os.environ["PREP_ASSETS_STORE_DIR"],
        "http://10.0.0.1:8265": os.environ["RAY_DASHBOARD"],
    }
    for there, replaced in here.items():
        assert block.count(there) == 1
        block = block.replace(there, replaced)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "deploy.md", "exec", dont_inherit=True), names)
    return bool(names["defs"].resolve_implicit_global_asset_job_def().execute_in_process(raise_on_error=False).success)
