"""The pages of the documentation, and how to get at the code in them."""

from __future__ import annotations

import re
from pathlib import Path

from prep_assets_tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted(DOCS.rglob("*.md"))]
"""Every page, the project's README first."""

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def label(page: Path) -> str:
    """How test ids call a page."""
    return page.relative_to(ROOT).as_posix()


def read(page: Path) -> str:
    """The text of a page."""
    return page.read_text("utf-8")


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in some languages, or in any where none is named."""
    return [body for language, body in _FENCE.findall(read(page)) if not languages or language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def code(page: Path) -> list[str]:
    """All code of a page: fenced blocks, and what stands between backticks."""
    return [*blocks(page), *re.findall(r"`([^`\n]+)`", prose(page))]
