"""The pages of the site that are in no file: one for each command and each check, made from the code and from what other pages say of them.

python tools/site/pages.py FOLDER
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.graph.exports import Exporting, export_asset
from prep_assets.graph.graph import CHECKS, EVERY

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH = 80  # as wide as a page of the site
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\| `(\w+)` \| ([^|`]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A fenced block of a page, and the heading that it stands under."""

    page: str
    title: str
    anchor: str
    text: str

    @property
    def link(self) -> str:
        """To the heading, from a page in a folder."""
        return f"[{self.title}](../{self.page}#{self.anchor})"


def pages() -> dict[str, str]:
    """Path → Markdown of every such page."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = list(examples())
    found = {f"commands/{name}.md": command_page(name, command, shown) for name, command in sorted(commands.items())}
    found["commands/index.md"] = index(
        "Commands", "What each asks for, in the words of its `--help`.", commands, lambda name: first_line(commands[name].help)
    )
    of_exports = export_asset(Exporting("any", EVERY["pretrain_tokens"], "megatron", "train", {})).checks
    told: dict[str, dict[str, str]] = {}
    for asset, checks in (*CHECKS.items(), ("every export", of_exports)):
        for check in checks:
            told.setdefault(check.name, {})[asset] = check.description
    found |= {f"checks/{name}.md": check_page(name, says) for name, says in sorted(told.items())}
    intro = "Together, with tables of corruptions: [Checks](../checks.md)."
    found["checks/index.md"] = index("Checks, one by one", intro, told, lambda name: next(iter(told[name].values())))
    return found


def index(title: str, intro: str, names: Any, says: Any) -> str:
    """A table of the pages of a folder."""
    rows = "\n".join(f"| [`{name}`]({name}.md) | {says(name)} |" for name in sorted(names))
    return f"# {title}\n\n{intro}\n\n| | |\n|---|---|\n{rows}\n"


def command_page(name: str, command: Any, shown: list[Example]) -> str:
    """A command: its help, and where other pages show it."""
    says = (
        CliRunner(env={"COLUMNS": str(WIDTH), "TERM": "dumb", "NO_COLOR": "1"})
        .invoke(app, [name, "--help"], prog_name="prep-assets")
        .output
    )
    uses = [each for each in shown if re.search(rf"^\$ prep-assets {name}\b(?!-)", each.text, re.MULTILINE)]
    links = list(dict.fromkeys(each.link for each in uses))
    parts = [f"# `prep-assets {name}`", first_line(command.help), f"```text\n{says.strip()}\n```"]
    if uses:
        parts += ["## An example", f"From {uses[0].link}:", f"```console\n{uses[0].text.rstrip()}\n```"]
    if len(links) > 1:
        parts += ["## Elsewhere", "\n".join(f"- {link}" for link in links[1:])]
    return "\n\n".join(parts) + "\n"


def check_page(name: str, says: dict[str, str]) -> str:
    """A check: its part of the page of checks, the corruptions that it must catch, and the stores that have it with what it says of each."""
    page = (DOCS / "checks.md").read_text("utf-8")
    body = re.split(r"^## ", page.partition(f"\n## `{name}`\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()
    table = page.partition("## The selftest")[2]
    corruptions = [what for by, listed in _ROW.findall(table) if by == name for what in listed.split("; ")]
    parts = [f"# Check `{name}`", moved(body, "checks.md")]
    if corruptions:
        listed = "\n".join(f"- {what}" for what in corruptions)
        parts += [
            "## Corruptions that it must catch",
            f"The selftest and the tests do these to stores, and the check must fail:\n\n{listed}",
        ]
    stores = "\n".join(f"| {asset if ' ' in asset else f'`{asset}`'} | {text} |" for asset, text in says.items())
    parts += ["## Stores that have it", f"| store | what holds when it passes |\n|---|---|\n{stores}"]
    first = next(iter(says))
    command = f"prep-assets verify {first}" if first in CHECKS else "prep-assets verify"
    parts += ["## Run it", f"```console\n$ {command}\n```\n\nWhat a failure looks like, and what to do: [Checks](../checks.md)."]
    return "\n\n".join(parts) + "\n"


def moved(text: str, page: str) -> str:
    """A part of a page with its links as they are one folder further down."""
    return _LINK.sub(lambda found: f"](../{found[1] or page}{found[2] or ''})", text)


def first_line(text: str) -> str:
    """The first sentence or line of a help text."""
    return " ".join(text.split("\n\n")[0].split())


def examples() -> Iterator[Example]:
    """Every block of commands with its output, page by page."""
    for path in sorted(DOCS.rglob("*.md")):
        title, anchor, slugs = "", "", Counter[str]()
        fence, block = "", list[str]()
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("```"):
                if fence == "```console":
                    yield Example(path.relative_to(DOCS).as_posix(), title, anchor, "\n".join(block))
                fence, block = "" if fence else line, []
            elif fence:
                block.append(line)
            elif match := re.match(r"^#+ (.+)$", line):
                title = match[1].replace("`", "")
                base = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                anchor = f"{base}_{slugs[base]}" if slugs[base] else base
                slugs[base] += 1


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
