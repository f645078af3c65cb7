"""Data versions follow the content of a store and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg

from prep_assets.graph.graph import ASSETS
from prep_assets_tests.extensions.dagster.runs import data_version, materializations, run, stale

PREFERENCE = [name for name, asset in ASSETS.items() if asset.family == "preference"]


def test_an_unchanged_rebuild_has_the_same_version_whether_reused_or_not(built: Path, instance: dg.DagsterInstance) -> None:
    run(instance, "sft_packed")
    shutil.rmtree(built / "sft_packed")
    run(instance, "sft_packed")
    after, before = materializations(instance, "sft_packed")
    assert (before.metadata["version"].value["reused"], after.metadata["version"].value["reused"]) == (True, False)
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
    assert first.metadata["version"].value["build_key"] != second.metadata["version"].value["build_key"]
    assert data_version(first) == data_version(second) == first.metadata["content_hash"].value


def test_a_run_of_one_partition_after_a_range_leaves_everything_in_sync(built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, "sft_raw", "sft_tokens", "sft_packed", between=("gsm8k", "chats")).success
    assert run(instance, "sft_raw", partition="dolly").success
    assert stale(instance, "sft_tokens", "dolly") == [] == stale(instance, "sft_packed")


def test_new_content_upstream_is_seen(built: Path, instance: dg.DagsterInstance) -> None:
    assert run(instance, *PREFERENCE, between=("hh", "ultrafeedback")).success
    assert run(instance, "preferences", options={"preferences": {"seed": 5, "publish": True}}).success
    assert stale(instance, "preference_tokens") == ["preference_tokens has a new dependency data version"]
