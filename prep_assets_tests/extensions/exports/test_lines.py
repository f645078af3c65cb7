"""JSONL of which the lines differ: every line counts, and nothing in one is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets import export, load
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports import arrow as arrow_tables
from prep_assets.extensions.exports.compared import compare
from prep_assets.stores.table import open_table
from prep_assets_tests.effort import examples
from prep_assets_tests.extensions.exports.conftest import write_lines

HF = {"layout": "trl", "split": "train", "pad_id": 0, "image_dir": None}
VERL = {"data_source": None, "ability": "math", "split": "train"}


def said(value: Any) -> Any:
    """What a value says, where a key that is null and one that is not there are the same."""
    if isinstance(value, dict):
        return {key: said(each) for key, each in value.items() if each is not None}
    return [said(each) for each in value] if isinstance(value, list) else value


def arrow(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.arrow")):
        found += pa.ipc.open_stream(path.read_bytes()).read_all().to_pylist()
    return found


@pytest.fixture(params=[1, 2, 10_000])
def batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines are read at a time."""
    monkeypatch.setattr(arrow_tables, "BATCH", request.param)


LATE: list[dict[str, Any]] = [
    {"prompt": [{"role": "user", "content": "a"}], "chosen": "b", "rejected": "c"},
    {"prompt": [{"role": "user", "content": "d", "name": "Eve"}], "chosen": "e", "rejected": "f", "tools": [{"name": "t"}]},
    {"prompt": [{"role": "tool", "content": None}], "chosen": "h", "rejected": "i", "tools": [{"name": "u", "parameters": {"x": 1}}]},
    {"prompt": [], "chosen": "h", "rejected": "i", "tools": [], "score": 1, "nothing": None},
    {"prompt": [], "chosen": "h", "rejected": "i", "score": 0.5},
]


@pytest.mark.usefixtures("batch")
def test_keys_of_later_lines_are_kept(tmp_path: Path) -> None:
    source = open_table(write_lines(tmp_path / "l", "preferences", LATE))
    found = arrow(export(source, "hf_arrow", tmp_path / "out"))
    assert [said(row) for row in found] == [said(row) for row in LATE]
    assert list(found[0]) == ["prompt", "chosen", "rejected", "tools", "score", "nothing"]
    assert compare(tmp_path / "out", source, "hf_arrow", HF).passed


@pytest.mark.usefixtures("batch")
def test_keys_of_later_lines_are_kept_for_verl(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "a"}]},
        {
            "messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}],
            "tools": [{"name": "t"}],
            "enable_thinking": True,
        },
    ]
    source = open_table(write_lines(tmp_path / "l", "chats", rows))
    found = pq.read_table(export(source, "verl", tmp_path / "out") / "train.parquet").to_pylist()
    assert [said(row) for row in found] == rows
    assert compare(tmp_path / "out", source, "verl", VERL).passed


@pytest.mark.usefixtures("batch")
@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"prompt": "a"}, {"prompt": "b"}, {"prompt": [{"role": "user"}]}], "'prompt' is text in line 1 and a list in line 3"),
        ([{"said": None}, {"said": 1.0}, {"said": "x"}], "'said' is a number in line 2 and text in line 3"),
        ([{"gold": "x"}, {"gold": [1]}], "the gold is .*, trainers compare text or numbers"),
        ([{"score": 1.5}, {"score": True}], "'score' is a number in line 1 and true or false in line 2"),
        ([{"m": [{"content": "a"}]}, {"m": [{}, {"content": [1]}]}], r"'m\[\]\.content' is text in line 1 and a list in line 2"),
        ([{"n": 1}, {"n": 1 << 70}], "a value that no column can hold"),
        ([{"n": 0.5}, {"n": (1 << 60) + 1}], "a value that no column can hold"),
        ([{"t": "a"}, {"t": "\ud800"}], "a value that no column can hold"),
    ],
)
def test_columns_of_two_kinds_are_refused(rows: list[dict[str, Any]], complaint: str, tmp_path: Path) -> None:
    folder = write_lines(tmp_path / "l", "mixed", rows)
    with pytest.raises(ConfigError, match=complaint):
        export(folder, "hf_arrow", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l"]


VALUES = st.recursive(
    st.none() | st.text("ab\u00e9", max_size=3),
    lambda inner: st.lists(st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_size=2),
    max_leaves=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=1, max_size=8), st.integers(1, 4))
def test_every_line_or_none(rows: list[dict[str, Any]], size: int) -> None:
    """Whatever lines say, tables say the same, or there are no tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_tables, "BATCH", size)
        try:
            schema = arrow_tables.schema_of(lambda: iter(rows), Path("f.jsonl"))
            found = [row for table in arrow_tables.tables(lambda: iter(rows), schema) for row in table.to_pylist()]
        except ConfigError as error:
            assert "but a column holds one kind" in str(error) or not any(rows)
            return
    assert [said(row) for row in found] == [said(row) for row in rows]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (
            [{"prompt": "a", "gold": 1.0}, {"prompt": [], "gold": 2}],
            "line 2: .* reads prompt as text, these are messages. Build with form: text",
        ),
        ([{"prompt": "a", "gold": 1}, {"prompt": "b", "gold": "x+1"}], "line 2: the gold 'x.1'; .* compares numbers"),
        ([{"prompt": "a", "gold": True}], "line 1: the gold True"),
        ([{"x": 1}], r"has the fields \['x'\]; .* reads prompt"),
        ([{"prompt": "a", "gold": 1}, {"prompt": "b", "answer": 1}], r"line 2: the fields \['answer', 'prompt'\]"),
        (
            [{"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": "a", "chosen": 3, "rejected": "c"}],
            "line 2: .* chosen as text, this is 3",
        ),
    ],
)
def test_tlfs_looks_at_every_line(rows: list[dict[str, Any]], complaint: str, tmp_path: Path) -> None:
    folder = write_lines(tmp_path / "l", "lines", rows)
    with pytest.raises(ConfigError, match=complaint):
        export(folder, "tlfs", tmp_path / "out")


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"text": "p"}], "verl needs messages"),
        ([{"prompt": "a", "gold": 1.0}, {"prompt": "b", "solution": 2}], "line 2 has the fields"),
        ([{"prompt": "a", "gold": 1.0}, {"prompt": "b", "gold": None}], "line 2: the gold is None"),
        ([{"messages": []}, {"prompt": "b", "gold": 1}], "line 2 has no list of messages"),
        (
            [{"messages": [{"role": "user", "content": "a"}], "tools": [{"parameters": {}}]}],
            "'tools.item.parameters' is an object without keys",
        ),
    ],
)
def test_verl_looks_at_every_line(rows: list[dict[str, Any]], complaint: str, tmp_path: Path) -> None:
    folder = write_lines(tmp_path / "l", "lines", rows)
    with pytest.raises(ConfigError, match=complaint):
        export(folder, "verl", tmp_path / "out", **({} if "messages" in rows[0] else {"data_source": "x"}))


def test_our_lines_can_be_opened_whichever_of_them_have_a_key(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "gold": 1.0}, {"prompt": "b", "gold": 2.0, "verifier": "math"}, {"prompt": "c", "gold": 3.0}]
    folder = write_lines(tmp_path / "l", "rl_prompts_train", rows)
    store = load(folder / "rl_prompts_train.jsonl")
    assert [store.fetch_record(i, "verifier") for i in range(3)] == [None, "math", None]
    assert [store.fetch_record(i, "gold") for i in range(3)] == [1.0, 2.0, 3.0]


def test_a_list_of_numbers_stands_in_every_line(tmp_path: Path) -> None:
    for name, rows in (("late", [{"a": "x"}, {"a": "y", "ids": [1]}]), ("early", [{"a": "x", "ids": [1]}, {"a": "y"}])):
        folder = write_lines(tmp_path / name, "x", rows)
        with pytest.raises(StoreError, match="line 2 has the keys"):
            load(folder / "x.jsonl")


def call(**arguments: Any) -> dict[str, Any]:
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    return {"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "", "tool_calls": calls}]}


@pytest.mark.parametrize("kind", ["hf_arrow", "verl"])
def test_arguments_of_tool_calls_are_not_padded_with_those_of_others(kind: str, tmp_path: Path) -> None:
    """A column has one set of keys for all its objects, so a call of ``f(a)`` came out as ``f(a, b=null)`` and would have been trained."""
    options = {} if kind == "hf_arrow" else {"data_source": "d"}
    same = [{**call(a=1), "gold": "x"}, {**call(a=2), "gold": "x"}]
    export(write_lines(tmp_path / "same", "rows", same), kind, tmp_path / "out", **options)
    prompts = [{"prompt": row["prompt"] + row["chosen"], "gold": "x"} for row in (call(a=1), call(b=2))]
    with pytest.raises(ConfigError, match=r"arguments' is an object with a in line 1 and an object with b in line 2"):
        export(write_lines(tmp_path / "other", "rows", prompts), kind, tmp_path / "other_out", **options)
