"""Arrow gives every struct of a column the members of all others; what an object never had is left out."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from prep_assets.proofs.source_rows import read_rows
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with

Read = Callable[..., tuple[list[Any], list[Any]]]
Source = Callable[..., Any]

TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
OTHER = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}
ROWS = [
    {
        "tools": [tool],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [{"name": tool["name"], "arguments": arguments}]},
        ],
        "note": None,
        "text": '{"default": null}',
    }
    for tool, arguments in ((TOOL, {"city": "Oslo"}), (OTHER, {"a": 1, "b": 2}))
]


def parquet() -> bytes:
    out = BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out)
    return out.getvalue()


def arrow() -> bytes:
    table, out = pa.Table.from_pylist(ROWS), BytesIO()
    with ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def test_arrow_does_pad() -> None:
    (first, _) = pa.Table.from_pylist(ROWS).to_pylist()
    assert first["tools"][0]["parameters"]["properties"] == {"city": {"type": "string"}, "a": None, "b": None}


@pytest.mark.parametrize(("name", "data"), [("a.parquet", parquet), ("a.arrow", arrow)])
def test_foreign_parameters_are_neither_offered_nor_trained(source: Source, read: Read, name: str, data: object) -> None:
    """Audit W16: parameters of other tools stood in tools as null, and in the arguments of calls, which are trained."""
    content = data()  # type: ignore[operator]
    records, _ = read(source(name, content))
    samples = [apply(convert_with("messages"), {key: row[key] for key in ("messages", "tools")}) for row in (r.payload for r in records)]
    assert [dict(sample.tools[0]["function"]) for sample in samples] == [TOOL, OTHER]
    assert [sample.turns[1].regions[-1].text for sample in samples] == [
        '{"name":"weather","arguments":{"city":"Oslo"}}',
        '{"name":"add","arguments":{"a":1,"b":2}}',
    ]
    assert [(r.payload["note"], r.payload["text"]) for r in records] == [(None, '{"default": null}')] * 2, "columns and JSON text stay"
    second = [row for _, row in read_rows(BytesIO(content), name.rpartition(".")[2], None)]
    assert second == [r.payload for r in records]
