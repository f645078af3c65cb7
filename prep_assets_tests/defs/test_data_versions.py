"""Data versions follow the content of a store and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from prep_assets.pipelines.workspace import Workspace
from prep_assets_tests.defs.conftest import Everything
from prep_assets_tests.defs.runs import data_version, materializations, run


def latest(instance: dg.DagsterInstance, asset: str) -> dg.AssetMaterialization:
    return materializations(instance, asset)[0]


@pytest.mark.parametrize("asset", ["sft_packed", "preferences", "rl_prompts", "arithmetic_prompts"])
def test_the_version_is_the_content_hash(everything: Everything, monkeypatch: pytest.MonkeyPatch, asset: str) -> None:
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(everything.stores))
    published = Workspace.open().published(asset)
    assert published is not None
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
    run(instance, "arithmetic_prompts", options={"arithmetic_prompts": {"arithmetic": {"seed": 1}}})
    run(instance, "arithmetic_prompts")
    again, other, first = (data_version(each) for each in materializations(instance, "arithmetic_prompts"))
    assert first == again != other


def test_another_way_to_the_same_content_has_the_same_version(built: Path, instance: dg.DagsterInstance) -> None:
    # the build key differs, the bytes do not: what is downstream is reused
    run(instance, "sft_tokens", partition="dolly")
    run(instance, "sft_tokens", partition="dolly", options={"sft_tokens": {"preprocessing": {"max_seq_len": 1023}}})
    second, first = materializations(instance, "sft_tokens")
    assert first.metadata["build_key"] != second.metadata["build_key"]
    assert data_version(first) == data_version(second) == first.metadata["content_hash"].value


def test_a_range_has_one_version_made_of_all_its_contents(built: Path, instance: dg.DagsterInstance) -> None:
    # Dagster has one data version per step; each partition's own hash is in its metadata
    shorter = {"sft_tokens": {"preprocessing": {"max_seq_len": 100}}}
    for options in (None, None, shorter):
        assert run(instance, "sft_tokens", between=("gsm8k", "alpaca"), options=options).success
    found = materializations(instance, "sft_tokens")
    changed, again, first = ({data_version(each) for each in found[at : at + 2]} for at in (0, 2, 4))
    assert len(first) == 1 and first == again
    assert len(changed) == 1 and changed != first
    assert len({each.metadata["content_hash"].value for each in found[4:]}) == 2
