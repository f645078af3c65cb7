"""Data versions follow the content of a store and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.defs.conftest import Everything
from prep_assets_tests.defs.runs import data_version, materializations, run, stale

PREFERENCE = [name for name, asset in ASSETS.items() if asset.family == "preference"]


def latest(instance: dg.DagsterInstance, asset: str) -> dg.AssetMaterialization:
    return materializations(instance, asset)[0]


@pytest.mark.parametrize("asset", ["sft_packed", "preferences", "rl_prompts", "arithmetic_prompts"])
def test_the_version_is_the_content_hash(everything: Everything, monkeypatch: pytest.MonkeyPatch, asset: str) -> None:
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(everything.stores))
    published = Workspace.open().built(asset)
    found = latest(everything.instance, asset)
    assert len(data_version(found)) == 32
    assert published.manifest.content_hash.startswith(data_version(found))
    assert found.metadata["content_hash"].value == data_version(found)


def test_an_unchanged_rebuild_has_the_same_version_whether_reused_or_not(built: Path, instance: dg.DagsterInstance) -> None:
    run(instance, "sft_packed")
    shutil.rmtree(built / "sft_packed")
    run(instance, "sft_packed")
    after, before = materializations(instance, "sft_packed")
    assert (before.metadata["reused"].value, after.metadata["reused"].value) == (True, False)
    assert data_version(before) == data_version(after)


def test_other_content_has_another_version(built: Path, instance: dg.DagsterInstance) -> None:
    run(instance, "arithmetic_prompts")
    run(instance, "arithmetic_prompts", options={"arithmetic_prompts": {"arithmetic": {"seed": 1}, "publish": True}})
    run(instance, "arithmetic_prompts")
    again, other, first = (data_version(each) for each in materializations(instance, "arithmetic_prompts"))
    assert first == again != other


def test_another_way_to_the_same_content_has_the_same_version(built: Path, instance: dg.DagsterInstance) -> None:
    # the build key differs, the bytes do not: what is downstream is reused
    run(instance, "sft_tokens", partition="dolly")
    run(instance, "sft_tokens", partition="dolly", options={"sft_tokens": {"preprocessing": {"max_seq_len": 1023}, "publish": True}})
    second, first = materializations(instance, "sft_tokens")
    assert first.metadata["build_key"] != second.metadata["build_key"]
    assert data_version(first) == data_version(second) == first.metadata["content_hash"].value


def test_each_partition_of_a_range_has_the_version_of_its_own_content(built: Path, instance: dg.DagsterInstance) -> None:
    """One combined version for all marked each as out of sync after the next run of one of them."""
    assert run(instance, "sft_raw", "sft_tokens", between=("gsm8k", "alpaca")).success
    for asset in ("sft_raw", "sft_tokens"):
        for partition in ("gsm8k", "alpaca"):
            found = next(each for each in materializations(instance, asset) if each.partition == partition)
            assert data_version(found) == found.metadata["content_hash"].value


def test_a_run_of_one_partition_after_a_range_leaves_everything_in_sync(built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, "sft_raw", "sft_tokens", "sft_packed", between=("gsm8k", "chats")).success
    assert run(instance, "sft_raw", partition="dolly").success
    assert stale(instance, "sft_tokens", "dolly") == [] == stale(instance, "sft_packed")


def test_what_one_run_built_for_another_is_in_sync(stores: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, "preference_tokens").success
    assert [stale(instance, "preference_raw", each) for each in ("hh", "ultrafeedback")] == [[], []]
    assert [stale(instance, f"{name}_by_domain", "hh") for name in ("preferences", "preference_tokens")] == [[], []]
    assert stale(instance, "preferences") == [] == stale(instance, "preference_tokens")


def test_new_content_upstream_is_seen(built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, *PREFERENCE, between=("hh", "ultrafeedback")).success
    assert run(instance, "preferences", options={"preferences": {"seed": 5, "publish": True}}).success
    assert stale(instance, "preference_tokens") == ["preference_tokens has a new dependency data version"]
