"""Bars of what takes long: the time that is left on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.stores import working
from prep_assets.extensions.explain.report import report
from prep_assets.extensions.explain.where import records as records_of
from prep_assets.extensions.keep.scrub import scrub
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published

Told = list[tuple[str, int, int]]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, built: Workspace) -> Callable[..., str]:
    """What `working` writes while half of a work is done, on streams that are terminals or not."""

    def show(*, stdout: bool = True, stderr: bool = True, ci: str = "") -> str:
        written = io.StringIO()
        consoles = {
            False: Console(force_terminal=stdout, file=io.StringIO()),
            True: Console(force_terminal=stderr, file=written, width=120),
        }
        monkeypatch.setattr(terminal, "_console", lambda *, stderr: consoles[stderr])
        monkeypatch.setenv("CI", ci)
        with working() as workspace:
            assert workspace.progress is not None
            workspace.progress("read sft_tokens[chats]", 512, 1024)
        return written.getvalue()

    return show


def test_a_terminal_shows_how_much_is_done_and_what_is_left(screen: Callable[..., str]) -> None:
    shown = screen()
    assert "read sft_tokens[chats]" in shown and "50%" in shown
    assert re.search(r"0:00:00\S* \S*(-:--:--|0:00:0\d)", shown)


def test_it_is_quiet_elsewhere(screen: Callable[..., str]) -> None:
    assert screen(stderr=False) == screen(stdout=False) == screen(ci="true") == ""


def told_of(workspace: Workspace) -> tuple[Workspace, Told]:
    """A workspace that writes down what it tells."""
    told: Told = []
    return Workspace(workspace.configs, workspace.stores, progress=lambda *how: told.append(how)), told


def store(workspace: Workspace, asset: str, partition: str = "") -> Published:
    """The current store."""
    found = workspace.published(asset, partition)
    assert found is not None
    return found


def sound(told: Told, what: str) -> bool:
    """Whether work was told of in order, and never beyond its end."""
    done = [each for each in told if each[0] == what]
    return bool(done) and [each[1] for each in done] == sorted(each[1] for each in done) and all(at <= total for _, at, total in done)


def test_reading_of_records_and_masks_is_told(mine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.extensions.explain.where.TOLD_EVERY", 10)
    workspace, told = told_of(mine)
    records = list(records_of(workspace, store(workspace, "sft_packed")))
    assert sound(told, "read sft_packed") and told[-1][1] >= len(records) - 10
    assert len(records) == len(list(records_of(mine, store(mine, "sft_packed"))))
    report(workspace, [store(workspace, "sft_packed")], rows=5)
    assert sound(told, "derive masks of sft_packed") and told[-1][1] == told[-1][2]
    scrub(workspace)
    assert sound(told, "scrub")


def test_commands_write_no_bar_into_a_pipe(built: Any, run: Any, tmp_path: Path) -> None:
    for line in (f"report sft_packed --out {tmp_path / 'a.html'}", "scrub", f"attest sft_packed --out {tmp_path}"):
        result = run(*line.split())
        assert result.exit_code == 0 and "━" not in result.output and "\x1b" not in result.output
