"""Refresh once for real: `dagster dev` with its sensors started by clicking, a source that changes, and a restart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import TickStatus

from prep_assets.engine import build
from prep_assets.extensions.dagster.sensors import NAME as RECORDER
from prep_assets_tests.ui.conftest import console_of
from prep_assets_tests.ui.serving import MINUTES, Served, chat, small_workspace, wait_for

pytestmark = pytest.mark.skipif(not os.environ.get("PREP_ASSETS_UI"), reason="make test-ui starts dagster dev")

FINISHED = (TickStatus.SKIPPED, TickStatus.SUCCESS)
SENSORS = ("sft_sources", "rebuild_downstream")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = small_workspace(tmp_path)
    build(found.workspace, "sft_packed")
    found.start()
    yield found
    found.stop()


def _looks(instance: dg.DagsterInstance, sensor: str) -> list[Any]:
    """What the sensor has done, the latest first."""
    [state] = [each for each in instance.all_instigator_state() if each.instigator_name == sensor] or [None]
    return [] if state is None else list(instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=50))


def _finished_looks(instance: dg.DagsterInstance, sensor: str) -> int:
    return sum(each.status in FINISHED for each in _looks(instance, sensor))


def _builds(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """The runs that build something; the recorder adds one that only holds what checks said."""
    return [run for run in instance.get_runs() if run.job_name != RECORDER]


def _inodes(served: Served, asset: str, partition: str) -> dict[str, tuple[int, int]]:
    store = served.workspace.built(asset, partition)
    found = {path: path.stat() for path in store.directory.resolve().rglob("*") if path.is_file()}
    return {path.name: (each.st_ino, each.st_mtime_ns) for path, each in found.items()}


def _packed(served: Served) -> str:
    store = served.workspace.built("sft_packed")
    return store.manifest.content_hash


def test_a_line_that_is_added_reaches_the_packed_table_and_touches_no_other_domain(served: Served, chromium: Any, pictures: Path) -> None:
    with console_of(chromium) as page:
        page.goto(f"{served.url}/automation")
        for sensor in SENSORS:
            line = page.locator("[class*=ListItem_listItem__]").filter(has=page.get_by_text(sensor, exact=True))
            line.locator("label[class*=formatSwitch]").click()
        page.wait_for_timeout(2000)
        page.screenshot(path=pictures / "automation.png")
    with served.instance() as instance:
        wait_for(lambda: _finished_looks(instance, "sft_sources") >= 2, 4 * MINUTES, "two looks")
        assert _builds(instance) == [], "what is built already is built again"
        before, packed = {asset: _inodes(served, asset, "dolly") for asset in ("sft_raw", "sft_tokens")}, _packed(served)
        with served.source.open("a") as source:
            source.write(json.dumps(chat("Who added this line?", "Somebody who waits.")) + "\n")
        wait_for(lambda: _packed(served) != packed, 8 * MINUTES, "the packed table")
        assert {asset: _inodes(served, asset, "dolly") for asset in before} == before
        wait_for(lambda: all(run.is_finished for run in _builds(instance)), 2 * MINUTES, "the end of the runs")
        runs = [(run.job_name, run.tags.get("dagster/partition")) for run in _builds(instance)]
        assert runs.count(("refresh_sft", "mine")) == 1 and {each for _, each in runs} <= {"mine", None}
        served.stop()
        served.start()
        looked = _finished_looks(instance, "sft_sources")
        wait_for(lambda: _finished_looks(instance, "sft_sources") >= looked + 3, 6 * MINUTES, "three looks after the restart")
        assert len(_builds(instance)) == len(runs), "a restart fires again"
