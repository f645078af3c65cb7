"""Domains that files name are dynamic partitions: found by sensors, schedules, runs and when definitions load, kept by the instance."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.config.models import Pretrain
from prep_assets.extensions.dagster import sensors as sources
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.dagster.runs import RANGE_END, RANGE_START, evaluations, failures
from prep_assets_tests.graph.workspaces import jsonl, minimal, workspace_in

PARTITIONS = "pretrain_domains"
AUTO = {"files": ["../*.jsonl"], "schema": "text", "domains": "auto", "domain_key": "source"}


class Project:
    """A project over files whose rows name their domains, with a history on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cursor, self.clock = folder, None, 1_700_000_000
        self.workspace = workspace_in(folder, minimal("pretrain", {"mixed": AUTO}))
        self.history = folder / "history"
        self.history.mkdir()
        self.restart()

    def restart(self) -> None:
        """The same project as another process finds it."""
        self.defs = definitions(
            Site(WorkspaceResource(configs=str(self.workspace.configs)), StoreIOManager(store_dir=str(self.workspace.stores)))
        )
        self.instance = dg.DagsterInstance.local_temp(str(self.history))

    def write(self, name: str, *sources: str) -> Path:
        path = jsonl(
            self.folder / f"{name}.jsonl", [{"text": f"{name} {n} of {source}", "source": source} for n, source in enumerate(sources)]
        )
        self.clock += 1
        os.utime(path, (self.clock, self.clock))
        return path

    @property
    def partitions(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(PARTITIONS))

    def look(self) -> tuple[list[Any], str]:
        """What the sensor asks for at a look, or why it does not."""
        sensor = self.defs.resolve_sensor_def("pretrain_sources")
        seen = dg.partition_loading_context(dynamic_partitions_store=self.instance)  # a daemon does this by itself
        with seen, dg.build_sensor_context(self.instance, self.cursor, None, self.defs.get_repository_def()) as context:
            found = sensor.evaluate_tick(context)
        self.cursor = found.cursor
        return [request.partition_key for request in found.run_requests or []], found.skip_message or ""

    def run(self, job: str, **how: Any) -> None:
        done = self.defs.resolve_job_def(job).execute_in_process(instance=self.instance, raise_on_error=False, **how)
        assert done.success, failures(done)

    def built(self) -> set[str]:
        return set(self.instance.get_materialized_partitions(dg.AssetKey("pretrain_tokens")))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_sensor_finds_domains_once_their_files_have_stopped_growing(project: Project) -> None:
    """A value that is new becomes a partition and is built; one that is gone is no partition any more, is said, and its stores can be pruned."""
    project.write("a", "wiki")
    assert project.look() == (
        [],
        "mixed: its domains are not known yet: the next look finds those of local files, a run of the family those of remote ones",
    )
    project.write("a", "wiki", "code")
    assert project.look()[0] == [] and project.partitions == []
    assert project.look()[0] == [] and project.partitions == ["code", "wiki"]
    assert project.look()[0] == ["code", "wiki"]
    for partition in project.partitions:
        project.run("refresh_pretrain", partition_key=partition)
    assert project.look() == ([], "no new or changed source files")

    project.restart()
    assert project.partitions == ["code", "wiki"] and project.built() == {"code", "wiki"}

    project.write("b", "math")
    looks = [project.look() for _ in range(3)]
    assert [asked for asked, _ in looks] == [[], ["code", "wiki"], ["math"]]
    assert project.partitions == ["code", "wiki", "math"]
    project.run("refresh_pretrain", partition_key="math")
    assert {each.partition for each in evaluations(project.instance, "pretrain_tokens", "accounting") if each.passed} == {
        "code",
        "wiki",
        "math",
    }

    project.write("a", "wiki")
    said = [project.look() for _ in range(2)]
    assert project.partitions == ["wiki", "math"]
    assert said[0][1].count("removed") == 0
    assert said[1][0] == ["math", "wiki"]
    assert dg.evaluate_automation_conditions(defs=project.defs, instance=project.instance).total_requested == 0


def test_a_night_covers_what_was_found_that_night(project: Project) -> None:
    project.write("a", "wiki", "code")
    when = datetime(2026, 3, 1, 3, tzinfo=UTC)
    repository = project.defs.get_repository_def()
    with dg.build_schedule_context(project.instance, scheduled_execution_time=when, repository_def=repository) as context:
        [request] = project.defs.resolve_schedule_def("nightly_pretrain").evaluate_tick(context).run_requests or []
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("code", "wiki")
    project.run("rebuild_pretrain", tags=request.tags)
    assert project.built() == {"code", "wiki"}


def test_loading_registers_in_the_home_of_dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path)
    project.write("a", "wiki")
    monkeypatch.setenv("DAGSTER_HOME", str(project.history))
    project.restart()
    assert project.partitions == ["wiki"]
    project.write("a", "code")
    project.restart()
    assert project.partitions == ["code"]
    project.write("a", *(f"v{n}" for n in range(101)))
    project.restart()  # too many: definitions stand, and say so when something is built
    assert project.partitions == ["code"]
    done = project.defs.resolve_job_def("refresh_pretrain").execute_in_process(
        instance=project.instance, partition_key="code", raise_on_error=False
    )
    assert "max_domains is 100" in failures(done)


def test_a_faulty_configuration_keeps_its_kind_of_partitions(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, minimal("pretrain", {"mixed": AUTO}, no_such_option=1))
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    graph = definitions(site).resolve_asset_graph()
    assert graph.get(dg.AssetKey("pretrain_raw")).partitions_def == dg.DynamicPartitionsDefinition(name=PARTITIONS)


def test_a_sensor_reads_no_remote_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take hours. The next run reads it, and what that found counts from then on."""
    monkeypatch.setattr(sources, "is_remote", lambda address: True)
    project.write("a", "wiki")
    _, seen = sources.settled(project.workspace, "pretrain", "")
    assert not sources.settled(project.workspace, "pretrain", seen)[0].looks
    assert list(project.workspace.family(Pretrain).domains) == ["wiki"]
    assert sources.settled(project.workspace, "pretrain", seen)[0].looks


def test_looking_is_no_part_of_a_workspace_that_somebody_opens() -> None:
    assert Workspace.open().looks and not Site().declared().looks
