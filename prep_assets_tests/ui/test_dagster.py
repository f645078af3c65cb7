"""Dagster's own pages in a browser, on a small workspace: launched by clicking, looked at, followed to the report and to a trace.

The console must stay empty of errors. Nothing is allowed for: Dagster 1.13 logs warnings only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.graph.graph import CHECKS
from prep_assets_tests.stores.payload import list_payload
from prep_assets_tests.ui.conftest import console_of
from prep_assets_tests.ui.serving import MINUTES, Served, small_workspace

pytestmark = pytest.mark.skipif(not os.environ.get("PREP_ASSETS_UI"), reason="make test-ui starts dagster dev")

LAUNCH = 5 * MINUTES * 1000
FOLD = 900
"""Height of the window: what is above needs no scrolling."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = small_workspace(tmp_path_factory.mktemp("served"))
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def built(served: Served, chromium: Any, pictures: Path) -> Served:
    """The packed table, built from nothing by a click on its page."""
    with console_of(chromium) as page:
        _asset(page, served, "sft_packed")
        page.locator("button", has_text="Materialize").first.click()
        page.get_by_text("Confirm", exact=True).click()  # Dagster warns that nothing is there upstream: it is built first
        page.get_by_text("View", exact=True).click()
        page.get_by_text("RUN_SUCCESS").first.wait_for(timeout=LAUNCH)
        page.screenshot(path=pictures / "run.png")
    return served


def _asset(page: Any, served: Served, name: str, view: str = "overview") -> None:
    page.goto(f"{served.url}/assets/{name}?view={view}")
    page.get_by_role("button", name="Materialize").or_(page.locator("button", has_text="Materialize")).first.wait_for()


def test_the_graph(built: Served, page: Any, pictures: Path) -> None:
    page.goto(f"{built.url}/asset-groups")
    for name in ("sft_raw", "sft_tokens", "sft_template", "sft_packed", "sft_report"):
        page.get_by_text(name, exact=True).first.wait_for()
    page.wait_for_timeout(2000)  # it moves until all fits
    page.screenshot(path=pictures / "graph.png")


def test_what_people_look_for_is_above_the_fold(built: Served, page: Any, pictures: Path) -> None:
    _asset(page, built, "sft_packed")
    for key in ("rows", "tokens", "fill_rate", "trained_share", "refused_records"):
        cell = page.get_by_text(key, exact=True).first
        cell.wait_for()
        assert cell.bounding_box()["y"] < FOLD
    assert page.get_by_text("Latest check results").bounding_box()["y"] < FOLD
    page.screenshot(path=pictures / "asset.png")
    page.set_viewport_size({"width": 1440, "height": 2600})
    for picture in ("mixture", "lengths"):
        assert page.locator(f"img[alt={picture}]").first.evaluate("each => each.naturalWidth") > 0
    for text in ("by_domain", "preview", "report", "columns"):
        page.get_by_text(text, exact=True).first.wait_for()
    page.screenshot(path=pictures / "asset-whole.png")


def test_a_refused_row_is_on_the_page_of_its_partition(built: Served, page: Any, pictures: Path) -> None:
    _asset(page, built, "sft_tokens", "partitions")
    page.get_by_text("mine", exact=True).first.click()
    page.get_by_text("schema/no_assistant_turn").first.wait_for()
    assert "And if nobody answers?" in page.inner_text("body")
    page.screenshot(path=pictures / "partitions.png")


def test_every_check_holds(built: Served, page: Any, pictures: Path) -> None:
    _asset(page, built, "sft_packed", "checks")
    for check in CHECKS["sft_packed"]:
        page.get_by_text(check.name, exact=True).first.wait_for()
    assert page.get_by_text("Succeeded", exact=True).count() == len(CHECKS["sft_packed"])
    page.screenshot(path=pictures / "checks.png")


def test_the_launchpad_knows_the_options(built: Served, page: Any, pictures: Path) -> None:
    _asset(page, built, "sft_packed")
    page.get_by_text("fill_rate", exact=True).first.wait_for()  # until then the button moves
    box = page.locator("button", has_text="Materialize").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] + 15, box["y"] + box["height"] / 2)
    page.get_by_text("Open launchpad").click()
    page.get_by_text("No errors").wait_for()
    page.get_by_text("row_len").first.wait_for()  # with its value, as all options that the file has a value of
    page.screenshot(path=pictures / "launchpad.png")


def test_from_the_asset_to_its_report_to_a_trace(built: Served, page: Any, pictures: Path) -> None:
    _asset(page, built, "sft_packed")
    page.get_by_role("link", name="open", exact=True).click()
    page.wait_for_selector("body[data-state=ready]")
    assert page.locator("h1").inner_text() == "sft_packed"
    page.locator("input[name=find]").fill("What is 7 + 7?")
    page.get_by_role("button", name="Find").click()
    page.get_by_text("1 of 14 rows, the first that fit").wait_for()
    page.wait_for_selector("body[data-state=ready]")
    page.get_by_role("button", name="Tokens and labels").click()
    page.screenshot(path=pictures / "report-tokens.png")
    page.locator("#row tr.on td a").first.click()
    trace = page.inner_text("pre.trace")
    assert "mask.assistant: train" in trace and ".jsonl:" in trace
    page.screenshot(path=pictures / "trace.png")


def test_a_failing_check_shows_the_wrong_token(built: Served, page: Any, pictures: Path) -> None:
    store = built.workspace.built("sft_tokens", "mine")
    for path in store.directory.rglob("loss_mask.bin"):
        stored = np.memmap(path, np.uint8, "r+")
        at = int(np.flatnonzero(stored)[2])
        stored[at] = 0
        stored.flush()
    replace(store.manifest, files=list_payload(store.directory)).write(store.directory)  # so that only the proof can tell
    _asset(page, built, "sft_tokens", "checks")
    page.get_by_role("button", name="Execute all").or_(page.locator("button", has_text="Execute all")).first.click()
    page.get_by_text("mask_alignment", exact=True).first.click()
    page.get_by_text("wrong_token").first.wait_for(timeout=LAUNCH)
    said = page.inner_text("body")
    assert f"token {at} of" in said and "loss weight 0" in said
    page.screenshot(path=pictures / "failing-check.png")
    page.goto(page.get_by_role("link", name="/stores/sft_tokens/mine").get_attribute("href"))
    page.wait_for_selector("body[data-state=ready]")
    assert page.locator("h1").inner_text() == "sft_tokens[mine]"
