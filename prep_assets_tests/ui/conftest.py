"""A headless Chromium. `make test-ui` installs playwright and axe; without them, or without a Chromium, these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prep_assets_tests.conftest import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def _absent(what: str) -> Any:
    return (pytest.fail if os.environ.get("PREP_ASSETS_UI") else pytest.skip)(f"{what} is not installed: make test-ui")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser, playwright's."""
    path = os.environ.get("PREP_ASSETS_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        _absent("Chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _absent("playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def console_of(browser: Any, opened: Any = None) -> Iterator[Any]:
    """An empty page, or one that is open. What its console says of errors fails the test."""
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900}) if opened is None else None
    page = opened if context is None else context.new_page()
    page.set_default_timeout(60_000)
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    if context is not None:
        context.close()
    assert said == []


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """An empty page."""
    with console_of(chromium) as opened:
        yield opened


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots go, to be looked at."""
    folder = ROOT / "build/screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core."""
    try:
        import axe_playwright_python
    except ImportError:
        _absent("axe-playwright-python")
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")


def violations(page: Any, axe: str) -> list[str]:
    """What axe-core finds wrong with a page."""
    page.evaluate(axe)  # by the debugger: the page's own policy lets no foreign script in
    found = page.evaluate("axe.run().then(said => said.violations)")
    return [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"]]
