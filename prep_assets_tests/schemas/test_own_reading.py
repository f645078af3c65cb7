"""Whatever a function of one's own does with a row, a field that it leaves out is seen."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import msgspec
import pydantic
import pytest

from prep_assets.errors import Refused
from prep_assets.samples import Sample, turn
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with


class Struct(msgspec.Struct):
    q: str
    a: str
    turns: list[dict[str, str]] = []


class Model(pydantic.BaseModel):
    q: str
    a: str
    turns: list[dict[str, str]] = []


def made(found: Any) -> Sample:
    return Sample((*(turn("user", each["text"]) for each in found.turns), turn("user", found.q), turn("assistant", found.a)))


HOW = {
    "msgspec": lambda row: made(msgspec.convert(row, Struct)),
    "msgspec_json": lambda row: made(msgspec.json.decode(msgspec.json.encode(row), type=Struct)),
    "pydantic": lambda row: made(Model(**row)),
    "validated": lambda row: made(Model.model_validate(row)),
    "copied": lambda row: made(types.SimpleNamespace(**{"turns": [], **dict(row)})),
    "dumped": lambda row: made(types.SimpleNamespace(**{"turns": [], **json.loads(json.dumps(row))})),
    "by_name": lambda row: made(types.SimpleNamespace(q=row["q"], a=row["a"], turns=row.get("turns", []))),
}


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    sys.modules["own_readers"] = types.ModuleType("own_readers")
    vars(sys.modules["own_readers"]).update(HOW)
    yield
    del sys.modules["own_readers"]


def reader(how: str, ignore: tuple[str, ...] = ()) -> Reader:
    return Reader(convert_with(f"own_readers:{how}"), Account(ignore))


@pytest.mark.parametrize("how", HOW)
def test_what_is_left_out_is_seen(how: str) -> None:
    row = {"q": "1?", "a": "1", "id": 7, "task": "Count.", "turns": [{"text": "Hi"}, {"text": "So", "mood": "bad"}]}
    found = reader(how)
    assert isinstance(apply(found, row), Sample)
    assert (dict(found.account.counts), dict(found.account.unknown)) == ({"id": 1}, {"task": 1, "turns.mood": 1})
    assert found.account.examples == {"task": "Count.", "turns.mood": "bad"}


@pytest.mark.parametrize("how", HOW)
def test_what_decides_refuses_the_row(how: str) -> None:
    with pytest.raises(Refused) as refused:
        apply(reader(how), {"q": "1?", "a": "1", "system": "Count."})
    assert refused.value.reason == "unsupported_column"


@pytest.mark.parametrize("how", HOW)
def test_what_is_used_or_ignored_is_none_of_it(how: str) -> None:
    found = reader(how, ("task", "turns.mood"))
    apply(found, {"q": "1?", "a": "1", "task": "Count.", "turns": [{"text": "Hi", "mood": "bad"}]})
    assert (dict(found.account.counts), dict(found.account.unknown)) == ({"task": 1, "turns.mood": 1}, {})
