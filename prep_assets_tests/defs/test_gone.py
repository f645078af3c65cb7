"""Runs whose process is gone, stores that are gone, and configurations that mean nothing: what Dagster is told of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from prep_assets.definitions import defs
from prep_assets.defs.gone import PROCESS, _process, close_gone
from prep_assets.defs.site import Site
from prep_assets.defs.together import definitions
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.defs.runs import DOMAINS, evaluations, failures, run, stale


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


# -- options and configurations ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped configuration, which everything in the test reads."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
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
        *("pretrain_tokens", "sft_template", "sft_tokens", "preference_tokens_by_domain", "rl_tokens_by_domain", "arithmetic_tokens"),
    }


def test_dagster_marks_what_another_option_makes_stale(configs: Path, built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, "sft_packed").success
    path = configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 1024", "row_len: 512"), "utf-8")
    assert stale(instance, "sft_packed") == []
    assert stale(instance, "sft_packed", definitions=definitions(Site())) == ["sft_packed has a new code version"]


@pytest.mark.parametrize(
    "fault", ["tokenizer: 5", "domains: {}", "no_such_option: 1", "[", "exports: {x: {from: sft_paked, to: hf_arrow}}"]
)
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
    assert names == {
        "built_elsewhere",
        "rebuild_downstream",
        "scrub",
        "tell_of_failures",
        *(f"{family}_sources" for family in DOMAINS if family != "sft"),
    }
