"""Commands on the page of the command line print what it shows of the shipped samples. `PREP_ASSETS_WRITE_DOCS=1` writes the blocks."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, blocks, prose, read

PAGE = DOCS / "cli.md"
SHOWN = {
    command: output
    for block in blocks(PAGE, "console")
    for command, _, output in [block.removeprefix("$ prep-assets ").partition("\n")]
    if command in ("verify sft_tokens --partition chats", "stats sft_tokens", "stats sft_packed")
}
"""Command → output, of those that only read what is built and say nothing of the machine."""


def _said(command: str) -> str:
    result = CliRunner().invoke(app, shlex.split(command))
    lines = [line.rstrip() for line in result.stdout.strip("\n").splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def _alike(text: str) -> str:
    """Hashes differ between versions of HDF5's library, sizes of its files with them."""
    return re.sub(r"\b[0-9a-f]{8,}\b|\b[0-9a-f]{2,}-[0-9a-f]+\b|[\d,.]+ k?B\b| {2,}|\s*\n\s*", " ", text)


@pytest.mark.parametrize("command", SHOWN)
def test_the_page_shows_what_is_printed(command: str, data_h5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_h5)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(data_h5 / "data" / "configs"))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(data_h5 / "data" / "stores"))
    tokenizer = data_h5 / "data" / "configs" / "tokenizer"
    if not tokenizer.exists():
        tokenizer.symlink_to(ROOT / "configs" / "tokenizer")
    said = _said(command)
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        PAGE.write_text(read(PAGE).replace(f"$ prep-assets {command}\n{SHOWN[command]}", f"$ prep-assets {command}\n{said}"), "utf-8")
    else:
        assert _alike(said) == _alike(SHOWN[command])


def test_the_page_has_the_groups_of_the_help() -> None:
    """Its table all commands, its sections those that it describes itself."""
    groups: dict[str, list[str]] = {}
    sections: dict[str, list[str]] = {}
    for line in prose(PAGE).splitlines():
        if row := re.fullmatch(r"\| \*\*(.+)\*\* \| \|", line):
            group = groups.setdefault(row[1], [])
        elif line.startswith("| [`"):
            group += re.findall(r"\[`([a-z-]+)`\]", line.split(" | ")[0])
        elif line.startswith("## "):
            section = sections.setdefault(line[3:], [])
        elif line.startswith("### "):
            section.append(line[4:])
    helped: dict[str, list[str]] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        helped.setdefault(command.rich_help_panel, []).append(name)
    assert groups == helped and list(groups) == list(helped)
    own = {title: [name for name in names if f"[`{name}`](#{name})" in read(PAGE)] for title, names in helped.items()}
    assert sections == {title: names for title, names in own.items() if names}
