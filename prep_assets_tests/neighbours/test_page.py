"""The page on neighbours: its commands run, its Python prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets_tests.docs.pages import DOCS, blocks, read
from prep_assets_tests.docs.test_snippets import BLOCK, PRINTED
from prep_assets_tests.docs.test_snippets import run as printed
from prep_assets_tests.neighbours.fake_hub import FakeHub
from prep_assets_tests.neighbours.test_hub import run

PAGE = DOCS / "neighbours.md"
COMMANDS = [
    line.removeprefix("$ prep-assets ") for block in blocks(PAGE, "console") for line in block.splitlines() if line.startswith("$ ")
]


def test_the_commands_run(built: Workspace, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {command.split()[0] for command in COMMANDS} == {"build", "describe", "release", "push"}
    for command in COMMANDS:
        done = run(built, *command.split())
        assert done.exit_code == 0, command + done.output
    assert set(hub.repositories) == {"me/sft-packed"}


def test_the_python_runs(built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(built.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(built.stores))
    for block in BLOCK.findall(read(PAGE)):
        assert printed(block, {}) == PRINTED.findall(block)
