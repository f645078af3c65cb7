"""Pages say what was measured: figures of `benchmarks/results.md` and `graph/real_data.md`."""

from __future__ import annotations

import re

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, read

NAMED = {"our checks": "its checks", "TRL": "TRL", "our command": "the command", "Megatron-LM": "Megatron-LM"}
"""What the page calls otherwise: how names begin there, and in the tables."""


def measured() -> dict[str, dict[str, str]]:
    """Table → case → median."""
    tables = re.findall(r"^### ([^,]+),.*\n\n((?:\|.*\n)+)", read(ROOT / "benchmarks" / "results.md"), re.MULTILINE)
    return {title: dict(re.findall(r"^\| (.+?) \| ([\d.]+) \(", rows, re.MULTILINE)) for title, rows in tables}


def test_each_figure_was_measured() -> None:
    found, compared = measured(), 0
    columns = ("Chats", "Chats with tools", "Preference pairs", "Documents")
    for line in re.findall(r"^\| (?!time)(.+) \|$", read(DOCS / "performance.md"), re.MULTILINE):
        name, *figures = [cell.strip() for cell in line.split("|")]
        for ours, theirs in NAMED.items():
            if name.startswith(ours):
                name = theirs + name.removeprefix(ours).split(", two")[0]
        for title, figure in zip(columns, figures, strict=True):
            if figure:
                cases = [median for case, median in found[title].items() if case == name or case.startswith(f"{name},")]
                assert cases and cases[0] == figure, (name, title)
                compared += 1
    assert compared == 23


def test_the_page_on_real_data_says_what_was_measured() -> None:
    page, measured = read(DOCS / "real-data.md"), read(ROOT / "prep_assets_tests" / "graph" / "real_data.md")
    lines = re.findall(r"^- (`.+`) \((`.+`)\): ([\d,]+) of ([\d,]+)(?:; (.+))?$", page, re.MULTILINE)
    rows = [f"| {file} | {schema} | {read_} | {kept} | {refused} |" for file, schema, kept, read_, refused in lines]
    assert len(rows) > 10
    assert [row for row in rows if row not in measured] == []
    assert [said for said in re.findall(r"^> (.+)$", page, re.MULTILINE) if said not in measured] == []
