"""Links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=label)
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
