"""The page of figures: read, and written again; and the list of survivors that mean nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("measured.md")
SURVIVORS = Path(__file__).with_name("survivors.md")
_ROW = re.compile(r"^\| `([\w/]+)` \| ([\d,]+) \| ([\d,]+) \| [^|]+ \| `?(\w+|–)`? \|$", re.MULTILINE)
_TABLE = re.compile(r"Of [\d,]+ changes in .*(?=\n\Z)", re.DOTALL)


@dataclass(frozen=True)
class Figure:
    """What was measured of a module.

    Attributes:
        noticed: how many changes a test noticed.
        tried: how many there were.
        state: digest of its code at that time; `–` where none was written.
    """

    noticed: int
    tried: int
    state: str


def figures() -> dict[str, Figure]:
    """The figures of the page, by module."""
    return {
        name: Figure(int(noticed.replace(",", "")), int(tried.replace(",", "")), state)
        for name, noticed, tried, state in _ROW.findall(PAGE.read_text("utf-8"))
    }


def written(found: Mapping[str, Figure]) -> str:
    """The page with these figures."""
    rows = {name: figure for name, figure in sorted(found.items()) if figure.tried}
    noticed, tried = sum(each.noticed for each in rows.values()), sum(each.tried for each in rows.values())
    table = [
        f"Of {tried:,} changes in {len(rows)} modules {noticed:,} are noticed: {noticed / tried:.1%}. Asked are 95 %.",
        "",
        "| module | noticed | of | share | code |",
        "|---|---|---|---|---|",
        *(
            f"| `{name}` | {each.noticed:,} | {each.tried:,} | {each.noticed / each.tried:.1%} | {f'`{each.state}`' if each.state != '–' else each.state} |"
            for name, each in rows.items()
        ),
    ]
    page = PAGE.read_text("utf-8")
    assert _TABLE.search(page), f"{PAGE} has no table"
    return _TABLE.sub(lambda _: "\n".join(table), page, count=1)
