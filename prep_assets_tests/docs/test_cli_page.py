"""Commands on the page of the command line print what it shows of the shipped samples, and the page has the groups of the help."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets_tests.docs.conftest import enter
from prep_assets_tests.docs.pages import DOCS, blocks, prose, read

PAGE = DOCS / "cli.md"
SHOWN = {
    command: output.splitlines()
    for block in blocks(PAGE, "console")
    for command, _, output in [block.removeprefix("$ prep-assets ").partition("\n")]
    if command in ("inspect sft_packed --row 1", "selftest sft_tokens --partition chats")
}
"""Command → lines of its output, of those that only read what is built and say nothing of the machine."""


def missing(shown: list[str], said: str) -> list[str]:
    """Lines of a page that a command does not print, or prints before an earlier one; `…` stands for anything."""
    lines, lost = iter([" ".join(line.split()) for line in said.splitlines()]), []
    for line in shown:
        if re.fullmatch(r"[\s─]*|\s*…", line):
            continue
        pattern = ".*".join(map(re.escape, " ".join(line.split()).split("…")))
        lost += [] if any(re.fullmatch(pattern, each) for each in lines) else [line]
    return lost


@pytest.mark.parametrize("command", ["inspect sft_packed --row 1", "selftest sft_tokens --partition chats"])
def test_the_page_shows_what_is_printed(command: str, data_h5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    enter(data_h5, monkeypatch)
    assert missing(SHOWN[command], CliRunner().invoke(app, shlex.split(command)).stdout) == []


def test_a_line_that_is_not_printed_or_out_of_order_is_found() -> None:
    assert missing(["a 1", "…", "b …"], "a  1\nx\nb 2\n") == []
    assert missing(["a 2"], "a 1\n") == ["a 2"]
    assert missing(["b", "a"], "a\nb\n") == ["a"]


def test_the_page_has_the_groups_of_the_help() -> None:
    """Its list all commands, its sections those that it describes itself."""
    groups = {
        title: re.findall(r"`([a-z-]+)`", listed)
        for title, listed in re.findall(r"^- \*\*(.+)\*\*: ((?:.|\n  )+)", read(PAGE), re.MULTILINE)
    }
    sections: dict[str, list[str]] = {}
    for line in prose(PAGE).splitlines():
        if line.startswith("## "):
            section = sections.setdefault(line[3:], [])
        elif line.startswith("### "):
            section.append(line[4:])
    helped: dict[str, list[str]] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        helped.setdefault(command.rich_help_panel, []).append(name)
    assert groups == helped and list(groups) == list(helped)
    own = {title: [name for name in names if f"[`{name}`](#{name})" in read(PAGE)] for title, names in helped.items()}
    assert sections == {title: names for title, names in own.items() if names}
