"""A report in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from prep_assets.extensions.explain.report import render, report
from prep_assets.extensions.explain.serve import write_site
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build_all, domain, jsonl, minimal, workspace_in
from prep_assets_tests.reports.hostile import hostile_workspace, page_of, unseen
from prep_assets_tests.ui.conftest import violations

Built = tuple[Workspace, dict[str, Published]]


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Built:
    workspace = hostile_workspace(tmp_path_factory.mktemp("hostile"))
    return workspace, {asset: store for (asset, _), store in build_all(workspace, ["sft"]).items()}


def _open(page: Any, path: Path) -> Any:
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-state=ready]")
    return page


def _says(page: Any, where: str, text: str) -> None:
    """Wait until an element says this; the page's own policy forbids what playwright's `wait_for_function` does."""
    page.locator(where, has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


@pytest.fixture
def opened(hostile: Built, page: Any, tmp_path: Path) -> Any:
    path = tmp_path / "sft_tokens.html"
    path.write_text(report(hostile[0], [hostile[1]["sft_tokens"]]), "utf-8")
    return _open(page, path)


def test_hostile_records_run_nothing(opened: Any) -> None:
    for tokens in (False, True):
        if tokens:
            opened.get_by_role("button", name="Tokens and labels").click()
        opened.locator("#list").focus()
        opened.keyboard.press("Home")
        for _ in range(10):
            assert unseen(opened.evaluate("document.body.innerText")) - {"\t"} == set()
            opened.keyboard.press("ArrowDown")
    for summary in opened.locator("#refusals summary").all():
        summary.click()
    assert opened.locator("#refusals pre").count() == 4
    assert opened.evaluate("window.pwned") is None
    assert opened.locator("main img, main svg[onload], #row script, #row a, #refusals a").count() == 0


def test_axe_finds_nothing(opened: Any, axe: str) -> None:
    opened.locator("#row details summary").first.click()
    opened.locator("#refusals summary").first.click()
    for scheme in ("light", "dark"):
        opened.evaluate("scheme => { document.documentElement.style.colorScheme = scheme }", scheme)
        assert violations(opened, axe) == []
    opened.get_by_role("button", name="Tokens and labels").click()
    assert violations(opened, axe) == []


def test_search_by_text_and_by_record(opened: Any) -> None:
    opened.keyboard.press("/")
    opened.keyboard.type("I was typed by a user")
    _says(opened, "#found", "1 row")
    assert "typed by a user" in opened.locator("#row").inner_text()
    opened.keyboard.press("Escape")
    _says(opened, "#found", "10 rows")
    opened.locator("#where").select_option("id")
    opened.locator("#query").fill("rows.jsonl:8")
    _says(opened, "#found", "1 row")
    assert "{{ 7 * 7 }}" in opened.locator("#row").inner_text()
    opened.locator("#query").fill("nothing has this")
    _says(opened, "#found", "0 rows")
    opened.locator("#query").fill("rows.jsonl:12")
    _says(opened, "#refused-found", "1 record with “rows.jsonl:12”")
    assert opened.locator("#refusals details").count() == 1


def test_answers_of_a_pair_stand_side_by_side(page: Any, axe: str, tmp_path: Path) -> None:
    rows = [{"prompt": f"Which of them, {n}?", "chosen": f"The first. {n}", "rejected": f"The second, I think. {n}"} for n in range(3)]
    domains = {"mine": domain(jsonl(tmp_path / "mine.jsonl", rows), "preference")}
    workspace = workspace_in(tmp_path, minimal("preference", domains, template="chatml"))
    stores = {asset: store for (asset, _), store in build_all(workspace, ["preference"]).items()}
    for asset in ("preferences", "preference_tokens"):
        path = tmp_path / f"{asset}.html"
        path.write_text(report(workspace, [stores[asset]]), "utf-8")
        _open(page, path)
        for width, side_by_side in ((1280, True), (400, False)):
            page.set_viewport_size({"width": width, "height": 900})
            chosen, rejected = (page.locator(f".pair .{side}") for side in ("chosen", "rejected"))
            assert ("The first." in chosen.inner_text(), "I think." in rejected.inner_text()) == (True, True)
            assert (chosen.bounding_box()["y"] == rejected.bounding_box()["y"]) == side_by_side
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert "rejected is longer" in page.locator("#row").inner_text()
        assert violations(page, axe) == []


def test_rejected_records_are_searched_where_no_row_is(page: Any, tmp_path: Path) -> None:
    refused = [["sft_raw", f"rows.jsonl:{n}", "read/not_json", f"detail {n}", f"payload {n}", 9] for n in range(1, 4)]
    shown = page_of("none", refused=3, refused_total=3, refused_how="refused", reasons=["read/not_json"])
    path = tmp_path / "none.html"
    path.write_text(render(shown, {"refused": refused}, []), "utf-8")
    _open(page, path)
    assert page.locator("#refusals details").count() == 3
    page.locator("#query").fill("payload 2")
    _says(page, "#refused-found", "1 record with “payload 2”")


def test_keys_and_links_choose_rows(opened: Any) -> None:
    opened.locator("#list").focus()
    opened.keyboard.press("End")
    _says(opened, "#row h3", "row 9")
    opened.keyboard.press("ArrowUp")
    _says(opened, "#row h3", "row 8")
    opened.reload()
    opened.wait_for_selector("body[data-state=ready]")
    assert opened.locator("#row h3").inner_text() == "row 8"


def test_a_hundred_thousand_rows(page: Any, tmp_path: Path) -> None:
    count, size = 100_000, 500
    chunks = [[{"i": [at % 9, 9], "w": [[1, 0], [1, 1]], "p": [[0, f"many/rows.jsonl:{at}", 0, ""]]} for at in range(low, low + size)]
              for low in range(0, count, size)]  # fmt: skip
    index = {
        "domains": ["many"], "stream": [0] * count, "number": list(range(count)), "length": [2] * count, "trained": [1] * count,
        "domain": [[0]] * count, "name": [f"many/rows.jsonl:{at}" for at in range(count)], "pieces": [1] * count,
        "chunks": list(range(0, count, size)),
    }  # fmt: skip
    data = {"index": index, "streams": [{"name": "train", "unit": "tokens"}], "vocabulary": {str(at): f"word{at} " for at in range(10)}}
    path = tmp_path / "many.html"
    path.write_text(render(page_of("many", shown=count, total=count), data, chunks), "utf-8")
    assert path.stat().st_size < 4_000_000
    _open(page, path)
    page.locator("#list").focus()
    page.keyboard.press("End")
    _says(page, "#row h3", "row 99,999")
    assert page.locator(".item").count() < 60
    page.locator("#where").select_option("id")
    page.locator("#query").fill("rows.jsonl:77778")
    _says(page, "#found", "1 row")
    assert "many/rows.jsonl:77778" in page.locator("#row").inner_text()


def test_the_first_page_links_the_others(hostile: Built, page: Any, axe: str, tmp_path: Path) -> None:
    write_site(hostile[0], {asset: [store] for asset, store in hostile[1].items()}, tmp_path)
    page.goto((tmp_path / "index.html").as_uri())
    assert violations(page, axe) == []
    page.get_by_role("link", name="sft_packed").click()
    page.wait_for_selector("body[data-state=ready]")
    assert page.locator("h1").inner_text() == "sft_packed"
