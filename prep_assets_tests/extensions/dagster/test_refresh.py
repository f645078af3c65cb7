"""Sensors and schedules: what they ask for after each look at the sources."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.data.files import SourceFile, fingerprint
from prep_assets.extensions.dagster.metadata import known_versions
from prep_assets.extensions.dagster.sensors import look
from prep_assets.extensions.dagster.site import Site
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.dagster.conftest import Everything
from prep_assets_tests.extensions.dagster.runs import DOMAINS, RANGE_END, RANGE_START, checks_of, defs, evaluations, materializations
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, workspace_in

Row = dict[str, str]


def rows(*answers: str) -> list[Row]:
    return [{"instruction": "Say it.", "output": answer} for answer in answers]


class Watch:
    """A sensor with its cursor, over the domains `a` (a glob) and `b` of one configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, 1_700_000_000
        self.cursor: str | None = None
        self.skipped = ""
        for name in ("a1", "b1"):
            self.write(name, name)
        self.configure("a", "b")

    def configure(self, *domains: str) -> None:
        listed = {name: {"files": [str(self.folder / f"{name}*.jsonl")], "schema": "alpaca"} for name in domains}
        self.workspace = workspace_in(self.folder, minimal("sft", listed))

    def write(self, name: str, *answers: str) -> Path:
        """Write a file whose time of change is unlike that of any earlier one."""
        path = jsonl(self.folder / f"{name}.jsonl", rows(*answers))
        self.clock += 1
        os.utime(path, (self.clock, self.clock))
        return path

    def look(self, **how: Any) -> list[dg.RunRequest]:
        result = look(self.workspace, "sft", self.cursor, **how)
        assert result.cursor is not None
        self.cursor, self.skipped = result.cursor, (result.skip_reason.skip_message or "") if result.skip_reason else ""
        requests = list(result.run_requests or [])
        assert bool(requests) != bool(self.skipped)
        return requests

    def settle(self, **how: Any) -> list[str]:
        """Partitions asked for by two looks: the first sees a change, the second that it is over."""
        return [str(request.partition_key) for request in (*self.look(**how), *self.look(**how))]


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_a_changed_picture_rebuilds_its_domain(watch: Watch) -> None:
    pictures = watch.folder / "pictures"
    pictures.mkdir()
    (pictures / "one.png").write_bytes(b"one")
    listed = {name: {"files": [str(watch.folder / f"{name}*.jsonl")], "schema": "alpaca"} for name in ("a", "b")}
    listed["b"]["image_dir"] = str(pictures)
    options = {"image_token": "<|pad|>"}
    watch.workspace = workspace_in(watch.folder, minimal("sft", listed, **options))
    assert watch.settle() == ["a", "b"]
    (pictures / "one.png").write_bytes(b"another")
    assert watch.settle() == ["b"]
    (pictures / "two.png").write_bytes(b"two")
    assert watch.settle() == ["b"]
    (pictures / "two.png").unlink()
    os.utime(pictures / "one.png", (1, 1))
    assert watch.settle() == ["b"]  # its content is as it was before, and has another number
    assert watch.settle() == []


def test_a_changed_benchmark_rebuilds_every_domain(watch: Watch) -> None:
    benchmark = jsonl(watch.folder / "bench.jsonl", [{"question": "What is it?"}])
    listed = {name: {"files": [str(watch.folder / f"{name}*.jsonl")], "schema": "alpaca"} for name in ("a", "b")}
    watch.workspace = workspace_in(watch.folder, minimal("sft", listed, decontaminate={"files": [str(benchmark)]}))
    assert watch.settle() == ["a", "b"]
    jsonl(benchmark, [{"question": "What is it, again?"}])
    assert watch.settle() == ["a", "b"]
    build(watch.workspace, "sft_raw", "a")
    watch.cursor = None
    assert watch.settle() == ["b"]  # the other one has it pinned already


def test_a_domain_that_is_taken_out_is_reported(watch: Watch) -> None:
    watch.settle()
    watch.configure("a")
    assert watch.look() == []
    assert "b: removed from the configuration; to delete the stores: prep-assets prune --removed" in watch.skipped


def test_a_source_that_vanishes_while_it_is_hashed_does_not_keep_others_waiting(watch: Watch) -> None:
    watch.look()

    def sign(file: SourceFile) -> str:
        found = fingerprint(file)
        if file.name.startswith("a"):
            Path(file.url).unlink()
        return found

    assert [request.partition_key for request in watch.look(sign=sign)] == ["b"]
    watch.write("a1", "a1")
    assert watch.settle() == ["a"]


def test_a_domain_that_is_new_in_the_configuration_waits_for_the_definitions(watch: Watch) -> None:
    watch.settle()
    watch.write("c1", "new")
    watch.configure("a", "b", "c")
    assert watch.settle(partitions=["a", "b"]) == []
    assert "c: new in the configuration" in watch.skipped
    assert watch.settle(partitions=["a", "b", "c"]) == ["c"]


def test_a_source_without_a_sign_is_hashed_at_each_look(watch: Watch) -> None:
    # a web server that tells neither time nor ETag
    watch.settle(sign=lambda file: "")
    assert watch.settle(sign=lambda file: "") == []
    watch.write("a1", "changed")
    assert watch.settle(sign=lambda file: "") == ["a"]


def test_what_the_raw_asset_already_holds_is_not_asked_for(watch: Watch) -> None:
    build(watch.workspace, "sft_raw", "a")
    assert watch.settle() == ["b"]


def test_content_that_comes_back_has_a_new_run_key(watch: Watch) -> None:
    # Dagster never starts a second run with the same key
    keys = []
    for answer in ("one", "two", "one", "two", "one"):
        watch.write("a1", answer)
        watch.look()
        keys += [request.run_key for request in watch.look() if request.partition_key == "a"]
    assert len(keys) == 5 == len(set(keys))


# -- the sensors themselves -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", DOMAINS)
def test_a_sensor_asks_for_every_domain_once(stores: Path, instance: dg.DagsterInstance, family: str) -> None:
    sensor, cursor, asked = defs.resolve_sensor_def(f"{family}_sources"), None, []
    for _ in range(3):
        with dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=defs.get_repository_def()) as context:
            result = sensor.evaluate_tick(context)
        cursor = result.cursor
        asked.append([request.partition_key for request in result.run_requests or []])
    assert asked == [[], list(DOMAINS[family]), []]


def test_what_a_sensor_asks_for_can_be_run(stores: Path, instance: dg.DagsterInstance) -> None:
    _, second = (look(Workspace.open(), "rl", cursor) for cursor in (None, look(Workspace.open(), "rl", None).cursor))
    [request] = second.run_requests or []
    job = defs.resolve_job_def(defs.resolve_sensor_def("rl_sources").job_name)
    assert job.execute_in_process(instance=instance, partition_key=request.partition_key, run_config=request.run_config).success
    assert [each.partition for each in materializations(instance, "rl_raw")] == ["gsm8k"]


# -- schedules --------------------------------------------------------------------------------------------------------------------------


def tick(name: str, instance: dg.DagsterInstance, when: datetime) -> list[dg.RunRequest]:
    with dg.build_schedule_context(instance, scheduled_execution_time=when, repository_def=defs.get_repository_def()) as context:
        return list(defs.resolve_schedule_def(name).evaluate_tick(context).run_requests or [])


@pytest.mark.parametrize("family", DOMAINS)
def test_each_night_is_one_run_over_all_domains_with_a_key_of_its_own(instance: dg.DagsterInstance, family: str) -> None:
    """One run for each domain took three minutes to find that sixty of them had nothing to do."""
    name = f"nightly_{family}"
    nights = [datetime(2026, 3, day, 3, tzinfo=UTC) for day in (1, 2)]
    first, second = (tick(name, instance, night) for night in nights)
    assert [(request.partition_key, request.tags[RANGE_START], request.tags[RANGE_END]) for request in first] == [
        (None, DOMAINS[family][0], DOMAINS[family][-1])
    ]
    assert tick(name, instance, nights[0])[0].run_key == first[0].run_key
    keys = [str(request.run_key) for request in (*first, *second)]
    assert len(set(keys)) == len(keys)
    assert all("2026-03-0" in key for key in keys)


def night(instance: dg.DagsterInstance, family: str) -> dict[str, int]:
    """What a night adds to the history: events by kind."""
    [request] = tick(f"nightly_{family}", instance, datetime(2026, 3, 1, 3, tzinfo=UTC))
    job = defs.resolve_job_def(defs.resolve_schedule_def(f"nightly_{family}").job_name)
    result = job.execute_in_process(instance=instance, tags={**request.tags, "dagster/schedule_name": f"nightly_{family}"})
    assert result.success
    kinds = Counter(event.event_type_value for event in result.all_events)
    assert kinds["STEP_SKIPPED"] == 0 and kinds["STEP_SUCCESS"] == kinds["STEP_START"] > 2
    return {kind: kinds[kind] for kind in ("ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION")}


def test_a_night_records_what_the_history_does_not_know_and_nothing_else(built: Path, instance: dg.DagsterInstance) -> None:
    """A thousand domains that stay as they are would add ten thousand events each night."""
    assets = [asset for asset in ASSETS.values() if asset.family == "preference"]
    stores = {asset.name: len(DOMAINS["preference"]) if asset.partitioned else 1 for asset in assets}
    whole = {
        "ASSET_MATERIALIZATION": sum(stores.values()),
        "ASSET_CHECK_EVALUATION": sum(len(checks_of(name)) * count for name, count in stores.items()),
    }
    nothing = dict.fromkeys(whole, 0)
    assert [night(instance, "preference") for _ in range(2)] == [whole, nothing]

    # a check of one store that failed meanwhile, as of a store that was gone and is back
    key = dg.AssetKey("preference_raw")
    lost = dg.AssetCheckEvaluation(asset_key=key, check_name=checks_of("preference_raw")[0], passed=False, partition="hh")
    instance.report_runless_asset_event(lost)
    one = {"ASSET_MATERIALIZATION": 1, "ASSET_CHECK_EVALUATION": len(checks_of("preference_raw"))}
    assert [night(instance, "preference") for _ in range(2)] == [one, nothing]
    assert evaluations(instance, "preference_raw", lost.check_name, "hh")[0].passed

    # the code, as Dagster knows it
    instance.report_runless_asset_event(
        dg.AssetMaterialization(key, partition="hh", tags={"dagster/data_version": "x", "dagster/code_version": "0"})
    )
    assert [night(instance, "preference") for _ in range(2)] == [one, nothing]

    # where the UI tells how long ago a run was, each one is seen
    workspace, site = Workspace.open(), Site()
    told = workspace.overriding("preference", {"refresh": {"fresh_for": 24}})
    asked = (ASSETS["preference_raw"], DOMAINS["preference"])
    assert [list(known_versions(instance, site, each, *asked)) for each in (workspace, told)] == [
        ["hh", "ultrafeedback"],
        ["ultrafeedback"],
    ]


def test_a_night_does_not_check_again_what_is_current(
    everything: Everything, built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any) -> Any:
        raise AssertionError("a store that is current is not looked at again when nobody waits for it")

    monkeypatch.setattr("prep_assets.engine.execute.run_check", forbidden)
    [request] = tick("nightly_sft", instance, datetime(2026, 3, 1, 3, tzinfo=UTC))
    job = defs.resolve_job_def(defs.resolve_schedule_def("nightly_sft").job_name)
    assert job.execute_in_process(instance=instance, tags={**request.tags, "dagster/schedule_name": "nightly_sft"}).success
    assert all(each.passed for each in evaluations(instance, "sft_packed", "mask_alignment"))
