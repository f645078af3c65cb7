"""The pages of the site that are in no file: one for each command and each check, made from the code and from what other
pages say of them; and a gallery of masks.

python tools/site/pages.py FOLDER [TEMPLATES]

TEMPLATES is a folder of further chat templates for the gallery, ``NAME.jinja`` each.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from tokenizers import Tokenizer
from typer.testing import CliRunner

from prep_assets.api import render
from prep_assets.cli.main import app
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.extensions.exports.assets import Exporting, export_asset
from prep_assets.extensions.selftest import mutations
from prep_assets.graph.graph import CHECKS, EVERY
from prep_assets.text.load_template import named_templates

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH = 80  # as wide as a page of the site
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")
_CONTROL = re.compile(r"<[|｜][^<>{}'\"\s]{1,40}>|<[a-z_]{1,20}\|>|</?s>|<(?:start|end)_of_[a-z]+>|\[/?[A-Z_]{2,20}\]")
NAMED = DOCS.parent / "prep_assets" / "text" / "named"


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


def pages(templates: Path | None = None) -> dict[str, str]:
    """Path → Markdown of every such page. `templates`: a folder of further ones for the gallery."""
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
    intro = "Together, and what to do when one fails: [Checks](../checks.md)."
    found["checks/index.md"] = index("Checks, one by one", intro, told, lambda name: next(iter(told[name].values())))
    found["templates/gallery.md"] = gallery(sorted(templates.glob("*.jinja")) if templates else [])
    return found


CHAT = [
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "What is 3 * 4?"},
    {"role": "assistant", "reasoning_content": "Three fours.", "content": "It is 12."},
    {"role": "user", "content": "And 2 more?"},
    {"role": "assistant", "reasoning_content": "12 + 2.", "content": "Then it is 14."},
]
"""What each template of the gallery writes; without reasoning or the system prompt where it has no place for them."""


def gallery(further: Sequence[Path]) -> str:
    """The same chat by every template, with what is trained marked."""
    named = {name: name for name in named_templates()}
    named |= {path.stem: str(path) for path in further}
    parts = [
        "# Gallery of masks",
        "One chat by each template, made by `tools/site/pages.py`: what is marked is trained, stop tokens included. "
        + str(len(named))
        + " templates.",
    ]
    for name, template in sorted(named.items()):
        source = Path(template) if template.endswith(".jinja") else NAMED / f"{template}.jinja"
        with TemporaryDirectory() as folder:
            shown, left_out = marked_chat(template, tokenizer_for(source.read_text("utf-8"), Path(folder) / "tokenizer"))
        said = f" Without {' and '.join(left_out)}, for which it has no place." if left_out else ""
        parts.append(
            f"## {name}\n\n<pre style='white-space: pre-wrap'>{shown}</pre>{said}"
            if shown
            else f"## {name}\n\nIts render does not show where texts stand, so a build stops."
        )
    return "\n\n".join(parts) + "\n"


def tokenizer_for(source: str, folder: Path) -> Path:
    """The shipped tokenizer, with the control tokens that a template names: what ends a turn is one."""
    shutil.copytree(DOCS.parent / "configs" / "tokenizer", folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens(sorted({*_CONTROL.findall(source)}))
    backend.save(str(folder / "tokenizer.json"))
    return folder


def marked_chat(template: str, tokenizer: Path) -> tuple[str, list[str]]:
    """The chat as HTML, and what was left out of it; nothing where the template is refused."""
    plain = [{key: value for key, value in message.items() if key != "reasoning_content"} for message in CHAT]
    for chat, left_out in (
        (CHAT, []),
        (plain, ["reasoning"]),
        (CHAT[1:], ["a system prompt"]),
        (plain[1:], ["reasoning", "a system prompt"]),
    ):
        try:
            rendered = render(chat, tokenizer=tokenizer, template=template)
        except (Refused, PrepAssetsError):
            continue
        trained = [(span.start, span.end) for span in rendered.spans if span.role == "assistant"]
        answers = {span.turn for span in rendered.spans if span.role == "assistant"}
        trained += [(stop.start, stop.end) for stop in rendered.stops if stop.turn in answers]
        html, at = "", 0
        for start, end in sorted(trained):
            html += escape(rendered.text[at:start]) + f"<mark>{escape(rendered.text[start:end])}</mark>"
            at = end
        return html + escape(rendered.text[at:]), left_out
    return "", []


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
    tables = [table for each, table in vars(mutations).items() if each.endswith("MUTATIONS")]
    tables += [each.mutations for asset in EVERY.values() for each in asset.corruptions]
    corruptions = dict.fromkeys(each.name for table in tables for each in table if each.caught_by == name)
    parts = [f"# Check `{name}`", moved(body, "checks.md")]
    if corruptions:
        listed = "\n".join(f"- {what}" for what in corruptions)
        parts += [
            "## Corruptions that it must catch",
            f"The selftest does these to copies of rows, and the check must fail:\n\n{listed}",
        ]
    stores = "\n".join(f"| {asset if ' ' in asset else f'`{asset}`'} | {text} |" for asset, text in says.items())
    parts += ["## Stores that have it", f"| store | what holds when it passes |\n|---|---|\n{stores}"]
    first = next(iter(says))
    command = f"prep-assets verify {first}" if first in CHECKS else "prep-assets verify"
    parts += ["## Run it", f"```console\n$ {command}\n```\n\nWhat to do when it fails: [Checks](../checks.md#when-a-check-fails)."]
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
    for name, text in pages(Path(sys.argv[2]) if len(sys.argv) > 2 else None).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
