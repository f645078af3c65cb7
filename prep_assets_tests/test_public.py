"""`import prep_assets`: few names, and nothing loaded before one is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import prep_assets
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import read

HEAVY = ("dagster", "torch", "transformers", "pyarrow", "numpy", "pydantic", "yaml", "typer")


def test_every_public_name_exists_and_stands_on_the_page() -> None:
    page = read(ROOT / "docs" / "python.md")
    assert len(prep_assets.__all__) <= 20
    for name in prep_assets.__all__:
        assert getattr(prep_assets, name).__doc__
        assert f"`{name}" in page
        assert name in dir(prep_assets)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        prep_assets.biuld  # noqa: B018


@pytest.mark.cli
def test_importing_it_loads_nothing() -> None:
    code = f"import json, sys, prep_assets; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == []


@pytest.mark.cli
def test_building_needs_no_dagster() -> None:
    code = "import sys; sys.modules['dagster'] = None; import prep_assets.cli.main, prep_assets.api, prep_assets.engine; prep_assets.build; print('fine')"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "fine\n"
