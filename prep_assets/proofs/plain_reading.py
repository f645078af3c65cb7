"""Turns of plain rows: strings, messages with two fields each, and chats with calls as most write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from msgspec import Struct

from prep_assets.proofs.formats import neutral_names, resolved, roles_of
from prep_assets.proofs.second_reading import unique
from prep_assets.samples import ASSISTANT, TEXT, THINKING, TOOL, TOOL_CALL, Region, Row, Sample, Spelled, Turn

Turns = tuple[tuple[str, ...], tuple[str, ...]]
PLAIN_PAIR = {"prompt", "chosen", "rejected", "margin"}
"""Columns of a pair whose turns are all that a model sees."""


def plain_turns(value: Any, role_key: str = "role", content_key: str = "content", *, role: str = "") -> Turns | None:
    """Return roles and texts of a string, which has the role `role`, or of messages with two fields each; `None` for any other value, or a blank text."""
    if isinstance(value, str):
        return ((role,), (value,)) if value.strip() else None
    if not isinstance(value, list) or {*map(type, value)} != {dict} or {*map(len, value)} != {2}:
        return None
    roles, texts = (tuple([message.get(key) for message in value]) for key in (role_key, content_key))
    return (roles, texts) if {*map(type, roles + texts)} == {str} and all(map(str.strip, texts)) else None


def turns_of_rows(values: Sequence[Any], role_key: str, content_key: str) -> Sequence[Turns | None]:
    """`plain_turns` of each value; of a block in which all are plain messages at once."""
    try:
        messages = [message for value in values for message in value]
        roles, texts = ([message[key] for message in messages] for key in (role_key, content_key))
    except (KeyError, TypeError, IndexError):
        messages = []
    alike = {*map(type, values)} == {list} and all(values) and {*map(type, messages)} == {dict} and {*map(len, messages)} == {2}
    if not alike or {*map(type, roles), *map(type, texts)} != {str} or not all(map(str.strip, texts)):
        return [plain_turns(value, role_key, content_key) for value in values]
    ends = accumulate(map(len, values), initial=0)
    return [(tuple(roles[start:end]), tuple(texts[start:end])) for start, end in pairwise(ends)]


class ReadRows(list[Row]):
    """Rows that several checks read. What the plain messages of a column say is found once."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(rows)
        self._found: dict[tuple[str, str, str], list[Turns | None]] = {}

    @cached_property
    def by_columns(self) -> dict[tuple[str, ...], list[int]]:
        """Columns → the numbers of the rows that have them."""
        columns = [*map(tuple, self)]
        if self and columns.count(columns[0]) == len(self):
            return {columns[0]: [*range(len(self))]}
        numbers: dict[tuple[str, ...], list[int]] = {}
        for number, names in enumerate(columns):
            numbers.setdefault(names, []).append(number)
        return numbers

    def turns(self, column: str, role_key: str, content_key: str) -> Sequence[Turns | None]:
        """`plain_turns` of a column of each row, with those fields of messages."""
        key = (column, role_key, content_key)
        if key not in self._found:
            found = self._found[key] = list[Turns | None]([None]) * len(self)
            for numbers in (own for names, own in self.by_columns.items() if column in names):
                for number, turns in zip(numbers, turns_of_rows([self[at][column] for at in numbers], role_key, content_key), strict=True):
                    found[number] = turns
        return self._found[key]


# Chats with calls, as OpenAI writes them. What is unusual is left to the schema.

_REASONING = "reasoning_content"
_BESIDE = {ASSISTANT: {_REASONING, "tool_calls"}, TOOL: {"tool_call_id", "name"}}
"""Fields of messages of a role beside its text."""
_parsed = json.JSONDecoder(object_pairs_hook=unique).decode
_compact, _spaced = (json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=both).encode for both in ((",", ":"), None))
_Asked = tuple[str, str | None]
"""Name and id of a call."""


class _Unusual(Exception):
    """A chat in another form."""


class CallingChats(Struct, frozen=True):
    """Reads rows of the schema `messages` that hold messages and tools, of which answers may reason and call, and each call has its result.

    Attributes:
        messages_key, tools_key, role_key, content_key: names of columns, and of fields of a message.
        roles: tag → role of messages that hold no calls in their content.
        unread: columns that say nothing.
    """

    messages_key: str
    tools_key: str
    role_key: str
    content_key: str
    roles: Mapping[str, str]
    unread: frozenset[str]

    @classmethod
    def of(cls, schema: str, options: Mapping[str, Any], ignore: Sequence[str]) -> CallingChats | None:
        """Return the reader for a domain; `None` where rows have another form, or parts of their messages are passed over."""
        found = resolved(schema, options)
        if found is None or found[0] != "messages":
            return None
        known = found[1]
        if known["order"] != "any" or not known["tools_key"]:
            return None
        keys = (known["messages_key"], known["tools_key"], known["role_key"], known["content_key"])
        if any("." in path or "*" in path or path in keys for path in ignore) or any("." in key for key in keys):
            return None
        roles, callers = roles_of(found[0], known)
        return cls(
            *keys, {tag: role for tag, role in roles.items() if tag not in callers}, frozenset([*ignore, *neutral_names()]) - {*keys}
        )

    def read(self, row: Row) -> Sample | None:
        """Return the chat of a row; `None` where only the schema can say."""
        if any(column not in self.unread and column not in (self.messages_key, self.tools_key) for column in row):
            return None
        turns, asked, results = list[Turn](), list[_Asked](), list[Turn]()
        try:
            tools = _tools(row.get(self.tools_key))
            offered = {_text(tool["function"]["name"]) for tool in tools}
            for message in row[self.messages_key]:
                turn, calls = self._turn(message)
                turns.append(turn)
                if turn.role == TOOL:
                    results.append(turn)
                    continue
                _require_results(asked, results)
                asked, results = calls, []
                if offered and any(name not in offered for name, _ in calls):
                    raise _Unusual
            if results:
                _require_results(asked, results)
        except (_Unusual, AttributeError, KeyError, TypeError, ValueError, RecursionError):
            return None
        return Sample(tuple(turns), tools) if any(turn.role == ASSISTANT for turn in turns) else None

    def _turn(self, message: Row) -> tuple[Turn, list[_Asked]]:
        role, content = self.roles[message[self.role_key]], message.get(self.content_key)
        if len(message) == 2:
            return Turn(role, (Region(TEXT, _text(content)),)), []
        beside = {key: value for key, value in message.items() if key not in (self.role_key, self.content_key) and value not in (None, [])}
        if beside.keys() - _BESIDE.get(role, set()):
            raise _Unusual
        calls = [*map(_call, beside.get("tool_calls", ()))]
        regions = [Region(THINKING, _text(beside[_REASONING]))] if beside.get(_REASONING) else []
        regions += [Region(TEXT, _text(content))] if content or not calls else []
        regions += [Region(TOOL_CALL, text) for _, text in calls]
        name, answers = (_text(beside[key]) if key in beside else None for key in ("name", "tool_call_id"))
        return Turn(role, tuple(regions), name, answers), [asked for asked, _ in calls]


def _text(value: Any) -> str:
    if type(value) is not str or value.isspace() or not value:
        raise _Unusual
    return value


def _call(call: Row) -> tuple[_Asked, str]:
    """Name and id of a call, and its JSON, compact, with the id at the end."""
    function, identity = call["function"], call.get("id")
    if call.keys() - {"type", "id", "function"} or function.keys() != {"name", "arguments"} or call.get("type", "function") != "function":
        raise _Unusual
    name, arguments = _text(function["name"]), function["arguments"]
    if type(arguments) is str:
        arguments = _parsed(arguments)
    if type(arguments) is not dict:
        raise _Unusual
    read = {"name": name, "arguments": arguments, **({} if identity is None else {"id": _text(identity)})}
    return (name, identity), _compact(read)


def _tools(value: Any) -> tuple[Row, ...]:
    """Tools, each with its JSON."""
    listed = _parsed(value) if type(value) is str and value else value
    if type(listed or []) is not list:
        raise _Unusual
    return tuple([Spelled(tool, _spaced(tool)) for tool in listed or ()])


def _require_results(asked: Sequence[_Asked], results: Sequence[Turn]) -> None:
    """Require as many results as there are calls, in their order: of all calls the ids, or of none."""
    names, ids = [name for name, _ in asked], [identity for _, identity in asked]
    if [result.tool_call_id for result in results] != ids or len({*map(type, ids)}) > 1 or (len({*ids}) < len(ids) and None not in ids):
        raise _Unusual
    if [result.name or name for result, name in zip(results, names, strict=True)] != names:
        raise _Unusual
