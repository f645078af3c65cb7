"""Columns of structs were unified, so that every tool showed the parameters of all others, as null.

Year: 2025 – 2026
Hit: ms-swift#6467, PR#10110, PR#10125, axolotl PR#3136, prime-rl PR#2988
Cost: Tool calls with foreign arguments, trained.
Stopped by: null members that padding added are taken out; a table that leaves this open is refused
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from prep_assets_tests.graph.workspaces import build, domain, minimal, workspace_in
from prep_assets_tests.museum.gallery import ASSISTANT, USER, Stand, said


def called(name: str, **arguments: int) -> dict[str, object]:
    """A row whose assistant calls a tool of its own."""
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    properties = {key: {"type": "integer"} for key in arguments}
    tool = {
        "type": "function",
        "function": {"name": name, "description": "Works.", "parameters": {"type": "object", "properties": properties}},
    }
    messages = [
        said(USER, f"Call {name}.", tool_calls=None),
        said(ASSISTANT, "", tool_calls=[call]),
        said("tool", "4", tool_calls=None),
        said(ASSISTANT, "It is 4.", tool_calls=None),
    ]
    return {"messages": messages, "tools": [tool]}


def test_no_foreign_arguments(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([called("add", a=1), called("twice", b=2)])
    padded = table.to_pylist()[0]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert padded == {"a": 1, "b": None}, "Arrow pads: this is the historical fault"
    pq.write_table(table, tmp_path / "calls.parquet")
    families = minimal(
        "sft",
        {"chats": domain(tmp_path / "calls.parquet", "messages")},
        template="qwen3",
        engine="reference",
        output={"storage_format": "bin"},
    )
    workspace = workspace_in(tmp_path, families)
    build(workspace, "sft_raw", "chats")
    stand = Stand(workspace, build(workspace, "sft_tokens", "chats"))
    assert stand.failing() == []
    for row in stand.rows():
        text = stand.text(row.ids)
        assert "null" not in text
        calls = [json.loads(part.split("</tool_call>")[0]) for part in text.split("<tool_call>\n")[2:]]
        assert [len(call["arguments"]) for call in calls] == [1]
