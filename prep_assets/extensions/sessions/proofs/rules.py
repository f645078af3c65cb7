"""What sessions say, by the name that their definition in `formats` gives the rule. It shares no code with the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import tools
from prep_assets.samples import Row

_ASIDE = (
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "<turn_aborted>",
)
_SPOKEN = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "reasoning_content", "reasoning_details")
Message = dict[str, Any]


def session(walk: Walk, row: Row, role: str, path: str) -> None:
    """All that the lines of a session say; of one with branches what leads to the last line."""
    lines = row.get("lines") or [row]
    first = lines[0]
    if "messages" in first:
        system, said = first.get("system_prompt"), [*first["messages"]]
        said = [{key: message[key] for key in _SPOKEN if key in message} for message in said if _is_said(message)]
        tools(walk, first.get("tools") or [], role, "tools")
    elif any(line.get("type") in ("session_meta", "response_item") for line in lines):
        begin = max((at for at, line in enumerate(lines) if line["type"] == "compacted"), default=0)
        metas = [line["payload"] for line in lines if line["type"] == "session_meta"]
        told = [meta.get("base_instructions") or meta.get("instructions") or "" for meta in metas]
        system = next((text for each in told if (text := each.get("text") if isinstance(each, Mapping) else each)), None)
        tools(walk, next((found for meta in metas if (found := meta.get("tools") or meta.get("dynamic_tools"))), []), role, "tools")
        spoken = [line["payload"] for line in lines[begin:] if line["type"] in ("response_item", "compacted")]
        items = [item for each in spoken for item in (each.get("replacement_history") or [each])]
        said = _joined([message for item in items for message in _of_item(item)], joins=True)
    else:
        system, mixed = None, {bool(line.get("isSidechain")) for line in lines if line.get("message")} == {True, False}
        main = [line for line in lines if not (mixed and line.get("isSidechain"))]
        kept = _last_branch(main) if walk.options.get("several") == "last" else main
        said = _joined([message for line in kept for message in _of_line(line)], joins=False)
    if isinstance(system, str):
        walk.say(system, "system", path)
    ends = [at for at, message in enumerate(said) if message["role"] == "assistant" and not _calls_in(message)]
    walk.chat(said[: ends[-1] + 1], "chat", path)


def _is_said(message: Row) -> bool:
    return message["role"] != "session_meta" and message.get("active", 1) not in (0, False)


def _blocks(content: Any) -> list[Any]:
    listed = content if isinstance(content, list) else [{"type": "text", "text": content}] if isinstance(content, str) else ()
    return [block for block in listed if isinstance(block, Mapping)]


def _message(line: Row) -> Row:
    found = line.get("message")
    if not isinstance(found, Mapping) or line.get("type") not in ("user", "assistant", "message"):
        return {}
    return found if isinstance(found.get("id"), str) else {**found, "id": None}


def _calls_in(message: Message) -> bool:
    return bool(message.get("tool_calls")) or any(block.get("type") == "tool_use" for block in _blocks(message.get("content")))


def _joined(messages: Sequence[Message], *, joins: bool) -> list[Message]:
    """Messages, of which answers with one id are one; `joins`: also answers in a row."""
    whole = list[Message]()
    for message in messages:
        same = [each for each in whole if message.get("id") and each.get("id") == message["id"]]
        before = same or [each for each in whole[-1:] if joins and each["role"] == message["role"] == "assistant"]
        if before:
            before[0]["content"] = before[0]["content"] + message["content"]
        elif message["content"] or message["role"] == "tool":
            whole.append(message)
    return whole


def _last_branch(lines: Sequence[Row]) -> list[Row]:
    """The lines from the first to the last, by their parents, and what stands beside them: other lines of their answers, and results of their calls."""
    if not any(line.get("parentUuid") or line.get("parentId") for line in lines):
        return [*lines]
    begin = max((at for at, line in enumerate(lines) if line.get("isCompactSummary")), default=0)
    path, wanted = list[Row](), None
    for line in reversed(lines[begin:]):
        if (not path and (lines[0]["type"] == "session" or line["type"] in ("user", "assistant", "attachment"))) or (
            path and (line.get("uuid") or line.get("id")) == wanted
        ):
            path.append(line)
            wanted = line.get("parentUuid", line.get("parentId"))
    found = [_message(line) for line in path]
    ids = {message.get("id") for message in found} - {None}
    found += [message for line in lines if (message := _message(line)).get("id") in ids]
    calls = {block.get("id") for message in found for block in _blocks(message.get("content"))} - {None}
    return [line for line in lines[begin:] if line in path or _is_beside(_message(line), ids, calls)]


def _is_beside(message: Row, ids: set[Any], calls: set[Any]) -> bool:
    return message.get("id") in ids or any(block.get("tool_use_id") in calls for block in _blocks(message.get("content")))


def _of_line(line: Row) -> Iterator[Message]:
    """What a line of Claude Code or Pi says."""
    message = _message(line)
    attached = (line.get("attachment") if line["type"] == "attachment" else None) or {}
    if attached.get("type") == "queued_command":
        message = {"role": "user", "content": attached["prompt"]}
    blocks, user = _blocks(message.get("content")), message.get("role") == "user"
    first = next((block["text"] for block in blocks if block["type"] == "text"), "")
    if (
        line.get("isMeta")
        or message.get("model") == "<synthetic>"
        or (user and line["type"] == "user" and first.lstrip().startswith(_ASIDE[:3]))
    ):
        return
    said = [
        block
        for block in blocks
        if block["type"] not in ("redacted_thinking", "tool_result") and str(block.get(block["type"], "-")).strip()
    ]
    said = [{**block, "type": "tool_use", "input": block["arguments"]} if block["type"] == "toolCall" else block for block in said]
    for block in blocks:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _blocks(block.get("content"))}
    if message.get("role") == "toolResult":
        yield {"role": "tool", "tool_call_id": message["toolCallId"], "content": said}
    elif message:
        yield {"role": message["role"], "id": message.get("id"), "content": said}


def _of_item(item: Row) -> Iterator[Message]:
    """What an item of Codex says."""
    kind = item.get("type")
    if kind == "message" and item["role"] in ("user", "assistant"):
        texts = [part["text"] for part in item["content"]]
        if item["role"] == "assistant" or not texts[0].lstrip().startswith((*_ASIDE[3:], "# AGENTS.md")):
            yield {"role": item["role"], "content": [{"type": "text", "text": text} for text in texts]}
    elif kind == "reasoning":
        texts = [part["text"] for part in (*(item.get("summary") or ()), *(item.get("content") or ()))]
        yield {"role": "assistant", "content": [{"type": "thinking", "thinking": text} for text in texts]}
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        given = json.loads(item["arguments"] or "{}") if "arguments" in item else item.get("action") or {"input": item.get("input")}
        call = {"type": "tool_use", "id": item["call_id"], "name": item.get("name") or "local_shell", "input": given}
        yield {"role": "assistant", "content": [call]}
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item["output"]["content"] if isinstance(item["output"], Mapping) else item["output"]
        yield {"role": "tool", "tool_call_id": item["call_id"], "content": _blocks(output)}
