"""Assets of an adopter below ours, and what the IO manager gives them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import h5py
import numpy as np
import pytest

import prep_assets as pa
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets_tests.extensions.dagster.conftest import Everything
from prep_assets_tests.extensions.dagster.runs import CONFIGS, DOMAINS, RANGE_END, RANGE_START, failures
from prep_assets_tests.graph.workspaces import build, minimal, workspace_in
from prep_assets_tests.graph.workspaces import domain as one_file
from prep_assets_tests.stored import packed_rows

KEY = "prep_assets_stores"
SFT = dg.StaticPartitionsDefinition(list(DOMAINS["sft"]))


@cache
def ours(manager: pa.StoreIOManager) -> dg.Definitions:
    return definitions(Site(WorkspaceResource(configs=str(CONFIGS)), manager), whole_project=False)


def adopted(stores: Path, *assets: dg.AssetsDefinition, **options: Any) -> dg.Definitions:
    """Our definitions merged with those of a project, in one line."""
    return dg.Definitions.merge(ours(pa.StoreIOManager(store_dir=str(stores), **options)), dg.Definitions(assets=list(assets)))


def given(stores: Path, asset: dg.AssetsDefinition, partition: str | None = None, **options: Any) -> Any:
    """What an asset returns that was run alone, on stores that are there."""
    job = adopted(stores, asset, **options).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, asset_selection=[asset.key], partition_key=partition, raise_on_error=False)
        return result.output_for_node(asset.op.name) if result.success else failures(result)


def asset(annotation: Any, name: str = "sft_packed", partitions: Any = None, **metadata: Any) -> dg.AssetsDefinition:
    """An asset that returns what it was given, with an argument of this name and annotation."""

    def mine(found):  # type: ignore[no-untyped-def]
        return found

    if annotation is not None:
        mine.__annotations__["found"] = annotation
    made = dg.asset(ins={"found": dg.AssetIn(name, metadata=metadata)}, partitions_def=partitions, io_manager_def=dg.mem_io_manager)(mine)
    assert isinstance(made, dg.AssetsDefinition)
    return made


def table(stores: Path, name: str = "sft_packed") -> np.ndarray[Any, Any]:
    """The tokens of a packed table, read by h5py alone."""
    with h5py.File(stores / "sft_packed" / "current" / f"{name}.h5") as file:
        return np.asarray(file["tokens"])


@pytest.mark.parametrize("annotation", [None, pa.Table])
def test_a_packed_table_comes_as_a_table(everything: Everything, annotation: Any) -> None:
    found = given(everything.stores, asset(annotation))
    assert isinstance(found, pa.Table) and np.array_equal(packed_rows(found), table(everything.stores))


def test_arrays_are_mapped(everything: Everything) -> None:
    found = given(everything.stores, asset(dict[str, np.ndarray]))
    assert np.array_equal(found["tokens"], table(everything.stores)) and found["loss_mask"].shape == found["tokens"].shape
    assert np.array_equal(given(everything.stores, asset(np.ndarray)), table(everything.stores))
    base: Any = given(everything.stores, asset(np.ndarray), verify="off")
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert base is not None, "the tokens were read into memory"


def test_a_torch_data_set_comes_where_one_is_asked_for(everything: Everything) -> None:
    data = pytest.importorskip("torch.utils.data")
    rows = given(everything.stores, asset(data.Dataset))
    assert np.array_equal(rows[0]["input_ids"].numpy(), table(everything.stores)[0])
    windows = given(everything.stores, asset(dict[str, data.Dataset], "sft_tokens", window_size=64))
    assert {name: len(each[0]["input_ids"]) for name, each in windows.items()} == dict.fromkeys(DOMAINS["sft"], 64)
    pairs = given(everything.stores, asset(data.Dataset, "preference_tokens"))
    assert {"chosen", "rejected", "chosen_mask", "rejected_mask"} <= set(pairs[0])
    assert "AssetIn(metadata={'window_size': 2048})" in given(everything.stores, asset(dict[str, data.Dataset], "sft_tokens"))


def test_a_blend_comes_as_its_data_set(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")
    source = {"a": one_file("docs.jsonl.zst", "text")}
    workspace = workspace_in(tmp_path, minimal("pretrain", source, blend={"window": 16, "tokens": 160}))
    build(workspace, "pretrain_blend")
    reader = asset(data.Dataset, "pretrain_blend")
    stores = pa.StoreIOManager(store_dir=str(workspace.stores))
    result = dg.materialize([dg.AssetSpec("pretrain_blend"), reader], resources={"io_manager": stores})
    assert len(result.output_for_node(reader.op.name)) == 10


def test_rows_of_jsonl_come_as_lines_or_as_a_list(everything: Everything) -> None:
    path = everything.stores / "preferences" / "current" / "preferences.jsonl"
    expected = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = given(everything.stores, asset(None, "preferences"))
    assert isinstance(found, pa.Table) and list(found) == expected
    assert given(everything.stores, asset(list[dict], "preferences")) == expected
    held_out = given(everything.stores, asset(list[dict], "preferences", stream="preferences_test"))
    assert len(held_out) == len(path.with_name("preferences_test.jsonl").read_text("utf-8").splitlines()) < len(expected)


def test_a_path_is_the_folder_of_the_version(everything: Everything) -> None:
    found = given(everything.stores, asset(Path))
    assert found == (everything.stores / "sft_packed" / "current").resolve()


def test_below_domains_one_asset_gets_all_and_an_asset_of_domains_its_own(everything: Everything) -> None:
    every = given(everything.stores, asset(None, "sft_tokens"))
    assert {name: type(each) for name, each in every.items()} == dict.fromkeys(DOMAINS["sft"], pa.Table)
    assert {name: type(each) for name, each in given(everything.stores, asset(dict[str, np.ndarray], "sft_tokens")).items()}
    own = given(everything.stores, asset(pa.Table, "sft_tokens", SFT), "dolly")
    assert np.array_equal(*(np.asarray(each.columns["tokens"].values) for each in (own, every["dolly"])))


def test_an_export_comes_as_its_folder(tmp_path: Path) -> None:
    options = minimal("sft", {"rows": one_file("gsm8k.jsonl", "gsm8k")}, exports={"trl": {"from": "sft_packed", "to": "hf_parquet"}})
    workspace = workspace_in(tmp_path, options)
    pa.build(workspace, "sft_export_trl")
    site = Site(WorkspaceResource(configs=str(workspace.configs)), pa.StoreIOManager(store_dir=str(workspace.stores)))
    mine = asset(None, "sft_export_trl")
    defs = dg.Definitions.merge(definitions(site, whole_project=False), dg.Definitions(assets=[mine]))
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(asset_selection=[mine.key])
    assert list(result.output_for_node("mine").glob("**/*.parquet"))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda store: shutil.rmtree(store), "sft_packed: no store in"),
        (lambda store: (store / "current" / "manifest.json").unlink(), "manifest"),
        (lambda store: (store / "current" / "sft_packed.h5").write_bytes(b"short"), "is not what its manifest says"),
    ],
)
def test_a_store_that_is_missing_or_damaged_is_said_with_the_command(built: Path, spoil: Callable[[Path], Any], says: str) -> None:
    spoil(built / "sft_packed")
    said = given(built, asset(pa.Table), verify="full")
    assert says in said and "prep-assets build sft_packed" in said
    assert "Traceback" not in said


def test_what_is_not_there_to_be_opened_is_said_in_a_sentence(everything: Everything) -> None:
    assert "sft_packed has no stream 'sft_dev_pack'; did you mean 'sft_dev_packed'?" in given(
        everything.stores, asset(None, stream="sft_dev_pack")
    )
    assert "annotate the argument with Path" in given(everything.stores, asset(None, "sft_template"))
    assert "preferences is JSONL, which has no arrays" in given(everything.stores, asset(np.ndarray, "preferences"))


def test_no_output_is_missing_and_each_store_is_recorded_where_it_is(tmp_path: Path) -> None:
    """How often it is recorded, and with which version: `test_building`."""
    job = adopted(tmp_path).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        selection = [dg.AssetKey(name) for name in ("sft_raw", "sft_tokens", "sft_packed")]
        result = job.execute_in_process(instance=instance, asset_selection=selection, tags={RANGE_START: "gsm8k", RANGE_END: "chats"})
        assert not [entry for entry in instance.all_logs(result.run_id) if "did not yield" in entry.user_message]
    stored = [each.event_specific_data.materialization for each in result.all_events if each.event_type_value == "ASSET_MATERIALIZATION"]
    for each in stored:
        store = tmp_path / each.asset_key.path[0] / (each.partition or "") / "current" / "manifest.json"
        assert store.is_file() and each.metadata["path"].value == str(store.parent.resolve())
    handled = [event for event in result.all_events if event.event_type_value == "HANDLED_OUTPUT"]
    assert {event.event_specific_data.manager_key for event in handled} == {KEY}


def test_dagster_and_the_command_line_give_the_same_bytes(everything: Everything, tmp_path: Path) -> None:
    workspace = pa.Workspace(CONFIGS, tmp_path)
    pa.build(workspace, "sft_packed")

    def files(root: Path) -> dict[str, bytes]:
        folder = (root / "sft_packed" / "current").resolve()
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert files(tmp_path) == files(everything.stores)


def test_stores_of_a_run_that_dies_are_taken_up_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the checks of a store and its publication nothing but time is lost."""
    from prep_assets.engine import execute as checking
    from prep_assets.extensions.dagster import io_manager

    job = adopted(tmp_path).resolve_implicit_global_asset_job_def()

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setattr(io_manager, "make_current", dies)
        with pytest.raises(BaseException):  # noqa: B017  (whatever Dagster makes of it)
            job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("sft_raw")], partition_key="chats")
    assert (tmp_path / "sft_raw" / "chats" / "candidate").exists() and not (tmp_path / "sft_raw" / "chats" / "current").exists()
    monkeypatch.setattr(checking, "run_check", dies)  # its checks held, and are not run again
    with dg.DagsterInstance.ephemeral() as instance:
        tags = {"dagster/schedule_name": "nightly_sft"}
        assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("sft_raw")], partition_key="chats", tags=tags).success
    assert (tmp_path / "sft_raw" / "chats" / "current").exists()


def test_rows_of_an_asset_of_the_project_become_a_store(everything: Everything, tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    shutil.copytree(everything.stores, stores, symlinks=True)

    @dg.asset(io_manager_key=KEY)
    def short_preferences(preferences):  # type: ignore[no-untyped-def]
        return [row for number, row in enumerate(preferences) if number % 3 == 0]

    @dg.asset(io_manager_def=dg.mem_io_manager)
    def counted(short_preferences: list[dict]) -> int:  # type: ignore[type-arg]
        return len(short_preferences)

    defs = adopted(stores, short_preferences, counted)
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(asset_selection=[short_preferences.key, counted.key])
    lines = (stores / "preferences" / "current" / "preferences.jsonl").read_text("utf-8").splitlines()
    kept = (stores / "short_preferences" / "current" / "rows.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in kept] == [json.loads(line) for line in lines[::3]] and result.output_for_node("counted") == len(
        kept
    )
    pa.build(pa.Workspace(CONFIGS, stores), "preferences")  # the command line leaves it alone
    assert (stores / "short_preferences" / "current").exists()

    @dg.asset(io_manager_key=KEY)
    def number() -> int:
        return 3

    said = given(stores, number)
    assert "number returned int" in said and "another io_manager_key" in said


def test_only_a_manager_of_stores_can_take_its_place(tmp_path: Path) -> None:
    site = Site(WorkspaceResource(configs=str(CONFIGS)), pa.StoreIOManager(store_dir=str(tmp_path)))
    family = [each for each in definitions(site, only=("sft",), whole_project=False).assets or [] if isinstance(each, dg.AssetsDefinition)]
    resources = {"workspace": site.workspace, KEY: dg.InMemoryIOManager()}
    result = dg.materialize(family, selection=["sft_raw"], partition_key="chats", resources=resources, raise_on_error=False)
    assert "resource 'prep_assets_stores' is InMemoryIOManager" in failures(result)
    # another place is one line
    resources[KEY] = pa.StoreIOManager(store_dir=str(tmp_path / "elsewhere"))
    assert dg.materialize(family, selection=["sft_raw"], partition_key="chats", resources=resources).success
    assert (tmp_path / "elsewhere" / "sft_raw" / "chats" / "current").exists() and not (tmp_path / "sft_raw").exists()


def test_a_test_of_an_adopter_needs_one_asset_and_a_small_store(everything: Everything) -> None:
    packed = dg.AssetSpec("sft_packed").with_io_manager_key(KEY)
    result = dg.materialize([packed, asset(pa.Table)], resources={KEY: pa.StoreIOManager(store_dir=str(everything.stores))})
    assert len(result.output_for_node("mine")) == len(table(everything.stores))
