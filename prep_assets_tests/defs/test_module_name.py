"""What `make setup` puts into the checkout's own `.venv`, so that the plain `dagster` command finds the project and keeps its history."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from prep_assets_tests.conftest import ROOT

SITE = ROOT / "tools" / "venv" / "sitecustomize.py"
USUAL = ["/some/where/bin/dagster", "asset", "materialize", "--select", "sft_packed"]


@pytest.fixture(scope="module")
def site() -> Any:
    spec = importlib.util.spec_from_file_location("site_of_the_checkout", SITE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "root" / ".dagster").mkdir(parents=True)
    (tmp_path / "root" / ".dagster" / "dagster.yaml").touch()
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "root"


def found(site: Any, argv: list[str], folder: Path, checkout: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    settings: dict[str, str] = site.settings(argv, str(folder), environ or {}, str(checkout))
    return settings


@pytest.mark.parametrize("argv", [USUAL, ["dagster", "asset", "list"], [*USUAL, "--partition", "gsm8k", "-c", "run.yaml"]], ids=str)
@pytest.mark.parametrize("below", ["", "configs"])
def test_in_the_checkout_the_module_is_named(site: Any, checkout: Path, argv: list[str], below: str) -> None:
    settings = found(site, argv, checkout / below if below else checkout, checkout)
    assert settings == {"DAGSTER_MODULE_NAME": "prep_assets.definitions", "DAGSTER_HOME": str(checkout / ".dagster")}


@pytest.mark.parametrize("command", [["dev"], ["definitions", "validate"], ["schedule", "list"], []], ids=str)
def test_another_command_is_given_the_history_and_no_module(site: Any, checkout: Path, command: list[str]) -> None:
    """They read workspace.yaml or pyproject.toml, and refuse a module beside it. `dagster schedule list` stopped without a home."""
    assert found(site, ["dagster", *command], checkout, checkout) == {"DAGSTER_HOME": str(checkout / ".dagster")}


def test_from_another_folder_the_history_goes_where_the_stores_go(site: Any, checkout: Path) -> None:
    """The stores were written in the checkout, and the history of the run elsewhere."""
    elsewhere = checkout.parent / "elsewhere"
    assert found(site, [*USUAL, "-m", "prep_assets.definitions"], elsewhere, checkout) == {"DAGSTER_HOME": str(checkout / ".dagster")}
    assert found(site, [*USUAL, "-m", "mine.definitions"], elsewhere, checkout) == {}
    assert found(site, USUAL, elsewhere, checkout) == {}
    (elsewhere / "dagster.yaml").touch()
    assert found(site, [*USUAL, "-m", "prep_assets.definitions"], elsewhere, checkout) == {}


@pytest.mark.parametrize("program", ["/usr/bin/python", "dagster-webserver", "pytest", "-c", ""])
def test_another_program_is_left_alone(site: Any, checkout: Path, program: str) -> None:
    assert found(site, [program, "asset", "materialize"], checkout, checkout) == {}
    assert found(site, [], checkout, checkout) == {}


@pytest.mark.parametrize(
    "pointer",
    [
        ["-m", "mine.definitions"],
        ["-mmine.definitions"],
        ["--module-name=mine.definitions"],
        ["-f", "mine.py"],
        ["--python-file=mine.py"],
        ["--package-name", "mine"],
        ["--autoload-defs-module-name", "mine"],
        ["-d", "elsewhere", "-f", "mine.py"],
    ],
    ids=str,
)
def test_whoever_names_another_target_gets_that(site: Any, checkout: Path, pointer: list[str]) -> None:
    assert "DAGSTER_MODULE_NAME" not in found(site, [*USUAL, *pointer], checkout, checkout)


def test_what_is_set_already_stays(site: Any, checkout: Path) -> None:
    assert found(site, USUAL, checkout, checkout, {"DAGSTER_MODULE_NAME": "mine", "DAGSTER_HOME": "/mine"}) == {}


@pytest.mark.cli
def test_python_reads_it_when_it_starts_in_the_venv(checkout: Path) -> None:
    folder = checkout / ".venv" / "lib" / "python3" / "site-packages"
    folder.mkdir(parents=True)
    shutil.copy(SITE, folder)
    script = checkout / "dagster"
    script.write_text("import os; print(os.environ.get('DAGSTER_MODULE_NAME'), os.environ.get('DAGSTER_HOME'))", "utf-8")
    hidden = ("DAGSTER_MODULE_NAME", "DAGSTER_HOME")
    env = {**{key: value for key, value in os.environ.items() if key not in hidden}, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(script), "asset", "materialize", "--select", "sft_packed"]
    said = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["prep_assets.definitions", str(checkout / ".dagster")]
