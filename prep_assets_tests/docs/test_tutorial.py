"""The tutorial, command by command, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, read
from prep_assets_tests.graph.workspaces import domain, minimal, workspace_in

pytestmark = pytest.mark.cli
STEP = re.compile(r"(?:<!-- file: (\S+) -->\n)?```(json|yaml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_command_says_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    commands = 0
    for file, language, text in STEP.findall(read(DOCS / "tutorial.md")):
        if file:
            (tmp_path / file).write_text(text, "utf-8")
            continue
        assert language == "console"
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            commands += 1
            said = run(command, monkeypatch)
            for line in shown.splitlines():
                pattern = ".*".join(map(re.escape, " ".join(line.split()).split("…")))
                assert re.search(pattern, said), (command, line, said)
    assert commands == 12


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints, in one line for each of its own, with single spaces. Only one that the page says to stop may fail."""
    words, _, comment = command.partition("  #")
    program, *rest = words.replace("~/prep-assets", str(ROOT)).split()
    if program == "export":
        for setting in rest:
            monkeypatch.setenv(*setting.split("="))
        return ""
    if program in ("python", "mkdir", "cp"):
        done = subprocess.run([sys.executable if program == "python" else program, *rest], capture_output=True, text=True)
        status, printed = done.returncode, done.stdout + done.stderr
    else:
        result = CliRunner().invoke(app, rest)
        status, printed = result.exit_code, result.output
    assert (status != 0) == (comment.strip() == "stops"), printed
    return "\n".join(" ".join(line.split()) for line in printed.splitlines())


def test_the_commands_for_two_models_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of stores that differ, as these do, has exit code 1."""
    page, own = read(DOCS / "two-models.md"), domain("dolly.jsonl", "dolly", ignore=["category"])
    workspace_in(tmp_path, minimal("sft", {"dolly": own}, template="chatml", packing={"strategy": "bfd", "row_len": 256}))
    [variant] = re.findall(r"^ *```yaml\n *# (configs/\S+)\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / variant[0]).write_text(textwrap.dedent(variant[1]), "utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in (("CONFIG_DIR", "configs"), ("STORE_DIR", "data/stores"), ("VARIANT", "")):
        monkeypatch.setenv(f"PREP_ASSETS_{name}", value)
    commands = re.findall(r"^ *\$ prep-assets (.*)$", page, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        monkeypatch.setenv("PREP_ASSETS_VARIANT", "")
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == (1 if command.startswith("compare") else 0), (command, result.output)
    assert "<think>" in result.output  # which qwen3 writes, and chatml does not
