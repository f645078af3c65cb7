"""What sessions say, and why one is no whole chat, by the names that their definition in `formats` gives the rules. They share no code with the schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

from msgspec import Struct, field

from prep_assets.proofs.formats import DECISIVE, Format, parsed
from prep_assets.proofs.rejected_rows import chat_fault
from prep_assets.proofs.row_rules import UNSURE, by_reasons, mixed, once, out_of_order
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import tools
from prep_assets.samples import Row

Message = dict[str, Any]


class Told(Struct):
    """What a session says.

    Attributes:
        options: of the schema.
        system: the system prompt.
        tools: those on offer.
        said: its messages, an answer one of them.
        raw: the messages of the session that these are, where it has some.
        found: reasons for which it is no whole chat.
    """

    options: Mapping[str, Any]
    system: Any = None
    tools: Any = None
    said: list[Message] = field(default_factory=list)
    raw: Sequence[Row] = ()
    found: set[str] = field(default_factory=set)

    def note(self, reason: str, *, holds: object = True) -> None:
        if holds:
            self.found.add(reason)

    def several(self, reason: str) -> None:
        """Note what an option lets pass."""
        self.note(reason, holds=self.options.get("several", "refuse") == "refuse")

    def passes(self, line: Row, known: Collection[str]) -> None:
        self.note("unknown_line", holds=str(line.get("type")) not in (*known, *(self.options.get("pass_over") or ())))

    def flag(self, line: Row, key: str) -> bool:
        value = line.get(key)
        self.note("wrong_type", holds=not isinstance(value, bool | None))
        return value is True


def session(walk: Walk, row: Row, role: str, path: str) -> None:
    """All that the lines of a session say; of one with branches what leads to the last line."""
    told = _told(row, walk.options)
    tools(walk, told.tools or [], role, "tools")
    if isinstance(told.system, str):
        walk.say(told.system, "system", path)
    walk.chat(told.said[: _ends(told)[-1] + 1], "chat", path)


# Whether it is whole.


@once
def unlike_a_chat(row: Row, format: Format) -> bool | None:
    """Its lines give no reason, and still its messages are no chat; `None` where its lines give one."""
    if _reasons(row, format):
        return None
    told = _told(row, format.options)
    messages = [_as_message(*each) for each in zip_longest(told.said, told.raw)]
    unlike = out_of_order({"said": messages}, format) or mixed({"said": messages}, format)
    return None if unlike else bool(chat_fault(messages, told.tools))


@once
def _reasons(row: Row, format: Format) -> set[str]:
    told = _told(row, format.options)
    ends = _ends(told)
    if UNSURE not in told.found:
        told.note("no_assistant_turn", holds=not ends)
        told.note("open_end", holds=ends and ends[-1] + 1 < len(told.said) and format.options["open_end"] == "refuse")
    return told.found


session_is = by_reasons(_reasons, unlike_a_chat)
"""Rules: a session is rejected for a reason that its lines give."""


def _ends(told: Told) -> list[int]:
    """The numbers of answers that end the work."""
    ends = [at for at, message in enumerate(told.said) if message["role"] == "assistant" and not _calls_in(message)]
    # a result behind an answer is that of a call typed in its text
    told.note(UNSURE, holds=any(message["role"] == "tool" for end in ends for message in told.said[end + 1 : end + 2]))
    return ends


def _calls_in(message: Message) -> bool:
    beside = any(message.get(key) for key in ("tool_calls", "function_call", "function_calls"))
    content = message["content"] if isinstance(message.get("content"), list) else ()
    return beside or any(block.get("type") in ("tool_use", "tool_call") for block in content)


def _as_message(message: Message, raw: Row | None) -> Message:
    """A message without what harnesses add to it."""
    if raw is not None:
        return {key: value for key, value in raw.items() if key not in _OF_HERMES}
    kept = ("type", "text", "thinking", "id", "name", "input")
    blocks = [{key: block[key] for key in kept if key in block} for block in message["content"]]
    return {**{key: value for key, value in message.items() if key in ("role", "tool_call_id")}, "content": blocks}


# The lines that say something.


def _told(row: Row, options: Mapping[str, Any]) -> Told:
    lines, told = [row] if _is_hermes(row) else row["lines"], Told(options)
    kinds = [str(line.get("type")) for line in lines]
    if any(map(_is_hermes, lines)):
        told.note("several_sessions", holds=len(lines) > 1)
        told.note(UNSURE, holds=not _OFFERED.isdisjoint(row))
        _hermes(next(filter(_is_hermes, lines)), told)
    elif not {"session_meta", "response_item"}.isdisjoint(kinds):
        told.said = _joined(_codex(lines, told), joins=True)
    elif kinds[0] == "session":
        told.said = _joined(_pi(lines, told), joins=False)
    elif not {*_CLAUDE}.isdisjoint(kinds):
        told.said = _joined([message for line in _claude(lines, told) for message in _of_claude(line, told)], joins=False)
    else:
        told.note("unknown_session")
    return told


def _joined(messages: Iterator[Message] | Sequence[Message], *, joins: bool) -> list[Message]:
    """Messages, of which answers with one id are one, and, if it `joins` them, also answers in a row. An answer of nothing is none."""
    listed, by_id = list[Message](), dict[str, Message]()
    for message in messages:
        before = by_id.get(message.get("id") or "")
        if joins and listed and listed[-1]["role"] == message["role"] == "assistant":
            before = listed[-1]
        if before is not None:
            before["content"] = before["content"] + message["content"]
            continue
        listed.append(message)
        by_id |= {message["id"]: message} if message.get("id") else {}
    return [message for message in listed if message["content"] or message["role"] != "assistant"]


def _text(fields: Row, key: str) -> str:
    return value if isinstance(value := fields.get(key), str) else ""


def _path(lines: Sequence[Row], at: int, id: str, parent: str, told: Told) -> set[int]:
    """The lines that lead to one of them, each the parent of the next; none where no line has a parent."""
    numbers, path = dict[str, int](), set[int]()
    for number, line in enumerate(lines):
        told.note("repeated_line", holds=_text(line, id) in numbers)
        numbers |= {name: number} if (name := _text(line, id)) else {}
    at = at if any(_text(line, parent) for line in lines) else -1
    while at >= 0:
        path.add(at)
        above = _text(lines[at], parent)
        told.note("orphan_line", holds=above and above not in numbers)
        told.note("order_contradicted", holds=numbers.get(above, -1) >= at)
        at = number if (number := numbers.get(above, -1)) < at else -1
    return path


_FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "input_text", "output_text"), ("text", "textSignature")),
    "thinking": ("thinking", "signature", "thinkingSignature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "content"),
    "toolCall": ("id", "name", "arguments", "thoughtSignature"),
}
_OF_ALL = ("type", "is_error", "cache_control", "citations", "caller", "redacted")
"""Fields of blocks, by their type and of all types."""
_TEXTS = ("text", "input_text", "output_text")


def _blocks(content: Any, told: Told, known: Collection[str]) -> list[Row]:
    """The blocks of a content, which are of known types."""
    listed = [{"type": "text", "text": content}] if isinstance(content, str) else content if isinstance(content, list) else [None]
    blocks = [block for block in listed if isinstance(block, Mapping)]
    strange = (block.get("type") not in known or not {*block} <= {*_OF_ALL, *_FIELDS[block["type"]]} for block in blocks)
    told.note(UNSURE, holds=len(blocks) < len(listed) or any(strange))
    return blocks


def _is_blank(block: Row) -> bool:
    return block.get("type") in ("text", "thinking") and not str(block.get(block["type"])).strip()


def _result(call: Any, content: Any, told: Told) -> Message:
    told.note(UNSURE, holds=not isinstance(call, str))
    return {"role": "tool", "tool_call_id": call, "content": _blocks(content, told, _TEXTS)}


# Claude Code.

_CLAUDE = ("user", "assistant", "attachment")
_CLAUDE_ASIDE = (
    *("system", "summary", "result", "progress", "mode", "permission-mode", "file-history-snapshot", "file-history-delta", "pr-link"),
    *("queue-operation", "custom-title", "ai-title", "agent-name", "agent-setting", "last-prompt", "tag"),
)
_MARKUP = ("<command-name>", "<command-message>", "<local-command-")


def _claude(lines: Sequence[Row], told: Told) -> Iterator[Row]:
    """The lines that lead to the last one, and what stands beside them: other lines of their answers, and results of their calls."""
    spoken = [at for at, line in enumerate(lines) if line.get("type") in _CLAUDE]
    helpers = {at for at in spoken if told.flag(lines[at], "isSidechain")}
    if 0 < len(helpers) < len(spoken):
        told.note("sidechains", holds=told.options.get("sidechains", "refuse") == "refuse")
        spoken = [at for at in spoken if at not in helpers]
    path = _path(lines, spoken[-1], "uuid", "parentUuid", told)
    told.note("sidechains", holds=path & (helpers - {*spoken}))
    messages = [line["message"] if isinstance(line.get("message"), Mapping) else {} for line in lines]
    contents = [each["content"] if isinstance(each.get("content"), list) else [] for each in messages]
    held = [[block for block in content if isinstance(block, Mapping)] for content in contents]
    ids = {id for at in path if (id := _text(messages[at], "id"))}
    kept = {at for at in spoken if not path or at in path or _text(messages[at], "id") in ids}
    calls = {id for at in kept for block in held[at] if block.get("type") == "tool_use" and (id := _text(block, "id"))}
    kept |= {at for at in spoken if any(block.get("type") == "tool_result" and _text(block, "tool_use_id") in calls for block in held[at])}
    begins = [at for at in spoken if told.flag(lines[at], "isCompactSummary")]
    if begins or len(kept) < len(spoken):
        told.several("compacted" if begins else "branches")
    for at, line in enumerate(lines):
        if at in kept and at >= max(begins, default=0):
            yield line
        else:
            told.passes(line, (*_CLAUDE, *_CLAUDE_ASIDE))


def _of_claude(line: Row, told: Told) -> Iterator[Message]:
    if line["type"] == "attachment":
        attached = line["attachment"]
        if attached.get("type") == "queued_command":
            yield {"role": "user", "content": _blocks(attached["prompt"], told, _TEXTS[:1])}
        return
    message = line["message"]
    role = message["role"]
    told.note("unknown_role", holds=role != line["type"])
    told.note(UNSURE, holds=not isinstance(message.get("id"), str | None) or (role == "user" and message.get("id")))
    blocks = _blocks(message["content"], told, ("text", "thinking", "redacted_thinking", "tool_use", "tool_result"))
    first = next((str(block.get("text")) for block in blocks if block.get("type") == "text"), "")
    if told.flag(line, "isMeta") or message.get("model") == "<synthetic>" or (role == "user" and first.lstrip().startswith(_MARKUP)):
        return
    said = [block for block in blocks if block.get("type") != "redacted_thinking" and not _is_blank(block)]
    for are_results, run in groupby(said, lambda block: block.get("type") == "tool_result"):
        if are_results:
            told.note("role_content", holds=role != "user")
            yield from (_result(block.get("tool_use_id"), block.get("content") or "", told) for block in run)
        else:
            yield {"role": role, "id": message.get("id"), "content": [*run]}
    if not said:
        yield {"role": role, "id": message.get("id"), "content": []}


# Codex.

_CODEX_ASIDE = ("turn_context", "event_msg", "world_state")
_WRAPPED = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md")


def _codex(lines: Sequence[Row], told: Told) -> Iterator[Message]:
    """What the items say, those of the last compaction in place of all before it."""
    items, begun = list[Row](), False
    for line in lines:
        kind, event = str(line.get("type")), line.get("payload")
        if kind == "response_item":
            told.note("orphan_line", holds=not begun)
            items.append(line["payload"])
        elif kind == "session_meta":
            begun, meta = True, line["payload"]
            words = meta.get("base_instructions") or meta.get("instructions") or ""
            words = words.get("text") or "" if isinstance(words, Mapping) else words
            told.system, told.tools = told.system or words, told.tools or meta.get("tools") or meta.get("dynamic_tools")
            told.note(UNSURE, holds=not isinstance(words, str))
        elif kind == "compacted":
            told.several("compacted")
            for item in items:  # which must be known as well
                [*_of_item(item, told)]
            history = line["payload"].get("replacement_history")
            told.note(UNSURE, holds=not isinstance(history, list))
            items = [*(history or ())]
        elif isinstance(event, Mapping) and event.get("type") == "thread_rolled_back":
            told.note("branches")
        else:
            told.passes(line, _CODEX_ASIDE)
    for item in items:
        yield from _of_item(item, told)


def _of_item(item: Row, told: Told) -> Iterator[Message]:
    kind, call = item["type"], item.get("call_id")
    told.note(UNSURE, holds=not (DECISIVE - {"input"}).isdisjoint(item))
    if kind == "message":
        blocks = _blocks(item["content"], told, _TEXTS)
        role, wraps = item["role"], str(blocks[0].get("text")).lstrip().startswith(_WRAPPED) if blocks else False
        told.note("unknown_role", holds=role not in ("user", "assistant", "system", "developer"))
        told.note(UNSURE, holds=not isinstance(item["content"], list))
        if role == "assistant" or (role == "user" and not wraps):
            yield {"role": role, "content": blocks}
    elif kind == "reasoning":
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        told.note(UNSURE, holds=any(not isinstance(part["text"], str) or not {*part} <= {"type", "text"} for part in parts))
        yield {"role": "assistant", "content": [{"type": "thinking", "thinking": part["text"]} for part in parts]}
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        name, given = item.get("name"), {"input": item.get("input")}
        if kind == "function_call":
            given = parsed(item["arguments"]) if item["arguments"].strip() else {}
        elif kind == "local_shell_call":
            name, given = "local_shell", item.get("action") or {}
        told.note(UNSURE, holds=not (isinstance(call, str) and isinstance(given, Mapping)))
        yield {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": name, "input": given}]}
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item["output"]
        yield _result(call, output["content"] if isinstance(output, Mapping) else output, told)
    else:
        told.note("unknown_part", holds=kind != "ghost_snapshot")


# Pi.

_PI_ASIDE = ("session", "model_change", "thinking_level_change", "session_info", "label", "custom", "custom_message")


def _pi(lines: Sequence[Row], told: Told) -> Iterator[Message]:
    path = _path(lines, len(lines) - 1, "id", "parentId", told)
    for at, line in enumerate(lines):
        kind = str(line.get("type"))
        if path and at not in path and kind not in _PI_ASIDE:
            told.several("branches")
        elif kind in ("compaction", "branch_summary"):
            told.note("compacted")
        elif kind == "message":
            message = line["message"]
            role, content = message["role"], message.get("content")
            told.note("unknown_role", holds=role not in ("user", "assistant", "toolResult"))
            told.note("aborted_answer", holds=content and message.get("stopReason") in ("error", "aborted"))
            said = [block for block in _blocks(content, told, ("text", "thinking", "toolCall")) if not _is_blank(block)]
            said = [_of_call(block, told) if block.get("type") == "toolCall" else block for block in said]
            answers = _result(message.get("toolCallId"), "", told) if role == "toolResult" else {"role": role}
            yield {**answers, "content": said}
        else:
            told.passes(line, _PI_ASIDE)


def _of_call(block: Row, told: Told) -> Row:
    told.note(UNSURE, holds=not isinstance(block["id"], str) or block["arguments"] is None)
    return {"type": "tool_use", "id": block["id"], "name": block.get("name"), "input": block["arguments"]}


# Hermes.

_OF_HERMES = ("session_id", "token_count", "finish_reason", "tool_name", "active", "codex_reasoning_items", "codex_message_items")
_SPOKEN = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning", "reasoning_content", "reasoning_details")
_OFFERED = frozenset(("documents", "chat_template_kwargs", "label", "kto_tag", "loss_weight", "weight", "loss_mask", "loss_scale"))
_OFFERED |= {"train", "training", "loss", "functions", "available_tools"}
"""Fields of a row that other chats have, and sessions do not."""


def _is_hermes(row: Row) -> bool:
    return isinstance(row.get("messages"), list) and not {"started_at", "parent_session_id"}.isdisjoint(row)


def _hermes(row: Row, told: Told) -> None:
    told.system, told.tools = row.get("system_prompt"), row.get("tools")
    told.note(UNSURE, holds=not isinstance(told.system, str | None))
    told.raw = [each for each in row["messages"] if each["role"] != "session_meta" and each.get("active", 1) not in (0, False)]
    told.said = [{key: each[key] for key in _SPOKEN if key in each} for each in told.raw]
    plain = (each["role"] in ("system", "user", "assistant", "tool") and {"tools", *_OFFERED}.isdisjoint(each) for each in told.raw)
    told.note(UNSURE, holds=not all(plain))
