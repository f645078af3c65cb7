"""docs/templates/matrix.md: the table of what each template gets, made from the cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_lowercase

from prep_assets_tests.text.matrix.cells import Cell
from prep_assets_tests.text.matrix.chats import KINDS

SIGNS = {
    "": "✓",
    "template_refuses": "r",
    "template_drops_content": "d",
    "template_drops_tools": "t",
    "template_reorders_content": "o",
    "no_stop_token": "s",
    "generation_prompt_not_found": "h",
    "no_image_token": "·",
}
"""What the page writes for each reason."""


def table(rows: Mapping[str, Mapping[str, Cell]]) -> str:
    """A line of signs for each template, one sign a kind of chat; templates with the same cells share a line."""
    letters = ascii_lowercase[: len(KINDS)]
    groups: dict[str, list[str]] = {}
    for name, cells in rows.items():
        groups.setdefault("".join(SIGNS[cells[kind].reason] for kind in KINDS), []).append(name)
    lines = [f"{signs}  {', '.join(_short(names))}" for signs, names in groups.items()]
    return "\n".join(["```text", letters, *lines, "```"])


def legend() -> str:
    """What the letters mean."""
    named = [f"{letter} {kind.replace(',', ' –')}" for letter, kind in zip(ascii_lowercase, KINDS, strict=False)]
    return f"Kinds of chat: {', '.join(named)}."


def _short(names: list[str]) -> list[str]:
    """``gemma*`` for ``gemma`` and ``gemma_training``."""
    variants = {f"{name}_training" for name in names}
    return [f"{name}*" if f"{name}_training" in names else name for name in names if name not in variants]


def with_table(page: str, mark: str, rows: Mapping[str, Mapping[str, Cell]]) -> str:
    """`page` with a fresh table between ``<!-- MARK -->`` and ``<!-- end -->``."""
    found = re.compile(f"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
    assert found.search(page), f"the page has no place for {mark}"
    return found.sub(lambda match: f"{match[1]}{table(rows)}\n{match[2]}", page)
