"""The page of the four projects: every handler and hook that is registered stands there, and in a recipe."""

from __future__ import annotations

import re

from prep_assets.schemas.registry import schemas
from prep_assets_tests.docs.pages import DOCS


def handlers_of_the_page() -> set[str]:
    here = (DOCS / "seeds.md").read_text("utf-8").partition("## Left out")[0]
    second = [row.partition(" → ")[2] for row in here.splitlines() if row.startswith("- ")]
    return {name for cell in second for name in re.findall(r"`([^`]+)`", cell) if re.search(r"Handler$|_hook", name)}


def test_every_handler_and_hook_that_is_registered_is_listed() -> None:
    """What is here and not on the page would be lost to those who come from there."""
    registered = (*schemas(), *(alias for each in schemas().values() for alias in each.aliases))
    assert handlers_of_the_page() == {name for name in registered if re.search(r"Handler$|_hook", name)}


def test_every_handler_and_hook_stands_in_a_recipe() -> None:
    recipes = "".join(path.read_text("utf-8") for path in (DOCS.parent / "configs" / "recipes").rglob("*.yaml"))
    assert handlers_of_the_page() <= {*re.findall(r"schema: (\w+)", recipes)}
