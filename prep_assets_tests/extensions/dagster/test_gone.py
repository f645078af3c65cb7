"""Runs whose process is gone, stores that are gone, and configurations that have no effect: what Dagster is told of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import dagster as dg
import pytest

from prep_assets.engine import build
from prep_assets.engine.status import places_in
from prep_assets.errors import SourceError, SourceUnavailable
from prep_assets.extensions.dagster import sensors as recorded
from prep_assets.extensions.dagster.assets import family_definitions
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.materialize import PROCESS, _process, close_gone
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.extensions.recall.command import lift, make
from prep_assets.extensions.recall.record import settled
from prep_assets.graph.graph import CHECKS
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.dagster.runs import CONFIGS, DOMAINS, defs, evaluations, failures, materializations, run, stale
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in


def running(instance: dg.DagsterInstance, process: str) -> dg.DagsterRun:
    """A run that says it is running in a process."""
    job = defs.resolve_implicit_global_asset_job_def()
    return instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags={PROCESS: process} if process else {})


def test_a_run_whose_process_was_killed_is_closed_by_the_next_build(built: Path, instance: dg.DagsterInstance) -> None:
    """It said STARTED for ever, and everything below waited for it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        lost = running(instance, _process(child.pid))
        assert close_gone(instance) == []
        child.send_signal(signal.SIGKILL)
    alive, foreign = running(instance, _process(os.getpid())), running(instance, "another-host 1 5")
    unsigned = running(instance, "")
    result = run(instance, "sft_packed")
    assert result.success
    assert f"Run {lost.run_id} is closed as failed" in "\n".join(entry.user_message for entry in instance.all_logs(result.run_id))
    states = {each.run_id: each.status for each in instance.get_runs()}
    assert states[lost.run_id] == dg.DagsterRunStatus.FAILURE
    assert {states[each.run_id] for each in (alive, foreign, unsigned)} == {dg.DagsterRunStatus.STARTED}


def test_a_process_id_that_was_given_again_is_another_process(instance: dg.DagsterInstance) -> None:
    host, pid, _ = _process(os.getpid()).rsplit(" ", 2)
    lost = running(instance, f"{host} {pid} 1")
    assert close_gone(instance) == [lost.run_id]


def test_every_run_signs_with_its_process(built: Path, instance: dg.DagsterInstance) -> None:
    result = run(instance, "sft_packed")
    found = instance.get_run_by_id(result.run_id)
    assert found is not None and found.tags[PROCESS] == _process(os.getpid())


# -- stores that are gone ---------------------------------------------------------------------------------------------------------------


def gone(instance: dg.DagsterInstance) -> list[tuple[str, str | None]]:
    """Stores of which the integrity check failed because they are gone, the first failure first."""
    records = instance.get_event_records(dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION), ascending=True)
    found = [record.event_log_entry.get_dagster_event().asset_check_evaluation_data for record in records]
    return [(each.asset_key.to_user_string(), each.partition) for each in found if "the store is gone" in (each.description or "")]


def test_a_store_that_is_gone_fails_its_check_once_until_it_is_back(built: Path, instance: dg.DagsterInstance) -> None:
    """The stores were moved away, and the page stayed green."""
    assert run(instance, "sft_packed").success and run(instance, "sft_tokens", partition="dolly").success
    sensor, cursor = defs.resolve_sensor_def("sft_sources"), None

    def tick() -> list[tuple[str, str | None]]:
        nonlocal cursor
        before = len(gone(instance))
        with dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=defs.get_repository_def()) as context:
            cursor = sensor.evaluate_tick(context).cursor
        return gone(instance)[before:]

    assert tick() == []
    shutil.rmtree(built / "sft_packed")
    shutil.rmtree(built / "sft_tokens" / "dolly")
    assert sorted(tick()) == [("sft_packed", None), ("sft_tokens", "dolly")]
    assert tick() == []
    assert run(instance, "sft_packed").success
    assert tick() == []
    shutil.rmtree(built / "sft_packed")
    shutil.rmtree(built / "sft_tokens" / "dolly")  # Dagster took the second failure of a partition for a fault of its database
    assert sorted(tick()) == [("sft_packed", None), ("sft_tokens", "dolly")]


def test_a_recalled_store_and_what_is_made_from_it_fail_their_checks_until_the_recall_is_lifted(
    built: Path, instance: dg.DagsterInstance
) -> None:
    assert run(instance, "sft_tokens", partition="dolly").success and run(instance, "sft_packed").success
    sensor, cursor = defs.resolve_sensor_def("sft_sources"), None

    def tick() -> list[tuple[str, bool]]:
        nonlocal cursor
        filtered = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        before = len(instance.get_event_records(filtered))
        with dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=defs.get_repository_def()) as context:
            cursor = sensor.evaluate_tick(context).cursor
        records = instance.get_event_records(filtered, ascending=True)[before:]
        found = [record.event_log_entry.get_dagster_event().asset_check_evaluation_data for record in records]
        assert {each.check_name for each in found} <= {"file_hashes"}
        assert all("is recalled, so nothing reads it: recall 1" in each.description for each in found if not each.passed)
        return sorted((each.asset_key.to_user_string(), each.passed) for each in found)

    assert tick() == []
    make(built, "asset=sft_tokens and partition=dolly", "BOS twice")
    assert len(list(settled(built, places_in(built), write=True))) == 2
    assert tick() == [("sft_packed", False), ("sft_tokens", False)]
    assert tick() == []
    assert not run(instance, "sft_packed").success  # which would make the same again
    lift(built, 1)
    assert len(list(settled(built, places_in(built), write=True))) == 2
    assert tick() == [("sft_packed", True), ("sft_tokens", True)]
    assert tick() == []
    assert run(instance, "sft_packed").success


# -- options and configurations ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped configuration, which everything in the test reads."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path / "configs"))
    return tmp_path / "configs"


def versions(loaded: dg.Definitions) -> dict[str, str | None]:
    graph = loaded.resolve_asset_graph()
    return {key.to_user_string(): graph.get(key).code_version for key in graph.get_all_asset_keys()}


def test_an_option_in_the_file_is_in_the_code_version_of_what_depends_on_it(configs: Path) -> None:
    """Change the mask and reload: `status` said that six stores are stale, the page said nothing."""
    before = versions(definitions(Site()))
    path = configs / "sft.yaml"
    path.write_text(path.read_text("utf-8") + "\ntrain_headers: true\n", "utf-8")
    after = versions(definitions(Site()))
    assert {name for name in before if before[name] != after[name]} == {"sft_tokens"}


def test_the_content_of_the_tokenizer_is_in_the_code_version(configs: Path) -> None:
    before = versions(definitions(Site()))
    path = configs / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "x": 1}), "utf-8")
    after = versions(definitions(Site()))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        *("pretrain_tokens", "sft_template", "sft_tokens", "preference_tokens_by_domain", "rl_tokens_by_domain", "arithmetic_tokens")
    }


def test_dagster_marks_what_another_option_makes_stale(configs: Path, built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, "sft_packed").success
    path = configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 1024", "row_len: 512"), "utf-8")
    assert stale(instance, "sft_packed") == []
    assert stale(instance, "sft_packed", definitions=definitions(Site())) == ["sft_packed has a new code version"]


@pytest.mark.parametrize("fault", ["no_such_option: 1", "[", "exports: {x: {from: sft_paked, to: hf_arrow}}"])
def test_a_faulty_family_leaves_the_others_standing_and_says_what_is_wrong(
    configs: Path, stores: Path, instance: dg.DagsterInstance, fault: str
) -> None:
    """One bad key in one file emptied the whole graph."""
    path = configs / "sft.yaml"
    path.write_text(fault if fault == "[" else path.read_text("utf-8") + f"\n{fault}\n", "utf-8")
    loaded = definitions(Site())
    assert {"sft_raw", "sft_tokens", "sft_packed", "pretrain_tokens", "rl_tokens"} <= set(versions(loaded))
    packed = loaded.resolve_asset_graph().get(dg.AssetKey("sft_packed"))
    assert "sft.yaml" in str(packed.description)
    job = loaded.resolve_implicit_global_asset_job_def()
    failed = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("sft_packed")], raise_on_error=False)
    assert "sft.yaml" in failures(failed)
    made = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("arithmetic_prompts")], raise_on_error=False)
    assert made.success
    assert evaluations(instance, "arithmetic_prompts", "gold_answers")[0].passed
    names = {sensor.name for sensor in loaded.get_repository_def().sensor_defs}
    assert names == {"built_elsewhere", "rebuild_downstream", "scrub", *(f"{family}_sources" for family in DOMAINS if family != "sft")}


# -- stores that were built outside Dagster: the sensor that records them, once, with their checks and in sync ---------------------------


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


# -- sources that do not answer are asked again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "attempts"), [(SourceUnavailable, 3), (SourceError, 1)])
def test_only_a_source_that_does_not_answer_is_asked_again(
    error: type[SourceError], attempts: int, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prep_assets.extensions.dagster.materialize.SECONDS_TO_WAIT", 0)
    look = Mock(side_effect=error("the server is busy"))
    monkeypatch.setattr(Workspace, "files", look)
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    resources = {site.resource: site.workspace, site.io_manager_key: site.stores}
    result = dg.materialize(
        family_definitions(site, "sft"), selection=["sft_raw"], partition_key="gsm8k", resources=resources, raise_on_error=False
    )
    steps = [each for each in result.all_events if each.event_type_value in ("STEP_START", "STEP_RESTARTED")]
    assert not result.success and len(steps) == attempts


def test_assets_are_fresh_for_as_long_as_the_configuration_says(workspace: Workspace) -> None:
    path = workspace.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8") + "refresh: {fresh_for: 36}\n", "utf-8")
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    policies = [spec.freshness_policy for asset in family_definitions(site, "sft")[:-1] for spec in asset.specs]
    assert policies and all(policy and policy.fail_window.to_timedelta().total_seconds() == 36 * 3600 for policy in policies)
    assert all(spec.freshness_policy is None for asset in family_definitions(site, "rl") for spec in asset.specs)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The shipped configuration, in a folder of its own."""

    shutil.copytree(CONFIGS, tmp_path / "configs")
    return Workspace(tmp_path / "configs", tmp_path / "stores")
