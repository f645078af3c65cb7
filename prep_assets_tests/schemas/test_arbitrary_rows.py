"""Whatever JSON a row is, a schema converts it or refuses it with a reason of its own."""

from __future__ import annotations

import copy
import string
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.samples import Example, Turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.effort import examples

NAMES = list(schemas())
FIELDS = sorted({key for found in schemas().values() for key in found.example} | {"role", "content", "type", "value", "images", "tools"})
WORDS = [
    "",
    " ",
    "user",
    "assistant",
    "human",
    "gpt",
    "tool",
    "system",
    "text",
    "image",
    "<image>",
    "####",
    "#### 5",
    "{}",
    "[1]",
    "\n\nAssistant: x",
]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(WORDS)
keys = st.sampled_from(FIELDS) | st.text(string.ascii_letters, max_size=4)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12)
rows = st.dictionaries(keys, values, max_size=6)


def require_example_or_refusal(name: str, row: dict[str, Any]) -> None:
    try:
        example = apply(convert_with(name), row)
    except Refused as refusal:
        assert refusal.reason not in ("schema_error", "skipped_by_schema"), refusal.detail
        assert refusal.detail and refusal.stage == "schema"
    else:
        assert isinstance(example, get_args(Example))
        assert all(isinstance(turn, Turn) and turn.regions for turn in turns_of(example))


def turns_of(example: Any) -> list[Turn]:
    found = [getattr(example, part) for part in ("turns", "prompt", "chosen", "rejected") if hasattr(example, part)]
    return [turn for turns in (*found, *getattr(example, "responses", ())) for turn in turns]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value inside `value`, itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((*path, key), *places(inner, (*path, key)))]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(row=rows)
def test_arbitrary_json_is_converted_or_refused(name: str, row: dict[str, Any]) -> None:
    require_example_or_refusal(name, row)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_example_row_with_something_altered_is_converted_or_refused(name: str, data: st.DataObject) -> None:
    row: Any = copy.deepcopy(dict(schemas()[name].example))
    for _ in range(data.draw(st.integers(1, 3))):
        if not (all_places := places(row)):
            break
        *path, last = data.draw(st.sampled_from(all_places))
        inside = row
        for key in path:
            inside = inside[key]
        action = data.draw(st.sampled_from(["replace", "remove", "double"]))
        if action == "replace":
            inside[last] = data.draw(values)
        elif action == "remove":
            del inside[last]
        elif isinstance(inside, list):
            inside.insert(last, copy.deepcopy(inside[last]))
        else:
            inside[data.draw(keys)] = copy.deepcopy(inside[last])
    require_example_or_refusal(name, row)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_nulls_and_an_empty_row_are_refused(name: str) -> None:
    for row in ({}, dict.fromkeys(schemas()[name].example)):
        with pytest.raises(Refused) as caught:
            apply(convert_with(name), row)
        assert caught.value.reason in ("missing_field", "nothing_to_train")
