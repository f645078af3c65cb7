"""docs/templates/matrix.md: the table of what each template gets, made from the cells."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    """Templates by kinds of chat; templates with the same cells share a line."""
    lines = ["| template | " + " | ".join(KINDS) + " |", "|---" * (len(KINDS) + 1) + "|"]
    groups: dict[str, list[str]] = {}
    for name, cells in rows.items():
        groups.setdefault(" | ".join(SIGNS[cells[kind].reason] for kind in KINDS), []).append(name)
    return "\n".join([*lines, *(f"| {', '.join(names)} | {signs} |" for signs, names in groups.items())])


def with_table(page: str, mark: str, rows: Mapping[str, Mapping[str, Cell]]) -> str:
    """`page` with a fresh table between ``<!-- MARK -->`` and ``<!-- end -->``."""
    found = re.compile(f"(<!-- {mark} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    assert found.search(page), f"the page has no place for {mark}"
    return found.sub(lambda match: f"{match[1]}\n{table(rows)}\n{match[2]}", page)
