"""Logs of providers' interfaces, a request with its response, as chats: ``anthropic`` (Messages) and ``openai_responses`` (Responses)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from prep_assets.errors import Refused, nearest
from prep_assets.extensions.rl.schemas import nested
from prep_assets.samples import USER, Row, Sample, changed
from prep_assets.schemas.fields import as_mapping, objects, text_of, value_at, whole
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, chat_sample, require_answer, tools_at, with_system

Message = Mapping[str, Any]
Placed = tuple[str, Row]
"""An object of a row with its path."""


def _part_of(row: Row, key: str | None) -> Row:
    return row if key is None else as_mapping(nested(row, key), key)


def _chat(row: Row, messages: Iterator[Message], where: str, system: str, tools: Sequence[Mapping[str, Any]]) -> Sample:
    turns = with_system(ChatFormat().turns([*messages], where), system)
    require_answer(turns)
    return changed(chat_sample(row, turns, None), tools=tools_at({"tools": tools}, "tools"))


def result_of(call: str, content: object) -> Message:
    return {"role": "tool", "tool_call_id": call, "content": content}


_ASKED = {"role": "user", "content": "How warm is it in Oslo?"}
_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
_ANTHROPIC: dict[str, Any] = {
    "system": "Be brief.",
    "messages": [
        _ASKED,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I must look it up.", "signature": "EqQB"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is 4 degrees."}]},
    ],
    "tools": [{"name": "weather", "input_schema": _PARAMETERS}],
}


@schema("anthropic", gives=Sample, example=_ANTHROPIC)
def anthropic(*, request_key: str | None = None, response_key: str | None = None) -> Convert:
    """A request to Anthropic's Messages, whose last answer is in it or in a response. A tool's ``input_schema`` becomes ``parameters``.

    Options:
        request_key: object with the request, dots for nested ones; null where the row is the request.
        response_key: object with the response, whose `content` is the last answer; null where the messages end with it.
    """

    def convert(row: Row) -> Sample:
        request = _part_of(row, request_key)
        listed = [*objects(value_at(request, "messages"), "messages")]
        listed += [] if response_key is None else [(response_key, _part_of(row, response_key))]
        system = request.get("system") or ""
        if not isinstance(system, str):
            system = "".join(text_of(block, "text", place) for place, block in objects(system, "system"))
        tools = [_as_function(*placed, "input_schema", "custom") for placed in objects(request.get("tools") or [], "tools")]
        return _chat(row, (turned for place, message in listed for turned in of_blocks(message, place)), "messages", system, tools)

    return convert


def _as_function(where: str, tool: Row, schema_key: str, kind: str) -> Message:
    """A tool as chat templates expect it. One that the provider runs itself, such as a search of the web, is rejected (``bad_tools``)."""
    if tool.get("type") not in (None, kind):
        raise Refused("bad_tools", f"{where} is of type {tool['type']!r}, which the provider runs; known: {kind}")
    described = {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
    return {
        "type": "function",
        "function": {"name": text_of(tool, "name", where), **described, "parameters": whole(value_at(tool, schema_key, where))},
    }


def of_blocks(message: Row, where: str) -> Iterator[Message]:
    """A message, with each result of a tool as a message of its own."""
    content, role = value_at(message, "content", where), text_of(message, "role", where)
    if isinstance(content, str) or not content:
        yield message
        return
    for is_result, run in groupby(objects(content, f"{where}.content"), lambda block: block[1].get("type") == "tool_result"):
        blocks = [*run]
        if is_result and role != USER:
            raise Refused("role_content", f"{where} is a {role} message, which cannot have results of tools")
        if is_result:
            yield from (result_of(text_of(block, "tool_use_id", place), block.get("content") or "") for place, block in blocks)
            continue
        for _, block in blocks:
            block.get("signature")  # by which Anthropic knows its own reasoning
        yield {"role": role, "content": [block for _, block in blocks]}


_RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        _ASKED,
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I must look it up."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 4 degrees."}]},
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": _PARAMETERS}],
}
_OF_MODELS = ("reasoning", "function_call")
_ITEMS = ("message", *_OF_MODELS, "function_call_output")


@schema("openai_responses", gives=Sample, example=_RESPONSES)
def openai_responses(*, request_key: str | None = None, response_key: str | None = None) -> Convert:
    """A request to OpenAI's Responses, whose last items are in it or in a response. Items that a model made in a row are one answer.

    Options:
        request_key: object with the request, dots for nested ones; null where the row is the request.
        response_key: object with the response, whose `output` are the last items; null where the input ends with them.
    """

    def convert(row: Row) -> Sample:
        request = _part_of(row, request_key)
        asked = value_at(request, "input")
        items: list[Placed] = [("input", {"role": USER, "content": asked})] if isinstance(asked, str) else [*objects(asked, "input")]
        items += [] if response_key is None else objects(value_at(_part_of(row, response_key), "output"), "output")
        tools = [_as_function(*placed, "parameters", "function") for placed in objects(request.get("tools") or [], "tools")]
        return _chat(row, of_items(items), "input", text_of(request, "instructions", required=False), tools)

    return convert


def of_items(items: Sequence[Placed]) -> Iterator[Message]:
    for of_model, run in groupby(items, lambda item: item[1].get("role") == "assistant" or item[1].get("type") in _OF_MODELS):
        if of_model:
            yield {"role": "assistant", "content": [part for item in run for part in _parts(*item)]}
            continue
        for place, item in run:
            kind = item.get("type") or "message"
            if kind not in _ITEMS:
                raise Refused("unknown_part", f"{place} has type {kind!r}{nearest(kind, _ITEMS)}; known: {', '.join(_ITEMS)}")
            item.get("status")
            yield item if kind == "message" else result_of(text_of(item, "call_id", place), value_at(item, "output", place))


def _parts(where: str, item: Row) -> Iterator[Message]:
    """The parts of an answer that an item of a model is."""
    item.get("status")
    if item.get("type") == "function_call":
        name, arguments = (text_of(item, key, where) for key in ("name", "arguments"))
        yield {"type": "tool_use", "id": text_of(item, "call_id", where), "name": name, "arguments": arguments}
    elif item.get("type") == "reasoning":
        parts = [part for key in ("summary", "content") for part in objects(item.get(key) or [], f"{where}.{key}")]
        if parts:
            for _, part in parts:
                part.get("type")  # summary_text or reasoning_text
            yield {"type": "thinking", "thinking": "\n\n".join(text_of(part, "text", place) for place, part in parts)}
    elif isinstance(content := value_at(item, "content", where), str):
        yield {"type": "text", "text": content}
    else:
        yield from (part for _, part in objects(content, where))
