"""Checks that fail: what they show, what they stop, and for how long."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.engine import state
from prep_assets.extensions.dagster.sensors import recorder
from prep_assets.extensions.dagster.site import Site
from prep_assets.graph.graph import ASSETS, run_check
from prep_assets.pipeline.asset import Asset, Check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.version_folders import Published
from prep_assets_tests.extensions.dagster.runs import DOMAINS, checks_of, defs, evaluations, failures, materializations, plain, run
from prep_assets_tests.stores.payload import list_payload

SFT = DOMAINS["sft"]
Corrupt = Callable[[Published], None]


def flip_first_mask(published: Published) -> None:
    """Train the first token of the first record, which is never one of an answer."""
    for path in published.directory.rglob("loss_mask.bin"):
        stored = np.memmap(path, np.uint8, "r+")
        stored[0] ^= 1
        stored.flush()


@pytest.fixture
def corrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Corrupts a store after its materialization, right before its first check; returns the partitions for which it still does so."""

    def arrange(corrupt: Corrupt, asset: str, *partitions: str) -> list[str]:
        left = list(partitions)

        def after_corruption(check: Check, workspace: Workspace, published: Published) -> Verdict:
            if published.manifest.asset == asset and published.manifest.partition in left and check.name == checks_of(asset)[0]:
                corrupt(published)
            return run_check(check, workspace, published)

        monkeypatch.setattr("prep_assets.engine.execute.run_check", after_corruption)
        return left

    return arrange


def test_a_failed_blocking_check_fails_the_run_and_skips_what_is_downstream(
    built: Path, instance: dg.DagsterInstance, corrupted: Callable[..., list[str]]
) -> None:
    corrupted(flip_first_mask, "sft_tokens", "dolly")
    result = run(instance, "sft_tokens", "sft_packed", between=(SFT[0], SFT[-1]))
    assert not result.success
    assert {event.step_key for event in result.all_events if event.is_step_skipped or event.is_step_up_for_retry} <= {"sft_packed"}
    assert not materializations(instance, "sft_packed")
    said = {each.partition: each.passed for each in evaluations(instance, "sft_tokens", "mask_alignment")}
    assert said == {name: name != "dolly" for name in SFT}
    assert not evaluations(instance, "sft_packed", "mask_alignment")


def test_a_failed_check_shows_the_worst_row_with_its_tokens(
    built: Path, instance: dg.DagsterInstance, corrupted: Callable[..., list[str]]
) -> None:
    def flip_and_seal(published: Published) -> None:
        """So that only the check can tell."""
        flip_first_mask(published)
        replace(published.manifest, files=list_payload(published.directory)).write(published.directory)

    corrupted(flip_and_seal, "sft_tokens", "dolly")
    run(instance, "sft_tokens", between=(SFT[0], SFT[-1]))
    [evaluation] = evaluations(instance, "sft_tokens", "mask_alignment", "dolly")
    assert not evaluation.passed
    assert evaluation.severity == dg.AssetCheckSeverity.ERROR and evaluation.blocking
    metadata = plain(evaluation.metadata)
    assert len(metadata["worst_row"]) < 1000
    # the first token of every conversation opens a message; it is now trained, so it stands on a red line of its own
    [first, *_] = metadata["worst_row"].split("```diff\n")[1].splitlines()
    assert first == "- <|im_start|>"
    assert metadata["wrong_token"].startswith("token 0 of ") and metadata["wrong_token"].endswith(", loss weight 1")
    assert metadata["derivations"][0]["stored"] == "<|im_start|>" and metadata["derivations"][0]["from the source"] != "<|im_start|>"
    assert metadata["worst_row_tokens"].count("data:image/svg+xml;base64,") == 1
    shown = CliRunner().invoke(app, shlex.split(metadata["look_closer"])[1:])  # the remedy works
    assert shown.exit_code == 0, shown.output
    assert metadata["report"].endswith(
        "/candidates/sft_tokens/dolly" if "--candidate" in metadata["look_closer"] else "/stores/sft_tokens/dolly"
    )


def wrong(name: str, asset: str, verdict: Verdict) -> Callable[[Check, Workspace, Published], Verdict]:
    def run_one(check: Check, workspace: Workspace, published: Published) -> Verdict:
        return verdict if (check.name, published.manifest.asset) == (name, asset) else run_check(check, workspace, published)

    return run_one


def test_an_id_outside_the_vocabulary_is_shown_as_what_it_is(
    built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = Worst("row 7", "id 99,999,999 is outside the vocabulary", (1, 99_999_999, -1), (0.0, 1.0, 1.0))
    monkeypatch.setattr(
        "prep_assets.engine.execute.run_check",
        wrong("row_integrity", "sft_packed", Verdict(False, "1 row is wrong", {"rows_failed": 1}, worst)),
    )
    run(instance, "sft_packed")
    [evaluation] = evaluations(instance, "sft_packed", "row_integrity")
    assert "⟨no token 99999999⟩⟨no token -1⟩" in evaluation.metadata["worst_row"].value
    assert evaluation.metadata["rows_failed"].value == 1


def run_checks_alone(instance: dg.DagsterInstance, asset: str, *names: str) -> dg.ExecuteInProcessResult:
    """As the button of the web UI does."""
    job = defs.resolve_implicit_global_asset_job_def()
    keys = [dg.AssetCheckKey(dg.AssetKey(asset), name) for name in names or checks_of(asset)]
    subset = job.get_subset(asset_selection=set(), asset_check_selection=set(keys))
    return subset.execute_in_process(instance=instance, raise_on_error=False)


def test_checks_alone_look_at_all_partitions_that_have_a_store(built: Path, instance: dg.DagsterInstance) -> None:
    shutil.rmtree(built / "sft_tokens" / "chats")
    assert run_checks_alone(instance, "sft_tokens", "file_hashes").success
    found = evaluations(instance, "sft_tokens", "file_hashes")
    assert {each.partition: each.passed for each in found} == {"gsm8k": True, "dolly": True}
    assert not evaluations(instance, "sft_tokens", "mask_alignment")
    assert not materializations(instance, "sft_tokens")


@pytest.mark.parametrize("asset", ["sft_packed", "sft_tokens"])
def test_without_any_store_a_check_fails(stores: Path, instance: dg.DagsterInstance, asset: str) -> None:
    run_checks_alone(instance, asset)
    for name in checks_of(asset):
        found = evaluations(instance, asset, name)
        assert {each.partition for each in found} == (set(SFT) if asset == "sft_tokens" else {None})
        assert all(not each.passed and "no store" in each.description for each in found)


# -- publication -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def changed(built: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has a new store of `sft_packed` to be built: its code version counts up."""
    recipe = Asset.recipe

    def next_version(asset: Asset, workspace: Workspace, partition: str) -> dict[str, Any]:
        found = recipe(asset, workspace, partition)
        return {**found, "version": "next"} if asset.name == "sft_packed" else found

    def arrange() -> None:
        monkeypatch.setattr(Asset, "recipe", next_version)

    return arrange


def test_a_store_that_fails_a_check_is_not_published(
    built: Path, instance: dg.DagsterInstance, changed: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workspace.open().place("sft_packed")
    before = place.current()
    changed()
    with monkeypatch.context() as patch:
        patch.setattr("prep_assets.engine.execute.run_check", wrong("mask_alignment", "sft_packed", Verdict(False, "1 row is wrong")))
        assert not run(instance, "sft_packed").success
    candidate = place.candidate()
    assert place.current() == before and candidate is not None and candidate != before
    # what trainers read is sound, what failed can be looked at, and the checks say so until it passes
    assert not evaluations(instance, "sft_packed", "mask_alignment")[0].passed and not materializations(instance, "sft_packed")
    # it is built anew before it is believed: its files are what its manifest says, and it may be wrong all the same
    assert run(instance, "sft_packed").success
    assert place.current() == candidate and place.candidate() is None
    assert materializations(instance, "sft_packed")[0].metadata["version"].value["reused"] is False


# -- later runs -------------------------------------------------------------------------------------------------------------------------


def test_a_failure_is_remembered_with_the_store_and_seen_without_dagster(
    built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` said current of a store whose blocking check had just failed."""
    with monkeypatch.context() as patch:
        patch.setattr("prep_assets.engine.execute.run_check", wrong("mask_alignment", "sft_tokens", Verdict(False, "1 row is wrong")))
        run_checks_alone(instance, "sft_tokens")
    workspace = Workspace.open()
    assert {state(workspace, ASSETS["sft_tokens"], name) for name in SFT} == {"failed"}
    assert state(workspace, ASSETS["sft_packed"]) == "stale"
    result = run(instance, "sft_packed", options={"sft_packed": {"on_missing": "fail"}})
    assert "sft_tokens[dolly] (fails mask_alignment)" in failures(result)
    # what has failed is built anew and checked before anything is made from it
    assert run(instance, "sft_packed").success
    assert {state(workspace, ASSETS["sft_tokens"], name) for name in SFT} == {"current"}
    assert [each.passed for each in evaluations(instance, "sft_tokens", "mask_alignment", "dolly")] == [True, False]


def test_a_later_run_does_not_build_on_a_store_that_fails(
    built: Path, instance: dg.DagsterInstance, corrupted: Callable[..., list[str]]
) -> None:
    corrupted(flip_first_mask, "sft_tokens", "dolly")
    assert not run(instance, "sft_tokens", partition="dolly").success
    result = run(instance, "sft_packed")
    assert not result.success
    assert "sft_tokens[dolly]: not published, because it fails its checks" in failures(result)
    assert "gsm8k" not in failures(result)
    assert not materializations(instance, "sft_packed")


def test_a_domain_that_fails_leaves_the_verdicts_of_the_others(
    built: Path, instance: dg.DagsterInstance, corrupted: Callable[..., list[str]]
) -> None:
    """One failing domain used to take the status of all others, and all were checked again."""
    corrupted(flip_first_mask, "sft_tokens", "dolly")
    assert run(instance, "sft_tokens", partition="gsm8k").success
    assert not run(instance, "sft_tokens", partition="dolly").success
    latest = {name: evaluations(instance, "sft_tokens", "mask_alignment", name) for name in SFT}
    assert {name: [each.passed for each in found] for name, found in latest.items()} == {
        "gsm8k": [True],
        "dolly": [False],
        "chats": [],
    }


def test_a_check_that_crashes_counts_as_failed(built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> Verdict:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("prep_assets.graph.graph.store_of", crash)
        assert not run(instance, "sft_tokens", partition="dolly").success
    assert "RuntimeError: out of memory" in evaluations(instance, "sft_tokens", "mask_alignment", "dolly")[0].description
    assert state(Workspace.open(), ASSETS["sft_tokens"], "dolly") == "failed"
    assert run(instance, "sft_packed").success


def test_a_run_that_cannot_start_leaves_the_verdicts_as_they_are(built: Path, instance: dg.DagsterInstance) -> None:
    """Dagster takes a planned check that says nothing for failed, and automation would wait for it."""
    assert run(instance, "sft_packed").success
    assert not run(instance, "sft_packed", options={"sft_packed": {"template": "chatml"}}).success
    for check in checks_of("sft_packed"):
        assert evaluations(instance, "sft_packed", check)[0].passed


def test_of_a_check_that_fails_in_one_partition_that_one_is_recorded_last(
    built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_the_first(check: Check, workspace: Workspace, published: Published) -> Verdict:
        fails = (check.name, published.manifest.asset, published.manifest.partition) == ("row_integrity", "sft_tokens", SFT[0])
        return Verdict(False, "1 row is wrong", {}, Worst("row 7", "wrong")) if fails else run_check(check, workspace, published)

    monkeypatch.setattr("prep_assets.engine.execute.run_check", of_the_first)
    run_checks_alone(instance, "sft_tokens")
    latest, *_ = evaluations(instance, "sft_tokens", "row_integrity")
    assert (latest.partition, latest.passed) == (SFT[0], False)


def test_results_that_are_recorded_again_show_what_the_run_that_checked_showed(
    built: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a night or by the sensor. No wrong token was left of them, no figures, and a warning turned green."""

    def shown(found: dg.DagsterInstance, asset: str, check: str) -> list[dict[str, Any]]:
        latest = {each.partition: each for each in reversed(evaluations(found, asset, check))}
        return [
            {"passed": each.passed, "severity": each.severity, "said": each.description, **plain(each.metadata)}
            for _, each in sorted(latest.items(), key=str)
        ]

    odd = Verdict(True, "rows are long", {"rows": 7, "share": 0.5}, warns=True)
    with monkeypatch.context() as patch:
        patch.setattr("prep_assets.engine.execute.run_check", wrong("mixture", "sft_packed", odd))
        run_checks_alone(instance, "sft_packed")
    [warned] = shown(instance, "sft_packed", "mixture")
    assert (warned["passed"], warned["severity"], warned["rows"], warned["share"]) == (False, dg.AssetCheckSeverity.WARN, 7, 0.5)
    job, key = defs.resolve_implicit_global_asset_job_def(), dg.AssetKey("sft_packed")
    assert job.execute_in_process(instance=instance, asset_selection=[key], tags={"dagster/schedule_name": "night"}).success
    assert len(evaluations(instance, "sft_packed", "mixture")) == 2 and shown(instance, "sft_packed", "mixture") == [warned]

    store = Workspace.open().built("sft_tokens", "dolly")
    flip_first_mask(store)
    replace(store.manifest, files=list_payload(store.directory)).write(store.directory)
    run_checks_alone(instance, "sft_tokens")
    [failed] = (each for each in shown(instance, "sft_tokens", "mask_alignment") if not each["passed"])
    assert {"wrong_token", "worst_row", "worst_row_tokens", "derivations", "rows_checked"} < {*failed}
    # the store is current: none was held back
    assert failed["look_closer"] == "prep-assets report sft_tokens -p dolly" and failed["report"].endswith("/stores/sft_tokens/dolly")
    with dg.DagsterInstance.ephemeral() as fresh, dg.build_sensor_context(instance=fresh) as context:
        recorder(Site(), ["sft"])(context)
        for asset in ("sft_tokens", "sft_packed"):
            assert [shown(fresh, asset, name) for name in checks_of(asset)] == [shown(instance, asset, name) for name in checks_of(asset)]
