"""The graph as Dagster shows it, against the tables of docs/graph.md and docs/checks.md, which are written by hand."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from prep_assets.assets.graph import ASSETS
from prep_assets.definitions import defs
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.defs.runs import DOMAINS


def listed(page: str) -> dict[str, list[list[str]]]:
    """The rows of a page's table of assets: asset → the names in each further cell."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
    return {name: [re.findall(r"`?(\w+)`?", cell) for cell in cells.split("|")] for name, cells in rows}


FED_BY, CHECKED = listed("graph.md"), listed("checks.md")
GRAPH = {
    name: (asset.family, set(FED_BY[name][0]), FED_BY[name][1] == ["domain"], set(CHECKED[name][0]))
    for name, asset in ASSETS.items()
    if asset.family in DOMAINS and name in FED_BY and name in CHECKED
}
"""Asset → family, what it is made from, whether it is partitioned, checks: as docs/graph.md and docs/checks.md have it, which are written by hand."""


def of_family(family: str) -> list[str]:
    return [name for name, (of, *_) in GRAPH.items() if of == family]


def above(name: str) -> set[str]:
    """An asset and all that it is made from."""
    return {name}.union(*(above(each) for each in GRAPH[name][1]))


REPORTS = {f"{family}_report" for family, *_ in GRAPH.values()}

graph = defs.resolve_asset_graph()


def node(name: str) -> Any:
    return graph.get(dg.AssetKey(name))


def names(keys: Any) -> set[str]:
    return {key.to_user_string() for key in keys}


def test_definitions_are_loadable() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_graph_has_these_assets_and_no_other() -> None:
    assert names(graph.get_all_asset_keys()) == {*GRAPH, *REPORTS}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_shows_every_asset_of_its_family(name: str) -> None:
    family = name.removesuffix("_report")
    assert names(node(name).parent_keys) == {asset for asset, (of, *_) in GRAPH.items() if of == family}
    assert (node(name).group_name, node(name).kinds >= {"html"}) == (family, True)


@pytest.mark.parametrize("name", GRAPH)
def test_asset(name: str) -> None:
    family, upstream, partitioned, checks = GRAPH[name]
    found = node(name)
    assert found.group_name == family
    assert names(found.parent_keys) == upstream
    assert (found.partitions_def.get_partition_keys() if found.partitions_def else None) == (list(DOMAINS[family]) if partitioned else None)
    assert {key.name for key in found.check_keys} == checks


@pytest.mark.parametrize("name", GRAPH)
def test_a_range_of_partitions_is_one_run_also_where_an_asset_has_none(name: str) -> None:
    assert node(name).backfill_policy == dg.BackfillPolicy.single_run()


@pytest.mark.parametrize("name", GRAPH)
def test_asset_page_has_everything_to_show(name: str) -> None:
    found = node(name)
    first_line = found.description.split("\n")[0]
    assert 20 < len(first_line) < 120
    assert first_line.endswith(".")
    assert found.owners == ["team:data"]
    assert found.kinds >= {"python"} and len(found.kinds) > 1
    assert found.code_version.partition("-")[0] == ASSETS[name].version != ""
    assert ("-" in found.code_version) == bool(ASSETS[name].options)
    assert found.tags["prep_assets/family"] == GRAPH[name][0]
    if ASSETS[name].streams or name.endswith("_raw"):
        columns = found.metadata["columns"].columns
        assert columns and all(column.type and column.description for column in columns)


@pytest.mark.parametrize("name", GRAPH)
def test_an_asset_is_rebuilt_by_itself_exactly_when_it_is_made_from_another(name: str) -> None:
    assert (node(name).automation_condition is not None) == bool(GRAPH[name][1])


@pytest.mark.parametrize("name", GRAPH)
def test_every_check_blocks_and_says_what_holds(name: str) -> None:
    for key in node(name).check_keys:
        spec = graph.get_check_spec(key)
        assert spec.blocking
        assert spec.description and spec.description.endswith(".")
        assert spec.partitions_def == node(name).partitions_def


def test_partitions_of_a_family_are_one_definition() -> None:
    # a run over a range needs one definition that all partitioned assets of it share
    for family in DOMAINS:
        assert len({id(node(name).partitions_def) for name, (of, _, partitioned, _) in GRAPH.items() if of == family and partitioned}) == 1


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("sft_packed", {"sft_packed"}),
        ("+key:sft_packed", {"sft_raw", "sft_tokens", "sft_packed"}),
        ("*sft_packed", above("sft_packed")),
        ("+sft_packed", {"sft_tokens", "sft_packed"}),  # the older syntax: one layer only
        ("+key:rl_tokens", above("rl_tokens")),
        ("group:preference", {*of_family("preference"), "preference_report"}),
        ("sft_raw,sft_tokens", {"sft_raw", "sft_tokens"}),
    ],
)
def test_selections_of_the_command_line(selection: str, expected: set[str]) -> None:
    assert names(dg.AssetSelection.from_coercible(selection.split(",")).resolve(graph)) == expected


@pytest.mark.parametrize("family", DOMAINS)
@pytest.mark.parametrize("kind", ["refresh", "rebuild"])
def test_jobs_build_and_plan_no_checks(kind: str, family: str) -> None:
    """Each step says what the checks of what it built say; of what is planned, Dagster would want to hear for each partition, each night."""
    selected = defs.resolve_job_def(f"{kind}_{family}").asset_layer.asset_graph
    assert names(selected.executable_asset_keys) == {name for name in of_family(family) if kind == "rebuild" or GRAPH[name][2]}
    assert not selected.asset_check_keys


def test_what_refreshes_by_itself_is_off_until_somebody_starts_it() -> None:
    repository = defs.get_repository_def()
    sensors = {sensor.name: sensor for sensor in repository.sensor_defs}
    assert set(sensors) == {
        "pretrain_sources",
        "sft_sources",
        "preference_sources",
        "rl_sources",
        "rebuild_downstream",
        "tell_of_failures",
        "scrub",
        "built_elsewhere",
    }
    # the one that starts no run
    running = {name for name, sensor in sensors.items() if sensor.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {"built_elsewhere"}
    assert all(sensor.description for sensor in sensors.values())
    schedules = {schedule.name: schedule for schedule in repository.schedule_defs}
    assert set(schedules) == {"nightly_pretrain", "nightly_sft", "nightly_preference", "nightly_rl"}
    assert {schedule.default_status for schedule in schedules.values()} == {dg.DefaultScheduleStatus.STOPPED}
    assert {(schedule.cron_schedule, schedule.execution_timezone) for schedule in schedules.values()} == {("0 3 * * *", "UTC")}


def test_every_job_that_a_sensor_or_schedule_starts_holds_together() -> None:
    jobs = {job.name for job in defs.get_repository_def().get_all_jobs()}
    assert jobs >= {f"{kind}_{family}" for kind in ("refresh", "rebuild", "mend") for family in DOMAINS}


def test_each_sensor_and_schedule_starts_the_job_of_its_family() -> None:
    repository = defs.get_repository_def()
    for family in DOMAINS:
        assert repository.get_sensor_def(f"{family}_sources").job_name == f"refresh_{family}"
        assert repository.get_schedule_def(f"nightly_{family}").job_name == f"rebuild_{family}"


def test_every_way_to_load_the_code_location_gives_it_one_name() -> None:
    # sensors and schedules lose their state when the name changes with the way of starting
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    served = yaml.safe_load((ROOT / "workspace.yaml").read_text("utf-8"))["load_from"][0]["python_module"]
    assert project["dagster"] == {"module_name": served["module_name"], "code_location_name": served["location_name"]}
    assert project["dg"]["project"]["code_location_name"] == served["location_name"]
    assert project["dg"]["project"]["code_location_target_module"] == served["module_name"] == "prep_assets.definitions"


def test_history_is_kept_in_the_checkout_and_out_of_git() -> None:
    instance = yaml.safe_load((ROOT / "dagster.yaml").read_text("utf-8"))
    assert instance["storage"]["sqlite"]["base_dir"] == ".dagster"
    assert instance["telemetry"] == {"enabled": False} == instance["nux"]
    venv = yaml.safe_load((ROOT / "tools" / "venv" / "dagster.yaml").read_text("utf-8"))
    assert instance["run_monitoring"] == venv["run_monitoring"]


def test_an_instance_with_run_monitoring_opens(tmp_path: Path) -> None:
    """Its launcher cannot say whether a process lives, so nothing may ask it to resume a run."""
    shutil.copy(ROOT / "tools" / "venv" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_start_timeout_seconds == 300
    assert {".dagster/", ".tmp_dagster_home_*"} <= set((ROOT / ".gitignore").read_text("utf-8").split())
