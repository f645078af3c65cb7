"""The entry point: light to import, errors as messages, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from prep_assets import __version__
from prep_assets.cli.main import app
from prep_assets.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("dagster", "torch", "transformers", "tokenizers", "h5py", "pyarrow", "numpy", "pydantic")


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = f"import sys, prep_assets.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_lists_every_command_in_one_panel(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = run("--help")
    assert result.exit_code == 0
    shown: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            names = shown.setdefault(title[1], [])
        elif name := re.match(r"│ ([a-z][a-z-]*)  ", line):
            names.append(name[1])
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(name for panel in shown.values() for name in panel) == sorted(commands)
    assert [title.partition(":")[0] for title in shown] == ["Options", "Every day", "Build", "Look", "Find", "Ship", "Keep"]
    assert shown["Every day"] == ["build", "accept", "status", "inspect", "verify", "report"]
    for command in commands:
        assert run(command, "--help").exit_code == 0


def test_version(run: Any) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"prep-assets {__version__}\n")


def test_traceback_on_request(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_TRACEBACK", "1")
    result = run("path", "sft_pakced")
    assert result.exit_code == 1
    assert isinstance(result.exception, ConfigError)
    assert result.stderr == ""


def test_interrupt(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prep_assets.cli.build.one_store", interrupted)
    result = run("path", "sft_packed")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")
