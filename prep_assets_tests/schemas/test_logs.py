"""Logs of providers' interfaces as chats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.start.sniff import sniff
from prep_assets.samples import Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.graph.workspaces import build, domain, jsonl, refusals, workspace_in

ANTHROPIC, RESPONSES = schemas()["anthropic"].example, schemas()["openai_responses"].example
OPENAI = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How warm is it in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I must look it up.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "It is 4 degrees."},
    ],
    "tools": [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}],
}
"""The chat of both examples, as Chat Completions has it."""


def converted(name: str, row: dict[str, Any], **options: Any) -> Sample:
    sample = apply(convert_with(name, options), row)
    assert isinstance(sample, Sample)
    return sample


def told(sample: Sample) -> list[tuple[str, list[tuple[str, str]]]]:
    """Roles, kinds and texts, without the ids of calls, which each provider writes otherwise."""
    return [(turn.role, [(region.kind, region.text.split(',"id":')[0].rstrip("}")) for region in turn.regions]) for turn in sample.turns]


@pytest.mark.parametrize(("name", "row"), [("anthropic", ANTHROPIC), ("openai_responses", RESPONSES)])
def test_one_chat_in_three_forms_is_one_chat(name: str, row: dict[str, Any]) -> None:
    sample, same = converted(name, row), converted("messages", OPENAI)
    assert told(sample) == told(same)
    assert sample.tools == same.tools


def test_blocks_of_anthropic() -> None:
    results = [
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "5"}, {"type": "text", "text": " C"}]},
        {"type": "tool_result", "tool_use_id": "a"},
        {"type": "text", "text": "Well?"},
    ]
    calls = [{"type": "tool_use", "id": each, "name": "weather", "input": {}} for each in "ab"]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Warm."}]}
    system = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    sample = converted("anthropic", {"system": system, "messages": [*messages, answer]})
    assert [(turn.role, turn.text, turn.tool_call_id) for turn in sample.turns[3:]] == [
        ("tool", "", "a"),
        ("tool", "5 C", "b"),
        ("user", "Well?", None),
        ("assistant", "Warm.", None),
    ], "in the order of the calls"
    assert sample.turns[0].text == "Be brief."
    beside = {"log": {"request": {"messages": messages}, "response": answer}}
    assert converted("anthropic", beside, request_key="log.request", response_key="log.response").turns == sample.turns[1:]


def test_items_of_responses() -> None:
    """What a model made in a row is one answer; reasoning without a text is none."""
    output = [
        {"type": "reasoning", "summary": [], "status": "completed"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "content": [{"type": "reasoning_text", "text": "b"}]},
        {"type": "message", "role": "assistant", "content": "Look:", "status": "completed"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "status": "completed"},
    ]
    row = {"request": {"input": "Hi"}, "response": {"output": output}}
    [asked, answer] = converted("openai_responses", row, request_key="request", response_key="response").turns
    assert (asked.role, asked.text) == ("user", "Hi")
    assert [(region.kind, region.text) for region in answer.regions] == [
        ("thinking", "a\n\nb"),
        ("text", "Look:"),
        ("tool_call", '{"name":"f","arguments":{},"id":"c"}'),
    ]


def test_plain_chats_are_messages_all_the_same() -> None:
    plain = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    assert sniff([plain])[0].schema == "messages"
    assert sniff([ANTHROPIC])[0].schema == "anthropic"
    assert sniff([RESPONSES])[0].schema == "openai_responses"


def chats(folder: Path, name: str, rows: list[dict[str, Any]], **more: Any) -> Any:
    folder.mkdir(exist_ok=True)
    source = domain(jsonl(folder / "log.jsonl", rows), name, **more)
    tokenizer = str(Path(__file__).resolve().parents[2] / "configs" / "tokenizer")
    return workspace_in(folder, {"sft": {"tokenizer": tokenizer, "template": "qwen3", "domains": {"log": source}}})


@pytest.mark.parametrize(("name", "row"), [("anthropic", ANTHROPIC), ("openai_responses", RESPONSES)])
def test_a_log_becomes_tokens_with_a_proven_mask(name: str, row: dict[str, Any], tmp_path: Path) -> None:
    """Whole in one object, and as a log has it: a request, and its response behind it."""
    listed = "messages" if name == "anthropic" else "input"
    *asked, answer = row[listed]
    apart = {"request": {**row, listed: asked}, "response": answer if name == "anthropic" else {"output": [answer]}}
    keys = {"request_key": "request", "response_key": "response"}
    for number, (log, options) in enumerate(
        [(row, {}), (apart, keys), ({"log": apart}, {key: f"log.{part}" for key, part in keys.items()})]
    ):
        workspace = chats(tmp_path / str(number), name, [log], options=options)
        assert refusals(build(workspace, "sft_tokens", "log")) == []


def test_a_field_of_a_block_that_nobody_reads_stops_the_build(tmp_path: Path) -> None:
    result = {**ANTHROPIC["messages"][2]["content"][0], "is_error": True}
    messages = [*ANTHROPIC["messages"][:2], {"role": "user", "content": [result]}, ANTHROPIC["messages"][3]]
    with pytest.raises(PrepAssetsError, match=r"messages\.content\.is_error"):
        build(chats(tmp_path, "anthropic", [{**ANTHROPIC, "messages": messages}]), "sft_tokens", "log")
    kept = chats(tmp_path / "b", "anthropic", [{**ANTHROPIC, "messages": messages}], ignore=["messages.content.is_error"])
    assert build(kept, "sft_tokens", "log").manifest.counts["kept"] == 1
