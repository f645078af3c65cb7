"""The pages that only the site has: one for each command and each check, with links that lead somewhere."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import typer
import yaml

from prep_assets.cli.main import app
from prep_assets.extensions.selftest import mutations
from prep_assets.graph.graph import CHECKS, EVERY
from prep_assets.text.load_template import named_templates
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, PAGES, read
from prep_assets_tests.docs.test_pages import LINK, anchors


def of_the_site(name: str) -> Any:
    """A module of `tools/site`."""
    found = importlib.util.spec_from_file_location(f"{name}_of_the_site", ROOT / "tools" / "site" / f"{name}.py")
    assert found is not None and found.loader is not None
    sys.modules[found.name] = module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    """Path in the site → Markdown, as `make docs` makes them."""
    made: Mapping[str, str] = of_the_site("pages").pages()
    return made


def test_each_command_has_a_page_with_its_help_and_an_example(pages: Mapping[str, str]) -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        page = pages[f"commands/{name}.md"]
        assert f"Usage: prep-assets {name} " in page
        assert all(option in page for parameter in command.load().params for option in parameter.opts[:1] if option.startswith("--"))
        assert f"[`{name}`]({name}.md)" in pages["commands/index.md"]
    assert "From [where](../lineage.md#where):\n\n```console\n$ prep-assets where gsm8k/64\n" in pages["commands/where.md"]


def test_each_check_has_a_page_with_what_it_holds_and_the_stores_that_have_it(pages: Mapping[str, str]) -> None:
    for name in {check.name for checks in CHECKS.values() for check in checks} | {"readable"}:
        page = pages[f"checks/{name}.md"]
        assert len(page.partition("\n\n")[2].partition("## ")[0]) > 120, name
        assert all(f"`{asset}`" in page for asset, checks in CHECKS.items() if name in {check.name for check in checks})
    corruptions = [each for name, table in vars(mutations).items() if name.endswith("MUTATIONS") for each in table]
    corruptions += [each for asset in EVERY.values() for own in asset.corruptions for each in own.mutations]
    assert len(corruptions) > 100
    assert [each.name for each in corruptions if f"- {each.name}\n" not in pages[f"checks/{each.caught_by}.md"]] == []


def test_the_gallery_marks_what_each_template_trains(pages: Mapping[str, str]) -> None:
    """Of every shipped template: both answers and their stops, and nothing of the questions."""
    shown = dict(part.split("\n", 1) for part in pages["templates/gallery.md"].split("\n\n## ")[1:])
    assert set(shown) == set(named_templates())
    for name, page in shown.items():
        marked, text = re.findall("<mark>(.*?)</mark>", page, re.DOTALL), re.sub("</?mark>", "", page)
        assert "What is 3 * 4?" in text, name
        assert sum("It is 12." in part or "Then it is 14." in part for part in marked) == 2, name
        assert not any("What is" in part or "2 more" in part for part in marked), name
        assert html.unescape(marked[-1]).strip().startswith(("<", "[")), f"{name}: its last stop is trained"
    assert "<mark>It is 12.</mark><mark>&lt;|eot_id|&gt;</mark>" in shown["llama3"]


def test_their_links_resolve(pages: Mapping[str, str]) -> None:
    broken = []
    for name, text in pages.items():
        for target in LINK.findall(text):
            path, _, anchor = target.partition("#")
            there = (DOCS / name).parent / path
            made = there.resolve().relative_to(DOCS).as_posix() if there.resolve().is_relative_to(DOCS) else ""
            if (
                "://" not in target
                and made not in pages
                and not (there.resolve() in PAGES and (not anchor or anchor in anchors(there.resolve())))
            ):
                broken.append(f"{name}: {target}")
    assert broken == []


def test_the_navigation_has_every_page() -> None:
    """A page that it lacks is found by nobody who reads on."""
    listed = [each for part in yaml.safe_load(read(ROOT / "mkdocs.yml"))["nav"] for entries in part.values() for each in entries]
    named = [each if isinstance(each, str) else next(iter(each.values())) for each in listed]
    assert sorted(path.name for path in DOCS.glob("*.md") if path.name not in named) == []
    assert sorted(f"{folder.name}/" for folder in DOCS.iterdir() if list(folder.glob("*.md")) and f"{folder.name}/" not in named) == []
    assert {"commands/", "checks/"} <= set(named)


def test_pictures_are_what_the_code_draws_and_stand_on_a_page() -> None:
    shown = "".join(read(page) for page in PAGES)
    for name, draw in of_the_site("pictures").PICTURES.items():
        path = DOCS / "images" / f"{name}.svg"
        if os.environ.get("PREP_ASSETS_WRITE_DOCS") == "1":
            path.write_text(str(draw()), "utf-8")
        assert path.read_text("utf-8") == str(draw()), f"docs/images/{name}.svg is out of date: PREP_ASSETS_WRITE_DOCS=1 pytest {__file__}"
        assert f"(images/{name}.svg)" in shown
