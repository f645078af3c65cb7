"""The graph as Dagster shows it, against the lists of docs/graph.md and docs/checks.md, which are written by hand."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml

import prep_assets
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.graph.graph import ASSETS, run_check
from prep_assets.pipeline.asset import Check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import open_published
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.extensions.dagster.runs import (
    CONFIGS,
    DOMAINS,
    RANGE_END,
    RANGE_START,
    checks_of,
    defs,
    evaluations,
    failures,
    materializations,
    plain,
    run,
)
from prep_assets_tests.graph.workspaces import shipped, with_groups, workspace_in
from prep_assets_tests.stored import packed_rows


def listed(page: str) -> dict[str, list[list[str]]]:
    """The rows of a page's table of assets: asset → the names in each further cell."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|(.*)\|$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
    named = [(name, cells) for names, cells in rows for name in re.findall(r"\w+", names)]
    return {name: [re.findall(r"`?(\w+)`?", cell) for cell in cells.split("|")] for name, cells in named}


FED_BY = {
    name: (re.findall(r"\w+", feeds), bool(partitioned))
    for name, partitioned, feeds in re.findall(
        r"^- `(\w+)`( per domain)?((?: ← [^:]+)?): ", (ROOT / "docs" / "graph.md").read_text("utf-8"), re.MULTILINE
    )
}
CHECKED = listed("checks.md")
GRAPH = {
    name: (asset.family, set(FED_BY[name][0]), FED_BY[name][1], set(CHECKED[name][0]))
    for name, asset in ASSETS.items()
    if asset.family in DOMAINS and name in FED_BY and name in CHECKED
}
"""Asset → family, what it is made from, whether it is partitioned, checks: as docs/graph.md and docs/checks.md have it, which are written by hand."""


def of_family(family: str) -> list[str]:
    return [name for name, (of, *_) in GRAPH.items() if of == family]


REPORTS = {f"{family}_report" for family, *_ in GRAPH.values()}

graph = defs.resolve_asset_graph()


def node(name: str) -> Any:
    return graph.get(dg.AssetKey(name))


def names(keys: Any) -> set[str]:
    return {key.to_user_string() for key in keys}


def test_the_graph_has_these_assets_and_no_other() -> None:
    assert names(graph.get_all_asset_keys()) == {*GRAPH, *REPORTS}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_shows_every_asset_of_its_family(name: str) -> None:
    family = name.removesuffix("_report")
    assert names(node(name).parent_keys) == {asset for asset, (of, *_) in GRAPH.items() if of == family}
    assert (node(name).group_name, node(name).kinds >= {"html"}) == (family, True)
    assert node(name).backfill_policy == dg.BackfillPolicy.single_run()  # else `--select 'key:pretrain_raw+' --partition-range` fails


@pytest.mark.parametrize("name", GRAPH)
def test_asset(name: str) -> None:
    family, upstream, partitioned, checks = GRAPH[name]
    found, asset = node(name), ASSETS[name]
    assert (found.group_name, found.tags["prep_assets/family"], found.owners) == (family, family, ["team:data"])
    assert names(found.parent_keys) == upstream
    assert (found.partitions_def.get_partition_keys() if found.partitions_def else None) == (list(DOMAINS[family]) if partitioned else None)
    # a range of partitions is one run, also where an asset has none
    assert found.backfill_policy == dg.BackfillPolicy.single_run()
    # it is rebuilt by itself exactly when it is made from another one
    assert (found.automation_condition is not None) == bool(upstream)
    first_line = found.description.split("\n")[0]
    assert 20 < len(first_line) < 120 and first_line.endswith(".")
    assert found.kinds >= {"python"} and len(found.kinds) > 1
    assert found.code_version.partition("-")[0] == asset.version != ""
    assert ("-" in found.code_version) == bool(asset.options)
    if asset.streams or name.endswith("_raw"):
        columns = found.metadata["columns"].columns
        assert columns and all(column.type and column.description for column in columns)
    assert {key.name for key in found.check_keys} == checks
    for spec in map(graph.get_check_spec, found.check_keys):
        assert spec.blocking and spec.description and spec.description.endswith(".")
        assert spec.partitions_def == found.partitions_def


def test_partitions_of_a_family_are_one_definition() -> None:
    # a run over a range needs one definition that all partitioned assets of it share
    for family in DOMAINS:
        assert len({id(node(name).partitions_def) for name, (of, _, partitioned, _) in GRAPH.items() if of == family and partitioned}) == 1


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
    assert set(sensors) == {"rebuild_downstream", "scrub", "built_elsewhere", *(f"{family}_sources" for family in DOMAINS)}
    # the one that starts no run
    running = {name for name, sensor in sensors.items() if sensor.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {"built_elsewhere"}
    assert all(sensor.description for sensor in sensors.values())
    schedules = {schedule.name: schedule for schedule in repository.schedule_defs}
    assert set(schedules) == {f"nightly_{family}" for family in DOMAINS}
    assert {schedule.default_status for schedule in schedules.values()} == {dg.DefaultScheduleStatus.STOPPED}
    assert {(schedule.cron_schedule, schedule.execution_timezone) for schedule in schedules.values()} == {("0 3 * * *", "UTC")}
    # each starts the job of its family, and every such job holds together
    for family in DOMAINS:
        assert sensors[f"{family}_sources"].job_name == f"refresh_{family}"
        assert schedules[f"nightly_{family}"].job_name == f"rebuild_{family}"
    assert {job.name for job in repository.get_all_jobs()} >= {
        f"{kind}_{each}" for kind in ("refresh", "rebuild", "mend") for each in DOMAINS
    }


def test_what_users_name_in_their_files_stays() -> None:
    """The component of `defs.yaml`, the names of the package, the module of `workspace.yaml`, and the resources of its assets."""
    assert {"TrainingData", "StoreIOManager"} <= {*prep_assets.__all__} & {*dir(prep_assets)}
    assert issubclass(prep_assets.TrainingData, dg.Component) and issubclass(prep_assets.StoreIOManager, dg.ConfigurableIOManager)
    assert import_module("prep_assets.definitions").defs is defs
    assert {*defs.resources} == {"workspace", "prep_assets_stores"}


def test_every_way_to_load_the_code_location_gives_it_one_name() -> None:
    # sensors and schedules lose their state when the name changes with the way of starting
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    served = yaml.safe_load((ROOT / "workspace.yaml").read_text("utf-8"))["load_from"][0]["python_module"]
    assert project["dagster"] == {"module_name": served["module_name"], "code_location_name": served["location_name"]}
    assert project["dg"]["project"]["code_location_name"] == served["location_name"]
    assert project["dg"]["project"]["code_location_target_module"] == served["module_name"] == "prep_assets.definitions"


def test_an_instance_with_run_monitoring_opens(tmp_path: Path) -> None:
    """Its launcher cannot say whether a process lives, so nothing may ask it to resume a run."""
    shutil.copy(ROOT / "tools" / "venv" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_start_timeout_seconds == 300
    assert {".dagster/", ".tmp_dagster_home_*"} <= set((ROOT / ".gitignore").read_text("utf-8").split())


# -- groups ------------------------------------------------------------------------------------------------------------------------------


# -- an RL family of which one domain has prompts and another scored groups: Dagster gives all assets of a job the partitions of both ----


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    families = with_groups(shipped(), tmp_path / "groups", 12)
    families["rl"]["arithmetic"] = {"n": 12}
    families["rl"]["domains"]["gsm8k"]["max_items"] = 12
    return workspace_in(tmp_path, {"rl": families["rl"]})


def carried_out(workspace: Workspace, job: str, **how: Any) -> dg.DagsterInstance:
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    instance = dg.DagsterInstance.ephemeral()
    result = definitions(site).get_repository_def().get_job(job).execute_in_process(instance=instance, raise_on_error=False, **how)
    assert result.success, failures(result)
    return instance


def test_a_whole_family_is_built(workspace: Workspace) -> None:
    instance = carried_out(workspace, "rebuild_rl", tags={RANGE_START: "gsm8k", RANGE_END: "scored"})
    for asset, domain in (("rl_prompts_by_domain", "gsm8k"), ("rl_groups_by_domain", "scored"), ("rl_prompts", ""), ("rl_groups", "")):
        assert workspace.published(asset, domain) is not None
    assert instance.get_materialized_partitions(dg.AssetKey("rl_prompts_by_domain")) == {"gsm8k"}
    assert instance.get_materialized_partitions(dg.AssetKey("rl_groups_by_domain")) == {"scored"}
    assert all([each.passed for each in evaluations(instance, "rl_groups", check)] == [True] for check in checks_of("rl_groups"))


# -- what `make setup` puts into the checkout's own `.venv`, so that the plain `dagster` command finds the project and keeps its history -


SITE = ROOT / "tools" / "venv" / "sitecustomize.py"
USUAL = ["/some/where/bin/dagster", "asset", "materialize", "--select", "sft_packed"]


@pytest.fixture(scope="module")
def site() -> Any:
    spec = importlib.util.spec_from_file_location("site_of_the_checkout", SITE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "root" / ".dagster").mkdir(parents=True)
    (tmp_path / "root" / ".dagster" / "dagster.yaml").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").touch()
    return tmp_path / "root"


MODULE, HISTORY = {"DAGSTER_MODULE_NAME": "prep_assets.definitions"}, {"DAGSTER_HOME": "ROOT/.dagster"}
NAMED = [*USUAL, "-m", "prep_assets.definitions"]


@pytest.mark.parametrize(
    ("argv", "folder", "expected"),
    [
        *(
            (argv, folder, MODULE | HISTORY)
            for argv in (USUAL, ["dagster", "asset", "list"], [*USUAL, "-c", "run.yaml"])
            for folder in ("root", "root/configs")
        ),
        # other commands read workspace.yaml or pyproject.toml, and refuse a module beside it; `dagster schedule list` stopped without a home
        *((["dagster", *command], "root", HISTORY) for command in (["dev"], ["definitions", "validate"], ["schedule", "list"], [])),
        # from another folder the history goes where the stores go: they were written in the checkout, and the history of the run elsewhere
        (NAMED, "elsewhere", HISTORY),
        ([*USUAL, "-m", "mine.definitions"], "elsewhere", {}),
        (USUAL, "elsewhere", {}),
        (NAMED, "home", {}),
        # another program is left alone
        *(([program, "asset", "materialize"], "root", {}) for program in ("/usr/bin/python", "dagster-webserver", "pytest", "-c", "")),
        ([], "root", {}),
        # whoever names another target gets that
        *(
            ([*USUAL, *pointer.split()], "root", HISTORY)
            for pointer in (
                *("-m mine.definitions", "-mmine.definitions", "--module-name=mine.definitions", "-f mine.py", "--python-file=mine.py"),
                *("--package-name mine", "--autoload-defs-module-name mine", "-d elsewhere -f mine.py"),
            )
        ),
    ],
    ids=str,
)
def test_what_the_command_is_given(site: Any, checkout: Path, argv: list[str], folder: str, expected: dict[str, str]) -> None:
    found = site.settings(argv, str(checkout.parent / folder), {}, str(checkout))
    assert {name: value.replace(str(checkout), "ROOT") for name, value in found.items()} == expected


def test_what_is_set_already_stays(site: Any, checkout: Path) -> None:
    assert site.settings(USUAL, str(checkout), {"DAGSTER_MODULE_NAME": "mine", "DAGSTER_HOME": "/mine"}, str(checkout)) == {}


@pytest.mark.cli
def test_python_reads_it_when_it_starts_in_the_venv(checkout: Path) -> None:
    folder = checkout / ".venv" / "lib" / "python3" / "site-packages"
    folder.mkdir(parents=True)
    shutil.copy(SITE, folder)
    script = checkout / "dagster"
    script.write_text("import os; print(os.environ.get('DAGSTER_MODULE_NAME'), os.environ.get('DAGSTER_HOME'))", "utf-8")
    hidden = ("DAGSTER_MODULE_NAME", "DAGSTER_HOME")
    env = {**{key: value for key, value in os.environ.items() if key not in hidden}, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(script), "asset", "materialize", "--select", "sft_packed"]
    said = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["prep_assets.definitions", str(checkout / ".dagster")]


# -- automation: what is rebuilt by itself after a change, and what is not while a blocking check fails ----------------------------------


SFT = DOMAINS["sft"]
WHOLE = (SFT[0], SFT[-1])


class Daemon:
    """Evaluates all automation conditions, tick after tick, and says what each tick requests of the SFT family."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.cursor = instance, None

    def tick(self) -> dict[str, set[str]]:
        result = dg.evaluate_automation_conditions(defs=defs, instance=self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        requested: dict[str, set[str]] = {}
        for asset in ("sft_raw", "sft_tokens", "sft_packed"):
            key = dg.AssetKey(asset)
            if result.get_num_requested(key):
                requested[asset] = set(result.get_requested_partitions(key)) - {None}
        return requested


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """(asset, partition) whose accounting fails."""
    chosen: set[tuple[str, str]] = set()

    def verdict(check: Check, workspace: Workspace, published: Published) -> Verdict:
        if check.name == "accounting" and (published.manifest.asset, published.manifest.partition) in chosen:
            return Verdict(False, "one record is missing")
        return run_check(check, workspace, published)

    monkeypatch.setattr("prep_assets.engine.execute.run_check", verdict)
    return chosen


@pytest.fixture
def daemon(built: Path, instance: dg.DagsterInstance) -> Daemon:
    """A daemon that has seen everything built once."""
    assert run(instance, "sft_raw", "sft_tokens", "sft_packed", between=WHOLE).success
    daemon = Daemon(instance)
    assert daemon.tick() == {}
    return daemon


def test_what_changed_is_asked_for_downstream_and_nothing_while_a_check_fails(daemon: Daemon, failing: set[tuple[str, str]]) -> None:
    # a new source asks for its tokens, and these for the packed table
    assert run(daemon.instance, "sft_raw", partition="dolly").success
    assert daemon.tick() == {"sft_tokens": {"dolly"}}
    assert run(daemon.instance, "sft_tokens", partition="dolly").success
    assert daemon.tick() == {"sft_packed": set()}
    assert run(daemon.instance, "sft_packed").success
    assert daemon.tick() == {}
    # nothing downstream of a failed check, until it passes
    failing.add(("sft_raw", "dolly"))
    assert not run(daemon.instance, "sft_raw", partition="dolly").success
    assert daemon.tick() == {}
    assert daemon.tick() == {}
    failing.clear()
    assert run(daemon.instance, "sft_raw", partition="dolly").success
    assert daemon.tick() == {"sft_tokens": {"dolly"}}
    # a domain that passes does not release one that fails
    failing.add(("sft_tokens", "chats"))
    run(daemon.instance, "sft_tokens", partition="chats")
    run(daemon.instance, "sft_tokens", partition="dolly")
    assert daemon.tick() == {}


def test_stores_that_were_built_without_dagster_keep_nothing_waiting(built: Path, instance: dg.DagsterInstance) -> None:
    daemon = Daemon(instance)
    assert daemon.tick() == {}
    assert run(instance, "sft_raw", "sft_tokens", partition="dolly").success
    assert daemon.tick() == {"sft_packed": set()}


def test_a_metric_outside_of_limits_that_warn_keeps_nothing_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: dg.DagsterInstance
) -> None:
    folder = tmp_path / "configs"
    shutil.copytree(CONFIGS, folder)
    bounds = "quality: {bounds: {sft_raw.read: {warn: {min: 100000}}}}\n"
    (folder / "sft.yaml").write_text((folder / "sft.yaml").read_text("utf-8") + bounds, "utf-8")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(folder))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(tmp_path / "stores"))
    loaded = definitions(Site())
    before = dg.evaluate_automation_conditions(defs=loaded, instance=history)
    assert run_of_exports(loaded, history, "sft_raw", "dolly")
    latest = {
        key.name: history.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
        for key in loaded.resolve_asset_graph().asset_check_keys
        if key.asset_key == dg.AssetKey("sft_raw")
    }
    passed = {name: record.event.dagster_event.event_specific_data.passed for name, record in latest.items()}
    assert passed == {"file_hashes": True, "accounting": True, "warnings": False}
    after = dg.evaluate_automation_conditions(defs=loaded, instance=history, cursor=before.cursor)
    requested = after.get_requested_partitions(dg.AssetKey("sft_tokens"))
    assert "dolly" in requested


def test_the_sensor_covers_every_asset_that_has_a_condition() -> None:
    graph = defs.resolve_asset_graph()
    sensor = defs.get_repository_def().get_sensor_def("rebuild_downstream")
    covered = sensor.asset_selection.resolve(graph)
    assert {key for key in graph.get_all_asset_keys() if graph.get(key).automation_condition} <= covered


# -- configured exports as Dagster's assets. Without any in the configuration, the graph is that of `test_graph` -------------------------


EXPORTS = {
    "sft.yaml": "exports:\n  trl: {from: sft_packed, to: hf_arrow}\n  by_domain: {from: sft_tokens, to: mds}\n",
    "rl.yaml": "exports: {verl: {from: rl_prompts, to: verl, options: {data_source: openai/gsm8k}}}\n",
}
# asset → family, source, whether it is partitioned
ADDED = {
    "sft_export_trl": ("sft", "sft_packed", False),
    "sft_export_by_domain": ("sft", "sft_tokens", True),
    "rl_export_verl": ("rl", "rl_prompts", False),
}


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped configuration with exports, which everything in the test reads."""
    folder = tmp_path / "configs"
    shutil.copytree(CONFIGS, folder)
    for name, text in EXPORTS.items():
        (folder / name).write_text((folder / name).read_text("utf-8") + text, "utf-8")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(folder))
    return folder


@pytest.fixture
def with_exports(configs: Path) -> dg.Definitions:
    """The definitions as they load with this configuration."""
    return definitions(Site())


@pytest.fixture
def history() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as fresh:
        yield fresh


def run_of_exports(loaded: dg.Definitions, instance: dg.DagsterInstance, asset: str, partition: str | None = None) -> bool:
    job = loaded.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(asset)], partition_key=partition, raise_on_error=False)
    return result.success


def test_the_graph_grows_by_the_configured_exports(with_exports: dg.Definitions) -> None:
    graph = with_exports.resolve_asset_graph()
    assert names(graph.get_all_asset_keys()) == {*GRAPH, *ADDED, *REPORTS}
    for name, (family, source, partitioned) in ADDED.items():
        found: Any = graph.get(dg.AssetKey(name))
        assert (found.group_name, names(found.parent_keys)) == (family, {source})
        assert (found.partitions_def is not None) == partitioned
        assert found.partitions_def is None or found.partitions_def.get_partition_keys() == list(DOMAINS[family])
        assert found.kinds >= {"python"} and len(found.kinds) == 2
        assert found.description and found.code_version and found.automation_condition
        assert {key.name: graph.get_check_spec(key).blocking for key in found.check_keys} == {"file_hashes": True, "readable": True}


def test_an_export_builds_what_it_needs_and_is_checked(with_exports: dg.Definitions, history: dg.DagsterInstance, stores: Path) -> None:
    assert run_of_exports(with_exports, history, "sft_export_trl")
    table = open_stream(open_published(stores, "sft_packed").directory, "sft_packed")
    folder = stores / "sft_export_trl" / "current"
    listed = json.loads((folder / "state.json").read_text("utf-8"))["_data_files"]
    rows = pa.concat_tables([pa.ipc.open_stream(folder / each["filename"]).read_all() for each in listed])
    assert len(rows) == len(table)
    length = len(rows["input_ids"][0])
    assert rows["input_ids"][0].as_py() == packed_rows(table)[0][:length].tolist()
    assert [evaluation.passed for check in ("file_hashes", "readable") for evaluation in evaluations(history, "sft_export_trl", check)] == [
        True
    ] * 2
    (made,) = materializations(history, "sft_export_trl")
    assert plain(made.metadata)["dagster/row_count"] == len(table)


PRIVATE = {
    ("dagster._core.definitions.asset_checks.asset_check_evaluation", "AssetCheckEvaluationTargetMaterializationData"),
    ("dagster._core.definitions.source_asset", "SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION"),
}


def test_private_names_of_dagster_are_the_known_ones() -> None:
    """They are why pyproject.toml has an upper bound."""
    trees = (ast.parse(path.read_text("utf-8")) for path in (ROOT / "prep_assets" / "extensions" / "dagster").glob("*.py"))
    taken = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    assert {(node.module, each.name) for node in taken for each in node.names if (node.module or "").startswith("dagster._")} == PRIVATE
    assert "<1.14" in next(line for line in (ROOT / "pyproject.toml").read_text("utf-8").splitlines() if '"dagster>=' in line)


def test_a_faulty_export_is_told_with_its_name(configs: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = configs / "rl.yaml"
    path.write_text(path.read_text("utf-8").replace("to: verl", "to: verll"), "utf-8")
    loaded = definitions(Site())
    assert "rl_export_verl" not in names(loaded.resolve_asset_graph().get_all_asset_keys())
    assert "exports.verl.to: no export format 'verll'; did you mean 'verl'" in caplog.text
