"""Every number of a configuration has a largest value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from prep_assets.config.models import FAMILIES


def unbounded(schema: Any, at: str) -> Iterator[str]:
    """Where a JSON schema takes a number of any size."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and not {"maximum", "exclusiveMaximum", "const", "enum"} & schema.keys():
            yield at
        for key, each in schema.items():
            yield from unbounded(each, f"{at}.{key}")
    elif isinstance(schema, list):
        for each in schema:
            yield from unbounded(each, at)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_has_a_largest_value(family: str) -> None:
    assert list(unbounded(FAMILIES[family].model_json_schema(), family)) == []


def test_one_without_is_found() -> None:
    assert list(unbounded({"properties": {"n": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}}}, "x")) == [
        "x.properties.n.anyOf"
    ]
