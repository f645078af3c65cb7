"""docs/configuration.md has every key with its type, default and meaning, as the models have them."""

from __future__ import annotations

import difflib
import os
import sys
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from prep_assets.config import family, models
from prep_assets.config.base import Model, NoOptions
from prep_assets.config.models import FAMILIES
from prep_assets.extensions.media.options import BY_NAME
from prep_assets_tests.docs.configuration import MARKED, SECTIONS, with_tables
from prep_assets_tests.docs.pages import DOCS, PAGES, blocks, label, read

PAGE = DOCS / "configuration.md"
WRITE = "PREP_ASSETS_WRITE_DOCS"


def test_the_tables_are_those_of_the_models() -> None:
    found, fresh = read(PAGE), with_tables(read(PAGE))
    if os.environ.get(WRITE) == "1":
        PAGE.write_text(fresh, "utf-8")
        return
    changed = "\n".join(difflib.unified_diff(found.splitlines(), fresh.splitlines(), "the page", "the models", lineterm="", n=0))
    assert found == fresh, f"docs/configuration.md is out of date. Write its tables again with\n  {WRITE}=1 pytest {__file__}\n{changed}"


def test_every_model_has_a_table() -> None:
    shown = [name for _, name, _ in MARKED.findall(read(PAGE))]
    assert sorted(shown) == sorted([*SECTIONS, "rules"])
    modules = (family, models, *(sys.modules[model.__module__] for model in FAMILIES.values()))
    values = [each for module in modules for each in vars(module).values()]
    declared = {each for each in values if isinstance(each, type) and issubclass(each, Model) and each is not Model}
    assert set(SECTIONS.values()) == declared - set(BY_NAME.values()) - {NoOptions}


def fits(values: dict[str, Any]) -> list[str]:
    """Families that take `values`, which may be a part of a file: what it lacks is filled in."""
    mixed = [name for each in (values.get("packing") or {}).values() if isinstance(each, dict) for name in each]
    domain = {"files": ["a.jsonl"], "schema": "text"}
    filled = {"tokenizer": "tokenizer", "domains": dict.fromkeys(("a", *mixed), domain), **values}
    found = []
    for name, model in FAMILIES.items():
        try:
            model.model_validate(values if name == "eval" else filled)
        except ValidationError:
            continue
        found.append(name)
    return found


BLOCKS = [(page, block) for page in PAGES for block in blocks(page, "yaml")]
EXAMPLES = [(page, block) for page, block in BLOCKS if not block.startswith("type: ")]
COMPONENTS = [yaml.safe_load(block) for _, block in BLOCKS if block.startswith("type: ")]


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[f"{label(page)}-{i}" for i, (page, _) in enumerate(EXAMPLES)])
def test_an_example_is_a_configuration(page: Any, block: str) -> None:
    assert fits(yaml.safe_load(block)), f"{label(page)}: no family takes\n{block}"


def test_an_example_of_a_component_has_attributes_that_there_are() -> None:
    from prep_assets import TrainingData

    for found in COMPONENTS:
        assert found["type"] == "prep_assets.TrainingData"
        assert set(found["attributes"]) <= set(TrainingData.model_fields)
    assert COMPONENTS


@pytest.mark.parametrize("values", [{"packing": {"row_length": 1}}, {"form": "messages", "packing": {}}, {"mask": {"user": "trian"}}])
def test_what_no_family_takes_is_found(values: dict[str, Any]) -> None:
    assert fits(values) == []
