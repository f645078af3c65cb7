"""Stores that were built outside Dagster: the sensor that records them, once, with their checks and in sync."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from prep_assets.assets.graph import CHECKS
from prep_assets.defs import recorded
from prep_assets.defs.io_manager import StoreIOManager
from prep_assets.defs.site import Site, WorkspaceResource
from prep_assets.defs.together import definitions
from prep_assets.engine import build
from prep_assets_tests.assets.workspaces import domain, jsonl, minimal, workspace_in
from prep_assets_tests.defs.runs import evaluations, materializations, stale

STORES = (("pretrain_raw", "a"), ("pretrain_raw", "b"), ("pretrain_tokens", "a"), ("pretrain_tokens", "b"))


class Outside:
    """A workspace that the engine builds, and a Dagster instance that looks at it."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.sources = {name: folder / f"{name}.jsonl" for name in "ab"}
        for name in "ab":
            self.write(name, 40)
        domains = {name: domain(source, "text") for name, source in self.sources.items()}
        self.workspace = workspace_in(folder, minimal("pretrain", domains))
        self.site = Site(WorkspaceResource(configs=str(self.workspace.configs)), StoreIOManager(store_dir=str(self.workspace.stores)))
        self.definitions, self.instance, self.cursor = definitions(self.site), instance, None

    def write(self, name: str, documents: int) -> None:
        jsonl(self.sources[name], ({"text": f"Document {n} of {name} has words."} for n in range(documents)))

    def build(self) -> None:
        build(self.workspace, "pretrain_tokens")

    def look(self) -> str:
        """What the sensor says of one look."""
        sensor = self.definitions.resolve_sensor_def("built_elsewhere")
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            found = sensor.evaluate_tick(context)
        assert not found.run_requests
        self.cursor = found.cursor
        return str(found.skip_message)

    def versions(self, asset: str, partition: str) -> list[str]:
        return [(each.tags or {})["dagster/data_version"] for each in materializations(self.instance, asset) if each.partition == partition]


@pytest.fixture
def outside(tmp_path: Path, instance: dg.DagsterInstance) -> Outside:
    return Outside(tmp_path, instance)


def test_what_was_built_outside_is_recorded_once_in_sync_and_with_its_checks(outside: Outside) -> None:
    assert outside.look() == "no store was built outside Dagster"
    outside.build()
    said = outside.look()
    for asset, partition in STORES:
        assert f"{asset}[{partition}]" in said
        assert len(outside.versions(asset, partition)) == 1
        assert stale(outside.instance, asset, partition, outside.definitions) == []
        for check in CHECKS[asset]:
            assert [each.passed for each in evaluations(outside.instance, asset, check.name, partition)] == [True]
    [record] = outside.instance.get_run_records()
    assert (record.dagster_run.job_name, record.dagster_run.status) == ("built_elsewhere", dg.DagsterRunStatus.SUCCESS)
    assert record.start_time and record.end_time, "Dagster's list shows how long a run took from these"
    assert outside.look() == "no store was built outside Dagster"
    assert all(len(outside.versions(*store)) == 1 for store in STORES)


def test_only_what_changed_is_recorded_again(outside: Outside) -> None:
    outside.build()
    outside.look()
    outside.write("b", 50)
    outside.build()
    said = outside.look()
    assert "pretrain_raw[b], pretrain_tokens[b]" in said and "[a]" not in said
    assert [len(outside.versions(*store)) for store in STORES] == [1, 2, 1, 2]
    assert all(stale(outside.instance, *store, outside.definitions) == [] for store in STORES)


def test_automation_has_nothing_to_do_afterwards(outside: Outside) -> None:
    first = dg.evaluate_automation_conditions(defs=outside.definitions, instance=outside.instance)
    outside.build()
    outside.look()
    then = dg.evaluate_automation_conditions(defs=outside.definitions, instance=outside.instance, cursor=first.cursor)
    assert (first.total_requested, then.total_requested) == (0, 0)


def test_dagsters_own_builds_are_left_to_its_runs(outside: Outside) -> None:
    job = outside.definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=outside.instance, asset_selection=[dg.AssetKey("pretrain_tokens")], partition_key="a").success
    assert outside.look() == "no store was built outside Dagster"
    running = outside.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    outside.build()
    assert "runs are under way" in outside.look()
    outside.instance.report_run_failed(running)
    assert outside.look() == "recorded pretrain_raw[b], pretrain_tokens[b]"


def test_many_stores_are_recorded_over_several_looks(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "AT_ONCE", 3)
    outside.build()
    assert outside.look().endswith("; later looks record 1 more")
    assert outside.look() == "recorded pretrain_tokens[b]"
    assert all(len(outside.versions(*store)) == 1 for store in STORES)
