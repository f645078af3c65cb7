"""Configured exports as Dagster's assets. Without any in the configuration, the graph is that of `test_graph`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from prep_assets.definitions import defs
from prep_assets.defs.site import Site
from prep_assets.defs.together import definitions
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import open_published
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.defs.runs import DOMAINS, evaluations, materializations, plain
from prep_assets_tests.defs.test_graph import GRAPH, REPORTS, names

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
    shutil.copytree(ROOT / "configs", folder)
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


def run(loaded: dg.Definitions, instance: dg.DagsterInstance, asset: str, partition: str | None = None) -> bool:
    job = loaded.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(asset)], partition_key=partition, raise_on_error=False)
    return result.success


def test_as_shipped_there_are_none() -> None:
    assert names(defs.resolve_asset_graph().get_all_asset_keys()) == {*GRAPH, *REPORTS}


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
    assert run(with_exports, history, "sft_export_trl")
    table = open_packed(open_published(stores, "sft_packed").directory, "sft_packed")
    folder = stores / "sft_export_trl" / "current"
    listed = json.loads((folder / "state.json").read_text("utf-8"))["_data_files"]
    rows = pa.concat_tables([pa.ipc.open_stream(folder / each["filename"]).read_all() for each in listed])
    assert len(rows) == len(table)
    length = len(rows["input_ids"][0])
    assert rows["input_ids"][0].as_py() == table.tokens[0][:length].tolist()
    assert [evaluation.passed for check in ("file_hashes", "readable") for evaluation in evaluations(history, "sft_export_trl", check)] == [
        True
    ] * 2
    (made,) = materializations(history, "sft_export_trl")
    assert plain(made.metadata)["dagster/row_count"] == len(table)


def test_one_partition_of_a_partitioned_export(with_exports: dg.Definitions, history: dg.DagsterInstance, built: Path) -> None:
    assert run(with_exports, history, "sft_export_by_domain", "dolly")
    assert [each.name for each in (built / "sft_export_by_domain").iterdir()] == ["dolly"]
    assert (built / "sft_export_by_domain" / "dolly" / "current" / "index.json").is_file()


def test_a_damaged_export_fails_its_check(with_exports: dg.Definitions, history: dg.DagsterInstance, built: Path) -> None:
    assert run(with_exports, history, "rl_export_verl")
    path = built / "rl_export_verl" / "current" / "train.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    keys = [dg.AssetCheckKey(dg.AssetKey("rl_export_verl"), name) for name in ("file_hashes", "readable")]
    job = dg.define_asset_job("checks_only", selection=dg.AssetSelection.checks(*keys))
    resolved = dg.Definitions(assets=with_exports.assets, resources=with_exports.resources, jobs=[job]).resolve_job_def("checks_only")
    resolved.execute_in_process(instance=history, raise_on_error=False)
    for name in ("file_hashes", "readable"):
        assert not evaluations(history, "rl_export_verl", name)[0].passed


def test_a_faulty_export_is_told_with_its_name(configs: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = configs / "rl.yaml"
    path.write_text(path.read_text("utf-8").replace("to: verl", "to: verll"), "utf-8")
    loaded = definitions(Site())
    assert "rl_export_verl" not in names(loaded.resolve_asset_graph().get_all_asset_keys())
    assert "exports.verl.to: no export format 'verll'; did you mean 'verl'" in caplog.text
