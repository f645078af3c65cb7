"""Links between pages lead somewhere; figures were measured, and messages that are explained are messages of the code."""

from __future__ import annotations

import os
import re
from pathlib import Path

from prep_assets_tests.cells import cells
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, PAGES, label, prose, read

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: lower case, punctuation gone, spaces to dashes, a number for what is repeated."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.add(slug if slug not in found else f"{slug}-{found[slug]}")
        found[slug] = found.get(slug, 0) + 1
    return names


@cells("page", PAGES, ids=label)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_the_index_names_every_page_and_folder() -> None:
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(read(DOCS / "README.md"))}
    expected = {page for page in DOCS.glob("*.md") if page.name != "README.md"} | set(DOCS.glob("*/README.md"))
    assert {page.relative_to(DOCS).as_posix() for page in expected - linked} == set()


def test_anchors_are_made_as_on_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n\n## Stop\n\n## Stop\n\n```\n# no heading\n```\n", "utf-8")
    assert anchors(page) == {"one-two-three", "stop", "stop-1"}


NAMED = {"our checks": "its checks", "TRL": "TRL", "our command": "the command", "Megatron-LM": "Megatron-LM"}
"""What the page calls otherwise: how names begin there, and in the tables."""


def measured() -> dict[str, dict[str, str]]:
    """Table → case → median."""
    tables = re.findall(r"^### ([^,]+),.*\n\n((?:\|.*\n)+)", read(ROOT / "benchmarks" / "results.md"), re.MULTILINE)
    return {title: dict(re.findall(r"^\| (.+?) \| ([\d.]+) \(", rows, re.MULTILINE)) for title, rows in tables}


def test_each_figure_was_measured() -> None:
    found, compared = measured(), 0
    columns = ("Chats", "Chats with tools", "Preference pairs", "Documents")
    for line in re.findall(r"^\| (?!time)(.+) \|$", read(DOCS / "performance.md").partition("\n## ")[0], re.MULTILINE):
        name, *figures = [cell.strip() for cell in line.split("|")]
        for ours, theirs in NAMED.items():
            if name.startswith(ours):
                name = theirs + name.removeprefix(ours).split(", two")[0]
        for title, figure in zip(columns, figures, strict=True):
            if figure:
                cases = [median for case, median in found[title].items() if case == name or case.startswith(f"{name},")]
                assert cases and cases[0] == figure, (name, title)
                compared += 1
    assert compared == 22


def test_the_page_on_real_data_says_what_was_measured() -> None:
    page, measured = read(DOCS / "real-data.md"), read(ROOT / "prep_assets_tests" / "graph" / "real_data.md")
    lines = re.findall(r"^- (`.+`) \((`.+`)\): ([\d,]+) of ([\d,]+)(?:; (.+))?$", page, re.MULTILINE)
    rows = [f"| {file} | {schema} | {read_} | {kept} | {refused} |" for file, schema, kept, read_, refused in lines]
    assert len(rows) > 10
    assert [row for row in rows if row not in measured] == []
    assert [said for said in re.findall(r"^> (.+)$", page, re.MULTILINE) if said not in measured] == []


def test_every_message_that_is_explained_is_raised_somewhere() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "prep_assets").rglob("*.py"))
    named = [
        text
        for title in re.findall(r"^### (.*)$", read(DOCS / "troubleshooting.md"), re.MULTILINE)
        for text in re.findall(r'"([^"]+)"', title)
    ]
    assert len(named) > 12
    assert [text for text in named if text not in source] == []


def test_llms_txt_lists_every_page() -> None:
    """For language models, as llmstxt.org defines it: each page with its first sentence."""

    def entry(page: Path) -> str:
        title, _, text = prose(page).lstrip("# ").partition("\n")
        first = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(text.strip().partition("\n\n")[0].split()))
        return f"- [{title}]({label(page)}): {re.split(r'(?<=[.]) ', first)[0].rstrip(':')}"

    about = re.search(r"\*\*(.+?)\.?\n\n", read(ROOT / "README.md"), re.DOTALL)
    assert about is not None
    summary = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(about[1].replace("**", "").split()))
    pages = [page for page in PAGES if page.parent == DOCS and page.name != "README.md"]
    lines = ["# prep-assets", "", f"> {summary}.", "", "## Pages", "", *map(entry, [ROOT / "AGENTS.md", *pages]), ""]
    path = ROOT / "llms.txt"
    if os.environ.get("PREP_ASSETS_WRITE_DOCS") == "1":
        path.write_text("\n".join(lines), "utf-8")
    assert path.read_text("utf-8") == "\n".join(lines), "PREP_ASSETS_WRITE_DOCS=1 pytest prep_assets_tests/docs/test_pages.py writes it"
