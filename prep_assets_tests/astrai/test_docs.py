"""The page names every key and option, and its examples are true."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from prep_assets.astrai.config import (
    Dtype,
    Section,
    SectionsInput,
    SectionsOutput,
    SectionsPreprocessing,
    Source,
    TypedInput,
    TypedPreprocessing,
    parse_pipeline,
)
from prep_assets.astrai.run import folder_of
from prep_assets.cli.preprocess import preprocess

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "preprocess.md").read_text("utf-8")
MODELS = (TypedInput, TypedPreprocessing, SectionsInput, Section, Source, SectionsPreprocessing, SectionsOutput)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.__name__))
def test_every_key_is_described(model: type) -> None:
    assert [key for key in model.model_fields if not re.search(rf"[`.]{key}`", PAGE)] == []  # type: ignore[attr-defined]


def test_every_option_and_dtype_is_described() -> None:
    options = [name.replace("_", "-") for name in inspect.signature(preprocess).parameters if name != "inputs"]
    assert [name for name in options if f"--{name}" not in PAGE] == []
    assert [name for name in get_args(Dtype) if f"`{name}`" not in PAGE] == []


def test_the_examples_are_valid() -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        parse_pipeline(json.loads(example), "docs/preprocess.md")


def test_the_folder_of_the_page_is_the_folder() -> None:
    assert f"`../x` is\n`{folder_of('../x')}`" in PAGE
