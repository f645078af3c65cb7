"""``agent_session``: a session of Claude Code, Codex, Pi or Hermes as one chat.

A harness logs an event a line. What a model is told and says stands in ``message`` or ``payload`` of some of them; all else is for its interface. Facts on the
formats: Pi's page ``session.md``, Codex' ``RolloutItem``, ``hermes sessions export``; of Claude Code, which documents none, what its readers know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from msgspec import Struct

from prep_assets.errors import Refused, nearest
from prep_assets.extensions.agents.logs import Message, Placed, of_blocks, of_items, result_of
from prep_assets.samples import ASSISTANT, SYSTEM, TOOL_CALL, USER, Row, Sample, Turn, changed, turn
from prep_assets.schemas.fields import View, as_mapping, as_text, objects, peek, text_of, value_at, whole, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import TEXT_PARTS, ChatFormat, chat_sample, tools_at
from prep_assets.stores.files import dumps

Lines = Sequence[Placed]
"""Path and fields of each line."""
Read = tuple[str, Any, Iterable[Message]]
"""System prompt, tools and messages."""


class Rules(Struct, frozen=True):
    """The options of ``agent_session``."""

    several: str
    sidechains: str
    pass_over: Sequence[str]

    def one(self, reason: str, detail: str) -> None:
        """Reject a session that no model saw as one chat, unless what it saw last is read."""
        if self.several == "refuse":
            raise Refused(reason, f"{detail}. With several: last, what the model saw last is read")

    def passes(self, place: str, line: Row, known: Iterable[str]) -> None:
        """Read a line that tells a model nothing: one of `known` types, or of those that an option names. Any other is rejected."""
        if (kind := str(peek(line, "type"))) not in known and kind not in self.pass_over:
            detail = f"{place} is of type {kind!r}{nearest(kind, known)}. If it tells a model nothing, list the type under pass_over"
            raise Refused("unknown_line", detail)
        whole(line)


def _line(number: int, id: str, *parts: dict[str, Any]) -> dict[str, Any]:
    role = ASSISTANT if id else USER
    message = {"role": role, "content": [*parts], **({"id": id} if id else {})}
    return {"type": role, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "message": message}


_EXAMPLE = {
    "lines": [
        _line(0, "", {"type": "text", "text": "How warm is it in Oslo?"}),
        _line(1, "m1", {"type": "thinking", "thinking": "I must look it up.", "signature": "EqQB"}),
        _line(2, "m1", {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "weather Oslo"}}),
        _line(3, "", {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}),
        _line(4, "m2", {"type": "text", "text": "It is 4 degrees."}),
    ]
}


@schema("agent_session", gives=Sample, example=_EXAMPLE)
def agent_session(
    *,
    several: Literal["refuse", "last"] = "refuse",
    sidechains: Literal["refuse", "leave_out"] = "refuse",
    open_end: Literal["refuse", "trim"] = "refuse",
    pass_over: list[str] | None = None,
) -> Convert:
    """A session of Claude Code, Codex, Pi or Hermes, a file of events as ``txt: file`` reads it: the chat that its model was told and said.

    Options:
        several: a session with branches, or that was compacted: `refuse` it, or read what the model saw `last`.
        sidechains: a session of Claude Code with sub-agents in it: `refuse` it, or `leave_out` what they said.
        open_end: a session that ends without an answer: `refuse` it, or `trim` it to the last one.
        pass_over: further types of lines that tell a model nothing; null: none.
    """
    rules = Rules(several, sidechains, pass_over or ())

    def convert(row: Row) -> Sample:
        lines = [("the row", row)] if _is_hermes(row) else [*objects(value_at(row, "lines"), "lines")]
        system, tools, messages = _read(lines, rules)
        turns = ChatFormat().turns(
            [_in_lines(each) for each in messages if each.get("content") != [] or each["role"] != ASSISTANT], "lines"
        )
        if system.strip() and (not turns or turns[0].text != system):
            turns = (turn(SYSTEM, system), *turns)
        return changed(chat_sample(row, _ended(turns, open_end), None), tools=tools_at({"tools": tools}, "tools"))

    return convert


def _in_lines(message: Message) -> Message:
    """A message whose texts in a row are one, each on lines of its own."""
    if isinstance(message, View) or not isinstance(message["content"], list):
        return message
    parts = list[Message]()
    for _, part in objects(message["content"], "content"):
        text = text_of(part, "text", "a part") if part.get("type") in TEXT_PARTS else None
        if text is not None and parts and parts[-1].get("type") == "text":
            parts[-1] = {"type": "text", "text": f"{parts[-1]['text']}\n{text}"}
        else:
            parts.append(part if text is None else {"type": "text", "text": text})
    return {**message, "content": parts}


def _ended(turns: Sequence[Turn], open_end: str) -> Sequence[Turn]:
    """The turns up to the last answer without a call."""
    ends = [at for at, turn in enumerate(turns, 1) if turn.role == ASSISTANT and all(region.kind != TOOL_CALL for region in turn.regions)]
    if not ends:
        raise Refused("no_assistant_turn", f"none of its {len(turns)} turns is an answer that ends the work")
    if ends[-1] < len(turns) and open_end == "refuse":
        what = "a call without a result" if turns[-1].role == ASSISTANT else f"a turn of the {turns[-1].role}"
        raise Refused("open_end", f"it ends with {what}: it was cut. With open_end: trim, it ends with turn {ends[-1] - 1}, an answer")
    return turns[: ends[-1]]


def _read(lines: Lines, rules: Rules) -> Read:
    kinds = [str(peek(line, "type")) for _, line in lines]
    sessions = sum(_is_hermes(line) for _, line in lines)
    if sessions and len(lines) > 1:
        raise Refused("several_sessions", f"the file holds {sessions} sessions of Hermes, one a line. Leave out txt: file")
    marks = ((_codex, ("session_meta", "response_item"), kinds), (_pi, ("session",), kinds[:1]), (_claude, _CLAUDE, kinds))
    found = _hermes if sessions else next((read for read, known, has in marks if not {*known}.isdisjoint(has)), None)
    if found is None:
        raise Refused("unknown_session", f"its {len(lines)} lines are of the types {', '.join(sorted({*kinds})[:8])}")
    return found(lines, rules)


def _is_hermes(row: Row) -> bool:
    return isinstance(peek(row, "messages"), list) and not {"started_at", "parent_session_id"}.isdisjoint(row)


def _aside(fields: Row, *but: str) -> None:
    """Read what of an event says nothing to a model: times, ids, counts, what an interface shows."""
    for name in fields:
        if name not in but:
            whole(fields.get(name))


def _flag(line: Placed, key: str) -> bool:
    """A field of a line that is true, false or not there. Nothing is read by it."""
    value = peek(line[1], key)
    return value if isinstance(value, bool) else value is not None and wrong_type(value, f"{line[0]}.{key}", "true or false")


def _named(fields: Row, key: str) -> str:
    return value if isinstance(value := peek(fields, key), str) else ""


def _path(lines: Lines, last: int, id: str, parent: str) -> set[int]:
    """The lines from the first to the last one, by their parents; none where no line has one."""
    named = [(_named(line, id), at) for at, (_, line) in enumerate(lines) if _named(line, id)]
    if len(number := dict(named)) < len(named):
        raise Refused("repeated_line", f"{len(named)} lines have {len(number)} different ids, so that nothing says which follows which")
    path, at = set[int](), last if any(_named(line, parent) for _, line in lines) else None
    while at is not None:
        path.add(at)
        if (above := _named(lines[at][1], parent)) and above not in number:
            raise Refused("orphan_line", f"{lines[at][0]} follows line {above!r}, which is not in the file: it was cut")
        if number.get(above, -1) >= at:
            raise Refused("order_contradicted", f"{lines[at][0]} follows line {above!r}, which stands behind it")
        at = number.get(above)
    return path


# Claude Code: lines with a parent; an answer is a line for each of its blocks, all with one id.

_CLAUDE = ("user", "assistant", "attachment")
_CLAUDE_ASIDE = (
    *("system", "summary", "result", "progress", "mode", "permission-mode", "file-history-snapshot", "file-history-delta", "pr-link"),
    *("queue-operation", "custom-title", "ai-title", "agent-name", "agent-setting", "last-prompt", "tag"),
)
_MARKUP = ("<command-name>", "<command-message>", "<local-command-")


def _claude(lines: Lines, rules: Rules) -> Read:
    spoken = [at for at, (_, line) in enumerate(lines) if peek(line, "type") in _CLAUDE]
    main = [at for at in spoken if not _flag(lines[at], "isSidechain")]
    if 0 < len(main) < len(spoken) and rules.sidechains == "refuse":
        aside = len(spoken) - len(main)
        raise Refused("sidechains", f"{aside} of its {len(spoken)} lines are of sub-agents. With sidechains: leave_out, they are left out")
    kept, said, answers = _one_branch(lines, main or spoken, rules), list[tuple[str, dict[str, Any]]](), dict[str, dict[str, Any]]()
    for at, (place, line) in enumerate(lines):
        if at not in kept:
            rules.passes(place, line, (*_CLAUDE, *_CLAUDE_ASIDE))
            continue
        _aside(line, "message", "attachment")
        message = _attached(place, line) if peek(line, "type") == "attachment" else _claude_message(place, line)
        if message and (answer := message.pop("id")) in answers:
            answers[answer]["content"] += message["content"]
        elif message:
            said.append((place, message))
            answers |= {answer: message} if answer else {}
    return "", None, chain.from_iterable(of_blocks(message, place) for place, message in said)


def _one_branch(lines: Lines, spoken: Sequence[int], rules: Rules) -> set[int]:
    """The lines that the model saw last. Where it made several calls at once, results stand beside the path from the first line to the last."""
    path = _path(lines, spoken[-1], "uuid", "parentUuid")
    if strange := [at for at in sorted(path) if peek(lines[at][1], "type") in _CLAUDE and at not in spoken]:
        raise Refused("sidechains", f"{lines[strange[0]][0]} is of a sub-agent, and its agent goes on from it")
    path = path or {*spoken}
    answers = {id for at in path for id in _ids(lines[at])}
    kept = {at for at in spoken if at in path or not answers.isdisjoint(_ids(lines[at]))}
    calls = {call for at in kept for call in _ids(lines[at], "tool_use", "id")}
    kept |= {at for at in spoken if not calls.isdisjoint(_ids(lines[at], "tool_result", "tool_use_id"))}
    summaries = [at for at in spoken if _flag(lines[at], "isCompactSummary")]
    if summaries:
        rules.one("compacted", f"{lines[summaries[-1]][0]} is a summary of what was said before")
    elif left := [at for at in spoken if at not in kept]:
        rules.one("branches", f"{lines[left[0]][0]} and {len(left) - 1} other lines are on another branch than the last one")
    return {at for at in kept if at >= max(summaries, default=0)}


def _ids(line: Placed, kind: str = "", key: str = "id") -> list[str]:
    """The id of the message of a line, or those of its blocks of a kind. Nothing is read by it."""
    message = peek(line[1], "message")
    blocks = peek(message, "content") if kind and isinstance(message, Mapping) else [message]
    listed = [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
    return [_named(each, key) for each in listed if (not kind or peek(each, "type") == kind) and _named(each, key)]


def _claude_message(place: str, line: Row) -> dict[str, Any] | None:
    """A message with its id; `None` for what the harness says by itself, and for its own errors."""
    message = as_mapping(value_at(line, "message", place), f"{place}.message")
    _aside(message, "content")
    content, role = value_at(message, "content", place), text_of(message, "role", place)
    if role != peek(line, "type"):
        raise Refused("unknown_role", f"{place} is of type {peek(line, 'type')!r}, and its message of the {role}")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [block for _, block in objects(content, place)]
    first = next((str(peek(block, "text")) for block in blocks if peek(block, "type") == "text"), "").lstrip()
    if _flag((place, line), "isMeta") or (role == USER and first.startswith(_MARKUP)) or message.get("model") == "<synthetic>":
        whole(message)
        return None
    said = list[Row]()
    for block in blocks:
        kind = str(peek(block, "type"))
        if kind == "redacted_thinking" or (kind in ("text", "thinking") and not str(peek(block, kind)).strip()):
            whole(block)  # the provider's alone, or empty
            continue
        for name in ("is_error", "cache_control", "citations", "caller"):
            whole(block.get(name))
        said.append(block)
    return {"role": role, "content": said, "id": text_of(message, "id", place, required=False)}


def _attached(place: str, line: Row) -> dict[str, Any] | None:
    """What the user asked while the model worked; `None` for what else is attached, which the harness puts into words that are not in the file."""
    attached = whole(as_mapping(value_at(line, "attachment", place), f"{place}.attachment"))
    if attached.get("type") != "queued_command":
        return None
    asked = value_at(attached, "prompt", place)
    return {"role": USER, "content": [{"type": "text", "text": asked}] if isinstance(asked, str) else asked, "id": ""}


# Codex: items of OpenAI's Responses, and events that its interface shows.

_CODEX_ASIDE = ("turn_context", "event_msg", "world_state")
_WRAPPED = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md")
_OF_ITEMS = ("status", "phase", "encrypted_content", "namespace", "end_turn", "internal_chat_message_metadata_passthrough")


def _codex(lines: Lines, rules: Rules) -> Read:
    system, tools, items, begun = "", None, list[Placed](), False
    for place, line in lines:
        kind, event = str(peek(line, "type")), peek(line, "payload")
        if kind == "response_item" and not begun:
            raise Refused("orphan_line", f"{place} stands before session_meta, with which a session of Codex begins: it was cut")
        if kind == "response_item":
            _aside(line, "payload")
            items += _item(place, as_mapping(value_at(line, "payload", place), place))
        elif kind == "session_meta":
            meta = whole(as_mapping(value_at(line, "payload", place), place))
            _aside(line)
            told = meta.get("base_instructions") or meta.get("instructions") or ""
            system = system or as_text(told.get("text") or "" if isinstance(told, Mapping) else told, f"{place}.payload.base_instructions")
            tools, begun = tools or meta.get("tools") or meta.get("dynamic_tools"), True
        elif kind == "compacted":
            rules.one("compacted", f"{place} replaces what was said before by a summary")
            whole([item for _, item in items])
            history = value_at(as_mapping(whole(value_at(line, "payload", place)), place), "replacement_history", place)
            _aside(line)
            items = [item for within, entry in objects(history, place) for item in _item(within, entry)]
        elif isinstance(event, Mapping) and peek(event, "type") == "thread_rolled_back":
            raise Refused("branches", f"{place} takes turns back that stand before it")
        else:
            rules.passes(place, line, _CODEX_ASIDE)
    return system, tools, of_items(items)


def _item(place: str, item: Row) -> Iterator[Placed]:
    """An item as OpenAI's Responses have it; nothing for a snapshot, and for what the harness says by itself."""
    kind = text_of(item, "type", place)
    for name in _OF_ITEMS:
        whole(item.get(name))
    call = {"type": "function_call", "call_id": item.get("call_id"), "name": item.get("name")}
    if kind == "ghost_snapshot":
        whole(item)
    elif kind == "message":
        role = text_of(item, "role", place)
        if role not in (USER, ASSISTANT, SYSTEM, "developer"):
            raise Refused("unknown_role", f"{place} is a message of {role!r}; known: user, assistant, system, developer")
        texts = [str(peek(part, "text")) for _, part in objects(value_at(item, "content", place), place)]
        if role not in (USER, ASSISTANT) or (role == USER and texts[:1] and texts[0].lstrip().startswith(_WRAPPED)):
            whole(item)
        else:
            yield place, {"role": role, "content": whole(item["content"])}
    elif kind == "custom_tool_call":
        yield place, {**call, "arguments": dumps({"input": item.get("input")})}
    elif kind == "local_shell_call":
        yield place, {**call, "name": "local_shell", "arguments": dumps(whole(item.get("action")))}
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = value_at(item, "output", place)
        output = whole(output).get("content") if isinstance(output, Mapping) else output
        yield place, {**call, "type": "function_call_output", "output": output}
    elif kind in ("reasoning", "function_call"):
        yield place, item
    else:
        raise Refused("unknown_part", f"{place} is an item of type {kind!r}, which OpenAI runs itself or nobody knows")


# Pi: entries with a parent.

_PI_ASIDE = ("session", "model_change", "thinking_level_change", "session_info", "label", "custom", "custom_message")


def _pi(lines: Lines, rules: Rules) -> Read:
    path, said = _path(lines, len(lines) - 1, "id", "parentId"), list[Message]()
    for at, (place, line) in enumerate(lines):
        kind = str(peek(line, "type"))
        if path and at not in path and kind not in _PI_ASIDE:
            rules.one("branches", f"{place} is on another branch than the last one")
            whole(line)
        elif kind in ("compaction", "branch_summary"):
            raise Refused(
                "compacted", f"{place} is a summary of what was said, of which Pi tells its model in words that are not in the file"
            )
        elif kind == "message":
            _aside(line, "message")
            said.append(_pi_message(place, as_mapping(value_at(line, "message", place), place)))
        else:
            rules.passes(place, line, _PI_ASIDE)
    return "", None, said


def _pi_message(place: str, message: Row) -> Message:
    _aside(message, "content")
    if (role := text_of(message, "role", place)) not in (USER, ASSISTANT, "toolResult"):
        raise Refused("unknown_role", f"{place} is a message of {role!r}; known: user, assistant, toolResult")
    content = value_at(message, "content", place)
    if message.get("stopReason") in ("error", "aborted") and content:
        raise Refused("aborted_answer", f"{place} is an answer that ended with {message['stopReason']!r}")
    placed = [] if isinstance(content, str) else objects(content, f"{place}.content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else [_pi_part(*each) for each in placed]
    said = [part for part in parts if part.get("type") not in ("text", "thinking") or str(part.get(part["type"])).strip()]
    return result_of(text_of(message, "toolCallId", place), said or "") if role == "toolResult" else {"role": role, "content": said}


def _pi_part(place: str, part: Row) -> Row:
    for name in ("textSignature", "thinkingSignature", "thoughtSignature", "redacted"):
        whole(part.get(name))
    if part.get("type") != "toolCall":
        return part
    return {"type": "tool_use", "id": text_of(part, "id", place), "name": part.get("name"), "input": value_at(part, "arguments", place)}


# Hermes: a row with messages as OpenAI has them.

_OF_HERMES = ("session_id", "token_count", "finish_reason", "tool_name", "active", "codex_reasoning_items", "codex_message_items")


def _hermes(lines: Lines, rules: Rules) -> Read:
    row, said = lines[0][1], list[Message]()
    _aside(row, "messages")
    for _, message in objects(value_at(row, "messages"), "messages"):
        if message.get("role") == "session_meta" or message.get("active") in (0, False):  # which the user took back
            whole(message)
            continue
        for name in _OF_HERMES:
            whole(message.get(name))
        said.append(message)
    return text_of(row, "system_prompt", required=False), row.get("tools"), said
