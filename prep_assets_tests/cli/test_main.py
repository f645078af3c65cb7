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


SHOWING = ("path", "inspect", "verify", "stats", "quarantine")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((f"{command} sft_pakced", "error: no asset 'sft_pakced'; did you mean 'sft_packed'?") for command in SHOWING),
        *((f"{each} sft_tokens -p doly", "no partition 'doly'; did you mean 'dolly'? There are: dolly, chats") for each in SHOWING),
        ("path sft_packed -p dolly", "sft_packed has no partitions"),
        ("verify -p dolly", "of which asset"),
        ("inspect sft_packed --row 99999", "row 99,999 of sft_packed: there are"),
        ("inspect preference_tokens --stream chose", "no stream 'chose'; did you mean 'chosen'? There are: chosen, rejected"),
        ("inspect sft_packed --stream zzz", "no stream 'zzz'. There are: sft_packed"),
        ("inspect rl_groups", "no domain of rl.yaml has a schema that gives a Group"),
        ("quarantine sft_tokens --reason to_long", "did you mean 'too_long'? Reasons: tokenize/too_long"),
        ("build", "build what?"),
        ("build sft_packed --all", "build what?"),
        ("build sft_paked", "did you mean 'sft_packed'?"),
        ("build sft_packed -p dolly", "sft_packed has no partitions"),
        ("build sft_packed --set row_len", "needs the form KEY=VALUE"),
        ("build sft_packed --set packing.row_length=5", "did you mean 'row_len'?"),
        ("build sft_packed --set template=chatml", "it is an option of sft_template, sft_tokens"),
        ("build sft_packed rl_tokens --set engine=reference", "--set is for assets of one family"),
    ],
)
def test_what_is_wrong_is_one_message(built: Any, run: Any, line: str, said: str) -> None:
    result = run(*line.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and said in result.stderr


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


def test_a_broken_configuration_is_a_message(mine: Any, run: Any) -> None:
    (mine.configs / "sft.yaml").write_text("tokeniser: x\n", "utf-8")
    result = run("path", "sft_tokens", "-p", "dolly")
    assert result.exit_code == 1
    assert "tokeniser: unknown key; did you mean 'tokenizer'?" in result.stderr
    assert "Traceback" not in result.stderr
