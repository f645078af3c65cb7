"""The line that lets `dagster asset materialize` find the definitions in a checkout without a flag, and leaves everything else alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import prep_assets

PTH = Path(prep_assets.__file__).parent / "cli" / "prep_assets_dagster_cli.pth"
USUAL = ["/some/where/bin/dagster", "asset", "materialize", "--select", "sft_packed"]
FOUND = "prep_assets.definitions"

pytestmark = pytest.mark.cli


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "prep_assets").mkdir()
    (tmp_path / "workspace.yaml").touch()
    return tmp_path


def module_name(argv: list[str], folder: Path, set_to: str | None = None) -> str | None:
    """DAGSTER_MODULE_NAME after `site` has read the file in a process that was started in `folder` with `argv`."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / PTH.name).write_text(PTH.read_text("utf-8"), "utf-8")
    code = "import json, os, site, sys; sys.argv = json.loads(sys.argv[1]); site.addsitedir(sys.argv.pop()); print(os.environ.get('DAGSTER_MODULE_NAME'))"
    env = {key: value for key, value in os.environ.items() if key != "DAGSTER_MODULE_NAME"} | (
        {"DAGSTER_MODULE_NAME": set_to} if set_to else {}
    )
    # -S: nothing but this file is read
    command = [sys.executable, "-S", "-c", code, json.dumps([*argv, str(site)])]
    said = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    return None if said.stdout.strip() == "None" else said.stdout.strip()


def test_the_file_is_one_line_of_code() -> None:
    # `site` runs lines that begin with `import`, and takes any other for a folder
    [line] = PTH.read_text("utf-8").splitlines()
    assert line.startswith("import ")


@pytest.mark.parametrize("argv", [USUAL, ["dagster", "asset", "list"], [*USUAL, "--partition", "gsm8k", "-c", "run.yaml"]], ids=str)
def test_in_a_checkout_the_module_is_named(checkout: Path, argv: list[str]) -> None:
    assert module_name(argv, checkout) == FOUND


@pytest.mark.parametrize("command", [["dev"], ["definitions", "validate"], ["job", "list", "-w", "workspace.yaml"], []], ids=str)
def test_another_command_is_left_alone(checkout: Path, command: list[str]) -> None:
    # they read workspace.yaml or pyproject.toml, and refuse a module beside it
    assert module_name(["dagster", *command], checkout) is None


@pytest.mark.parametrize("program", ["/usr/bin/python", "dagster-webserver", "pytest", "-c", ""])
def test_another_program_is_left_alone(checkout: Path, program: str) -> None:
    assert module_name([program, "asset", "materialize"], checkout) is None


def test_a_process_without_arguments_is_left_alone(checkout: Path) -> None:
    assert module_name([], checkout) is None


@pytest.mark.parametrize("missing", ["workspace.yaml", "prep_assets"])
def test_another_folder_is_left_alone(checkout: Path, missing: str) -> None:
    path = checkout / missing
    path.rmdir() if path.is_dir() else path.unlink()
    assert module_name(USUAL, checkout) is None


@pytest.mark.parametrize(
    "pointer",
    [
        ["-m", "mine.definitions"],
        ["-mmine.definitions"],
        ["--module-name", "mine.definitions"],
        ["--module-name=mine.definitions"],
        ["-f", "mine.py"],
        ["-fmine.py"],
        ["--python-file=mine.py"],
        ["--package-name", "mine"],
        ["--autoload-defs-module-name", "mine"],
        ["-f", "mine.py", "-a", "defs"],
        ["-d", "elsewhere", "-f", "mine.py"],
    ],
    ids=str,
)
def test_whoever_names_another_target_gets_that(checkout: Path, pointer: list[str]) -> None:
    assert module_name([*USUAL, *pointer], checkout) is None


def test_a_module_that_is_named_already_stays(checkout: Path) -> None:
    assert module_name(USUAL, checkout, set_to="mine.definitions") == "mine.definitions"
