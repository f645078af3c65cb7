"""The page of the command line has the groups of the help."""

from __future__ import annotations

import re

import typer

from prep_assets.cli.main import app
from prep_assets_tests.docs.pages import DOCS, prose, read

PAGE = DOCS / "cli.md"


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
