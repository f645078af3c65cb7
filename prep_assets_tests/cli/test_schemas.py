"""`prep-assets schemas`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas


def test_lists_every_schema(run: Any) -> None:
    words = run("schemas").stdout.split()
    for name, found in schemas().items():
        assert {name, *found.aliases} <= set(words)


@pytest.mark.parametrize("name", ["alpaca", "gsm8k", "messages", "moss", "hh", "semantic", "sections", "text"])
def test_shows_options_and_a_row_that_it_reads(run: Any, name: str) -> None:
    shown = run("schemas", name).stdout
    options, _, row = shown.partition("a row that it reads:")
    assert set(schemas()[name].options) <= set(options.split())
    apply(convert_with(name), json.loads(row))


def test_an_alias_shows_its_schema(run: Any) -> None:
    assert run("schemas", "MOSSMultiTurnHandler").stdout == run("schemas", "moss").stdout


def test_a_mistyped_name_names_the_nearest(run: Any) -> None:
    result = run("schemas", "alpacca")
    assert result.exit_code == 1
    assert "no schema 'alpacca'; did you mean 'alpaca'? Known: " in result.stderr
