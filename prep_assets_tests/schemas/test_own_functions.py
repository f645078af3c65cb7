"""Functions of one's own, loaded by ``module:function``: read hooks as users of Cerebras Model Zoo have written them, given their kwargs; and whatever one does
with a row, a field that it leaves out is seen."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import msgspec
import pydantic
import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Sample, turn
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.schemas.conftest import in_short


def qa_hook(example: dict[str, Any], **read_hook_kwargs: Any) -> list[dict[str, Any]]:
    question = example.get(read_hook_kwargs["question_key"])
    answer = example.get(read_hook_kwargs["answer_key"])
    if not answer:
        return []
    return [
        {"type": "user", "content": [{"passage": example["passage"]}, {"question": question}], "semantic_loss_weight": [1, 0]},
        {"type": "assistant", "content": [{"answer": answer}]},
    ]


def pair_hook(example: dict[str, Any], prompt_key: str) -> list[dict[str, Any]]:
    return [
        {"type": kind, "content": [{"text": example[key]}]} for kind, key in (("prompt", prompt_key), ("chosen", "a"), ("rejected", "b"))
    ]


def token_hook(example: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "context", "content": example["ids"]}]


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
def own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own_functions")
    vars(module).update(HOW, qa_hook=qa_hook, pair_hook=pair_hook, token_hook=token_hook)
    monkeypatch.setitem(sys.modules, "own_functions", module)


ROW = {"passage": "Aspirin thins the blood.", "q": "What does it do?", "a": "It thins the blood.", "b": "Nothing."}


def test_the_semantic_data_array_of_a_hook_is_read() -> None:
    sample = apply(convert_with("own_functions:qa_hook", {"question_key": "q", "answer_key": "a"}), ROW)
    expected = "user: <passage>Aspirin thins the blood.</passage>*1<question>What does it do?</question>*0 | assistant: "
    assert in_short(sample) == expected + "<answer>It thins the blood.</answer>"
    pair = apply(convert_with("own_functions:pair_hook", {"prompt_key": "q"}), ROW)
    assert in_short(pair) == "user: What does it do? >> assistant: It thins the blood. >> assistant: Nothing."


def test_an_empty_array_is_a_refused_row_and_is_counted() -> None:
    with pytest.raises(Refused, match="empty_text"):
        apply(convert_with("own_functions:qa_hook", {"question_key": "q", "answer_key": "missing"}), ROW)


def test_token_ids_are_refused() -> None:
    with pytest.raises(Refused) as raised:
        apply(convert_with("own_functions:token_hook"), {"ids": [1, 2]})
    assert raised.value.stage == "schema"


def test_a_keyword_that_the_hook_does_not_take_stops() -> None:
    with pytest.raises(ConfigError, match=r"takes no option 'answer_key'"):
        convert_with("own_functions:pair_hook", {"prompt_key": "q", "answer_key": "a"})


def reader(how: str, ignore: tuple[str, ...] = ()) -> Reader:
    return Reader(convert_with(f"own_functions:{how}"), Account(ignore))


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
