"""`--select sft_packed` and its like: what it is made from is built first, or the run stops and says how."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.data import tables as cuts
from prep_assets.engine import Statuses, state
from prep_assets.extensions.dagster import materialize as log
from prep_assets.graph.graph import ASSETS, family_assets
from prep_assets.pipeline.workspace import Workspace
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Plan, ShardResult, Work, carry_out
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.extensions.dagster.runs import (
    DOMAINS,
    RANGE_END,
    RANGE_START,
    checks_of,
    data_version,
    defs,
    evaluations,
    failures,
    materializations,
    run,
    stale,
)

SFT = DOMAINS["sft"]


def built_for(result: dg.ExecuteInProcessResult) -> list[str]:
    """Assets that a run materialized besides the one that was asked for, in order."""
    events = [event.step_materialization_data.materialization for event in result.all_events if event.is_step_materialization]
    return list(dict.fromkeys(each.asset_key.to_user_string() for each in events if "built_for" in each.metadata))


PAIRS = ("preference_raw", "preferences_by_domain", "preference_tokens_by_domain")
WHOLE = {"sft_raw": SFT, "sft_tokens": SFT, "sft_packed": (None,)}
RUNS: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, tuple[str | None, ...]]]] = {
    "from nothing": (".", {}, ("sft_packed",), WHOLE),
    # `--select '+key:sft_packed' --partition-range gsm8k...chats`
    "everything upstream is asked for": (".", {"between": (SFT[0], SFT[-1])}, tuple(WHOLE), WHOLE),
    "one partition": (".", {"partition": "dolly"}, ("sft_tokens",), {"sft_raw": ("dolly",), "sft_tokens": ("dolly",)}),
    "a part of a range": (".", {"between": ("dolly", "chats")}, ("sft_raw",), {"sft_raw": ("dolly", "chats")}),
    "one is missing": ("sft_tokens/dolly", {}, ("sft_packed",), {"sft_tokens": ("dolly",), "sft_packed": (None,)}),
    "nothing is missing": ("none", {}, ("sft_packed",), {"sft_packed": (None,)}),
    "two layers of one store": (
        ".",
        {},
        ("preference_tokens",),
        {**dict.fromkeys(PAIRS, DOMAINS["preference"]), "preferences": (None,), "preference_tokens": (None,)},
    ),
    "prompts from nowhere": (".", {}, ("arithmetic_prompts",), {"arithmetic_prompts": (None,)}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_builds_what_is_missing_upstream_and_records_each_store_once(built: Path, instance: dg.DagsterInstance, name: str) -> None:
    """With the version of its own content, which is in sync, and its own verdicts."""
    lost, how, asked, expected = RUNS[name]
    shutil.rmtree(built / lost, ignore_errors=True)
    result = run(instance, *asked, **how)
    assert [each.is_success for each in instance.get_runs()] == [True], failures(result)
    assert sorted(built_for(result)) == sorted(set(expected) - set(asked))
    workspace = Workspace.open()
    for asset in ASSETS:
        found = {each.partition: each for each in materializations(instance, asset)}
        assert set(found) == set(expected.get(asset, ())) and len(found) == len(materializations(instance, asset))
        for partition, each in found.items():
            version = data_version(each)
            assert len(version) == 32 and version == each.metadata["content_hash"].value
            assert workspace.built(asset, partition or "").manifest.content_hash.startswith(version)
            assert each.metadata["version"].value["reused"] is (lost == "none" or ("/" in lost and asset == "sft_packed"))
            assert state(workspace, ASSETS[asset], partition or "") == "current"
            assert lost != "." or stale(instance, asset, partition) == []
        for check in checks_of(asset):
            verdicts = evaluations(instance, asset, check)
            assert sorted((each.partition or "", each.passed) for each in verdicts) == sorted((each or "", True) for each in found)


def test_steps_of_a_nightly_run_look_at_the_stores_once(built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing has changed; the next run looks again, in the same process too."""
    looked: list[Workspace] = []

    class Counted(Statuses):
        def __init__(self, workspace: Workspace) -> None:
            looked.append(workspace)
            super().__init__(workspace)

    monkeypatch.setattr(log, "Statuses", Counted)
    tags = {RANGE_START: SFT[0], RANGE_END: SFT[-1], "dagster/schedule_name": "nightly_sft"}
    counts = []
    for lost in ("none", "none", "none", "sft_packed"):
        shutil.rmtree(built / lost, ignore_errors=True)
        looked.clear()
        assert defs.resolve_job_def("rebuild_sft").execute_in_process(instance=instance, tags=tags).success
        counts.append(len(looked))
    assert counts == [len(family_assets(Workspace.open(), "sft")), 1, 1, 2] and not stale(instance, "sft_packed")


def test_the_work_of_workers_is_told_of(stores: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far it is, with the time that is left, while it goes on; how many shards it took, and workers, beside the store."""

    def here(self: Pool, plan: Plan, work: Work) -> Iterator[ShardResult]:
        for shard in plan.shards:
            self.effort.lost += shard.number == 1
            self.effort.copies += shard.number in (2, 3)
            yield carry_out(shard, work, plan)

    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(ROOT / "configs"))  # whole files, which are read in shards
    monkeypatch.setattr(Pool, "run_shards", here)
    monkeypatch.setattr(cuts, "SHARD_BYTES", 5000)
    monkeypatch.setattr(Workspace, "runner", lambda self, family, busy=1: self.pool)
    monkeypatch.setattr(log, "LONG", 0)
    told: list[str] = []
    monkeypatch.setattr(dg.DagsterLogManager, "info", lambda self, said, *args, **more: told.append(said))
    assert run(instance, "sft_tokens", partition="gsm8k").success
    [metadata] = [each.metadata for each in materializations(instance, "sft_tokens")]
    assert metadata["shards"].value > 4
    # duplicates were found when the source was pinned, so that no first pass looks for them
    assert [metadata[name].value for name in ("workers_lost", "second_copies")] == [1, 2]
    # the source is read in shards too, which are counted for themselves
    [raw] = [each.metadata for each in materializations(instance, "sft_raw")]
    assert raw["shards"].value == metadata["shards"].value
    lines = [each for each in told if each.startswith("tokenize gsm8k: ")]
    assert lines[-1].startswith(f"tokenize gsm8k: 100 %, {metadata['shards'].value} of {metadata['shards'].value} shards, ")
    assert lines[-1].endswith(" 0:00 left, 1 workers lost")
    assert len(lines) >= 5


def test_on_missing_fail_stops_with_the_commands(built: Path, instance: dg.DagsterInstance) -> None:
    missing = ["gsm8k", "chats"]
    for partition in missing:
        shutil.rmtree(built / "sft_tokens" / partition)
    result = run(instance, "sft_packed", options={"sft_packed": {"on_missing": "fail"}})
    assert not result.success
    assert len(instance.get_runs()) == 1
    message = failures(result)
    assert all(f"sft_tokens[{partition}] (no store yet)" in message for partition in missing)
    commands = [line.strip() for line in message.splitlines() if "prep-assets build" in line]
    assert commands == [f"prep-assets build sft_tokens --partition {partition}" for partition in missing]
    for partition in missing:
        assert run(instance, "sft_tokens", partition=partition).success
    assert run(instance, "sft_packed", options={"sft_packed": {"on_missing": "fail"}}).success


def test_on_missing_fail_lists_all_layers_in_the_order_to_build_them(stores: Path, instance: dg.DagsterInstance) -> None:
    result = run(instance, "preference_tokens", options={"preference_tokens": {"on_missing": "fail"}})
    commands = [line.strip() for line in failures(result).splitlines() if "prep-assets build" in line]
    assert [command.removeprefix("prep-assets build ") for command in commands] == [
        *(f"{name} --partition hh" for name in ("preference_raw", "preferences_by_domain", "preference_tokens_by_domain")),
        *(f"{name} --partition ultrafeedback" for name in ("preference_raw", "preferences_by_domain", "preference_tokens_by_domain")),
        "preferences",
    ]


def test_a_build_that_fails_upstream_says_so_downstream(
    stores: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise PermissionError("the samples are locked")

    monkeypatch.setattr("prep_assets.graph.raw.read_blocks", unreadable)
    result = run(instance, "sft_packed")
    assert not result.success
    assert "sft_raw[gsm8k]: PermissionError: the samples are locked" in failures(result)
    assert not materializations(instance, "sft_packed")


# -- runs over many partitions: each partition once, in the order of the configuration, with its own metadata ----------------------------


def test_a_range_that_runs_backwards_is_an_error_that_names_the_order(stores: Path, instance: dg.DagsterInstance) -> None:
    result = run(instance, "sft_raw", between=("chats", "gsm8k"))
    assert not result.success
    assert "gsm8k, dolly, chats" in failures(result)
    assert not materializations(instance, "sft_raw")
    assert not stores.exists() or not list(stores.glob("sft_raw/*/current"))
