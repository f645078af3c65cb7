"""docs/templates/matrix.md: the table of what each template gets, made from the cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_lowercase
from textwrap import wrap

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
    """A letter for each kind of chat, and a line of signs for each template; templates with the same cells share a line."""
    letters = ascii_lowercase[: len(KINDS)]
    legend = ", ".join(f"{letter} {kind.replace(',', ' –')}" for letter, kind in zip(letters, KINDS, strict=True))
    groups: dict[str, list[str]] = {}
    for name, cells in rows.items():
        groups.setdefault("".join(SIGNS[cells[kind].reason] for kind in KINDS), []).append(name)
    return "\n".join(
        ["```text", *wrap(legend, 110), "", letters, *(f"{signs}  {', '.join(names)}" for signs, names in groups.items()), "```"]
    )


def with_table(page: str, mark: str, rows: Mapping[str, Mapping[str, Cell]]) -> str:
    """`page` with a fresh table between ``<!-- MARK -->`` and ``<!-- end -->``."""
    found = re.compile(f"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
    assert found.search(page), f"the page has no place for {mark}"
    return found.sub(lambda match: f"{match[1]}{table(rows)}\n{match[2]}", page)
