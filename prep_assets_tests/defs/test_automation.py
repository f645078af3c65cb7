"""Automation: what is rebuilt by itself after a change, and what is not while a blocking check fails."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from prep_assets.assets.graph import run_check
from prep_assets.assets.stage import Check
from prep_assets.assets.workspace import Workspace
from prep_assets.definitions import defs
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published
from prep_assets_tests.defs.runs import DOMAINS, run

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

    monkeypatch.setattr("prep_assets.engine.checking.run_check", verdict)
    return chosen


@pytest.fixture
def daemon(built: Path, instance: dg.DagsterInstance) -> Daemon:
    """A daemon that has seen everything built once."""
    assert run(instance, "sft_raw", "sft_tokens", "sft_packed", between=WHOLE).success
    daemon = Daemon(instance)
    assert daemon.tick() == {}
    return daemon


def test_a_new_source_asks_for_its_tokens_and_these_for_the_packed_table(daemon: Daemon) -> None:
    assert run(daemon.instance, "sft_raw", partition="dolly").success
    assert daemon.tick() == {"sft_tokens": {"dolly"}}
    assert run(daemon.instance, "sft_tokens", partition="dolly").success
    assert daemon.tick() == {"sft_packed": set()}
    assert run(daemon.instance, "sft_packed").success
    assert daemon.tick() == {}


def test_nothing_downstream_of_a_failed_check_is_asked_for_until_it_passes(daemon: Daemon, failing: set[tuple[str, str]]) -> None:
    failing.add(("sft_raw", "dolly"))
    assert not run(daemon.instance, "sft_raw", partition="dolly").success
    assert daemon.tick() == {}
    assert daemon.tick() == {}
    failing.clear()
    assert run(daemon.instance, "sft_raw", partition="dolly").success
    assert daemon.tick() == {"sft_tokens": {"dolly"}}


def test_tokens_that_fail_are_not_packed_until_they_pass(daemon: Daemon, failing: set[tuple[str, str]]) -> None:
    failing.add(("sft_tokens", "chats"))
    assert not run(daemon.instance, "sft_tokens", between=WHOLE).success
    assert daemon.tick() == {}
    failing.clear()
    assert run(daemon.instance, "sft_tokens", partition="chats").success
    assert daemon.tick() == {"sft_packed": set()}


def test_a_domain_that_passes_does_not_release_one_that_fails(daemon: Daemon, failing: set[tuple[str, str]]) -> None:
    failing.add(("sft_tokens", "chats"))
    run(daemon.instance, "sft_tokens", partition="chats")
    run(daemon.instance, "sft_tokens", partition="dolly")
    assert daemon.tick() == {}


def test_stores_that_were_built_without_dagster_keep_nothing_waiting(built: Path, instance: dg.DagsterInstance) -> None:
    daemon = Daemon(instance)
    assert daemon.tick() == {}
    assert run(instance, "sft_raw", "sft_tokens", partition="dolly").success
    assert daemon.tick() == {"sft_packed": set()}


def test_the_sensor_covers_every_asset_that_has_a_condition() -> None:
    graph = defs.resolve_asset_graph()
    sensor = defs.get_repository_def().get_sensor_def("rebuild_downstream")
    covered = sensor.asset_selection.resolve(graph)
    assert {key for key in graph.get_all_asset_keys() if graph.get(key).automation_condition} <= covered
