"""Handles of stores for assets that take another one as an argument; and what the IO manager refuses to publish."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.defs import rl, sft
from prep_assets.defs.io_manager import StoreIOManager
from prep_assets.errors import SourceError
from prep_assets.pipelines.graph import ASSETS
from prep_assets.pipelines.workspace import Workspace
from prep_assets.stores.published import Published
from prep_assets_tests.defs.runs import DOMAINS, RANGE_END, RANGE_START, data_version, failures, materializations

SFT = list(DOMAINS["sft"])
Read = Callable[..., tuple[Any, dg.ExecuteInProcessResult]]


@pytest.fixture
def read(instance: dg.DagsterInstance) -> Read:
    """Runs an asset below another one, and gives what its argument was."""

    def run(upstream: str, *, partitions: dg.PartitionsDefinition[str] | None = None, **how: Any) -> tuple[Any, dg.ExecuteInProcessResult]:
        given: list[Any] = []

        @dg.asset(ins={"stores": dg.AssetIn(upstream)}, partitions_def=partitions, backfill_policy=dg.BackfillPolicy.single_run())
        def below(stores: Any) -> None:
            given.append(stores)

        assets = [below, getattr(sft if upstream.startswith("sft") else rl, upstream)]
        resources = {"stores": StoreIOManager()}
        result = dg.materialize(assets, selection=[below], instance=instance, resources=resources, raise_on_error=False, **how)
        return (given[0] if given else None), result

    return run


def paths(stores: dict[str, Published]) -> list[str]:
    return [store.directory.parents[1].name for store in stores.values()]


def test_an_asset_without_partitions_is_given_all_of_them_in_order(built: Path, read: Read) -> None:
    stores, result = read("sft_tokens")
    assert result.success
    assert list(stores) == SFT == paths(stores)


@pytest.mark.parametrize("chosen", [SFT[:2], SFT[1:3], SFT[1:], SFT], ids=len)
def test_a_range_gives_its_partitions_in_order(built: Path, read: Read, chosen: list[str]) -> None:
    tags = {RANGE_START: chosen[0], RANGE_END: chosen[-1]}
    stores, result = read("sft_tokens", partitions=dg.StaticPartitionsDefinition(SFT), tags=tags)
    assert result.success
    assert list(stores) == chosen == paths(stores)


def test_one_partition_is_a_mapping_as_well(built: Path, read: Read) -> None:
    stores, _ = read("sft_tokens", partitions=dg.StaticPartitionsDefinition(SFT), partition_key="dolly")
    assert list(stores) == ["dolly"] == paths(stores)


def test_a_family_of_one_domain_gives_a_mapping_as_well(built: Path, read: Read) -> None:
    stores, _ = read("rl_raw")
    assert list(stores) == ["gsm8k"] == paths(stores)


def test_an_asset_without_partitions_gives_one_store(built: Path, read: Read) -> None:
    store, result = read("sft_packed")
    assert result.success
    assert store == Workspace.open().published("sft_packed")
    assert store.directory.is_relative_to(built)


def test_missing_stores_name_the_command_that_builds_them(built: Path, read: Read) -> None:
    shutil.rmtree(built / "sft_tokens" / "dolly")
    shutil.rmtree(built / "sft_packed")
    _, result = read("sft_tokens")
    assert not result.success
    assert "sft_tokens[dolly]: no store" in failures(result)
    assert "dagster asset materialize --select sft_tokens --partition dolly" in failures(result)
    _, result = read("sft_packed")
    assert "  dagster asset materialize --select sft_packed" in failures(result).splitlines()


# -- what is written --------------------------------------------------------------------------------------------------------------------


@dataclass
class Output:
    """An asset in the place of `sft_raw` that returns what a test wants."""

    instance: dg.DagsterInstance

    def of(self, value: Callable[[Workspace], Any], **how: Any) -> dg.ExecuteInProcessResult:
        @dg.asset(
            partitions_def=dg.StaticPartitionsDefinition(SFT), backfill_policy=dg.BackfillPolicy.single_run(), io_manager_key="stores"
        )
        def sft_raw() -> Any:
            return dg.MaterializeResult(value=value(Workspace.open()))

        resources = {"stores": StoreIOManager()}
        return dg.materialize([sft_raw], instance=self.instance, resources=resources, raise_on_error=False, **how)


@pytest.fixture
def output(stores: Path, instance: dg.DagsterInstance) -> Iterator[Output]:
    yield Output(instance)


def builds(workspace: Workspace, *partitions: str) -> dict[str, Any]:
    return {partition: ASSETS["sft_raw"].build(workspace, partition) for partition in partitions}


@pytest.mark.parametrize("given", [("gsm8k",), ("gsm8k", "alpaca", "dolly"), ("gsm8k", "dolly"), ()], ids=len)
def test_other_partitions_than_asked_for_are_refused_before_anything_is_written(
    output: Output, stores: Path, given: tuple[str, ...]
) -> None:
    result = output.of(lambda workspace: builds(workspace, *given), tags={RANGE_START: "gsm8k", RANGE_END: "alpaca"})
    assert not result.success
    assert f"sft_raw: asked for partitions ['alpaca', 'gsm8k'], got {sorted(given)}" in failures(result)
    assert not list(stores.rglob("manifest.json"))
    assert not materializations(output.instance, "sft_raw")


def test_one_build_is_no_answer_to_a_request_for_partitions(output: Output, stores: Path) -> None:
    result = output.of(lambda workspace: builds(workspace, "gsm8k")["gsm8k"], partition_key="gsm8k")
    assert not result.success
    assert "asked for partitions ['gsm8k'], got ['']" in failures(result)


def test_the_order_in_which_an_asset_lists_its_partitions_does_not_matter(output: Output) -> None:
    versions = []
    for order in (("gsm8k", "alpaca"), ("alpaca", "gsm8k")):
        assert output.of(lambda workspace, order=order: builds(workspace, *order), tags={RANGE_START: "gsm8k", RANGE_END: "alpaca"}).success
        found = {each.partition: each for each in materializations(output.instance, "sft_raw")[:2]}
        assert found["gsm8k"].metadata["content_hash"] != found["alpaca"].metadata["content_hash"]
        versions.append(data_version(found["gsm8k"]))
    assert versions[0] == versions[1]


def test_a_store_that_cannot_be_made_fails_the_run_and_leaves_nothing(output: Output, stores: Path) -> None:
    def broken(workspace: Workspace) -> dict[str, Any]:
        def write(payload: Path, quarantine: Path) -> Any:
            (payload / "half").write_text("a half-written file", "utf-8")
            raise SourceError("the disk is full")

        found = builds(workspace, "gsm8k", "alpaca")
        return {**found, "alpaca": replace(found["alpaca"], write=write)}

    result = output.of(broken, tags={RANGE_START: "gsm8k", RANGE_END: "alpaca"})
    assert not result.success
    assert failures(result).count("sft_raw[alpaca]: ") == 1
    assert "the disk is full" in failures(result)
    assert not list(stores.rglob("half"))
    assert not materializations(output.instance, "sft_raw")
