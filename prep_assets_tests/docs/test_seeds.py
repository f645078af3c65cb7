"""The page of the four projects: every name in its lists exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import typer
from pydantic import BaseModel

import prep_assets.training
from prep_assets.cli.main import app
from prep_assets.compat.modellink import parser
from prep_assets.config.family import Domain, Packing
from prep_assets.config.models import FAMILIES
from prep_assets.exports.registry import exports
from prep_assets.graph.graph import CHECKS, EVERY
from prep_assets.schemas.registry import schemas
from prep_assets.text.load_template import named_templates, shipped
from prep_assets.training import DatasetFactory, SequenceDataset
from prep_assets_tests.docs.pages import DOCS

PAGE = (DOCS / "seeds.md").read_text("utf-8")
HERE = PAGE.partition("## Left out")[0]


def fields(model: type[BaseModel]) -> Iterator[str]:
    """Every key of a configuration model, those inside others as well."""
    for name, field in model.model_fields.items():
        yield field.alias or name
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from fields(inner)


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
WORDS = {
    *schemas(),
    *(alias for each in schemas().values() for alias in each.aliases),
    *(option for each in schemas().values() for option in each.options),
    *named_templates(),
    *exports(),
    *EVERY,
    *(check.name for checks in CHECKS.values() for check in checks),
    *(key for family in FAMILIES.values() for key in fields(family)),
    *(key for family in FAMILIES.values() for key in fields(Domain)),
    *prep_assets.training.__all__,
    *dir(SequenceDataset),
    *(f"prep-assets {command}" for command in COMMANDS),
    *(option for command in COMMANDS.values() for parameter in command.load().params for option in parameter.opts),
    *parser()._option_string_actions,
    *(f"prompt_type:{name}" for name in shipped()),
    *(*DatasetFactory.windowed, *DatasetFactory.records),
    *get_args(Packing.model_fields["strategy"].annotation),
    *("end_with_eos", "open_store", "offset"),
    *(stream for asset in EVERY.values() for stream in asset.streams),
}
FORMS = {
    "modelink/pretrain",
    "by-domain",
    "cerebras/fim",
    "train-llm-from-scratch",
    "hub://",
    "sampler",
    *("r50k_base.tiktoken", "BertWordPieceLowerCase", "BertWordPieceCase", "GPT2BPETokenizer", "PretrainedFromHF"),
    "package.module:function",
    "FILE.json#NAME",
    "tokenizer.json",
    "<think>",
    "build",
    "<|sep|>",
    "<answer>",
    "domains: auto",
}


def names() -> list[str]:
    second = [row.partition(" → ")[2] for row in HERE.splitlines() if row.startswith("- ")]
    return [name for cell in second for name in re.findall(r"`([^`]+)`", cell)]


def test_every_name_exists() -> None:
    found = names()
    assert len(found) > 80
    assert [name for name in found if name not in WORDS | FORMS] == []


def test_every_handler_and_hook_that_is_registered_is_listed() -> None:
    """What is here and not on the page would be lost to those who come from there."""
    theirs = {
        name
        for name in (*schemas(), *(alias for each in schemas().values() for alias in each.aliases))
        if re.search(r"Handler$|_hook", name)
    }
    assert sorted(theirs - set(names())) == []


def test_every_handler_and_hook_stands_in_a_recipe() -> None:
    recipes = "".join(path.read_text("utf-8") for path in (DOCS.parent / "configs" / "recipes").rglob("*.yaml"))
    theirs = {name for name in names() if re.search(r"Handler$|_hook$", name)}
    assert sorted(theirs - set(re.findall(r"schema: (\w+)", recipes))) == []
