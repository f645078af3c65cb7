"""Rejected rows, judged by definitions of formats and by rules: which reasons of which schema are derived again, and by what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial

from prep_assets.proofs.formats import Format, definition_of, format_of, rule_named
from prep_assets.proofs.row_rules import JudgedRow, Message, Rule, chats, no_json
from prep_assets.proofs.source_fields import REASONINGS, WEIGHTS
from prep_assets.samples import Row

# Which reasons are beyond the definitions.

ANY = "*"
"""Any other reason."""
FAILED = "schema_error"
"""The reason for which a row is rejected whose schema raised an error of its own: none of ours may, whatever the row."""
Rules = dict[str, Rule | None]
"""A reason for rejecting a row that its definition accepts → the rule that derives it again; `None` where none does."""


@lru_cache(1 << 8)
def beyond(name: str) -> Rules:
    """Return the reasons beyond a definition, as its ``x-beyond`` lists them."""
    return _rules(definition_of(name).get("x-beyond", ()))


def _rules(listed: Sequence[str | Mapping[str, str | None]]) -> Rules:
    found: dict[str, Rule | None] = {}
    for each in listed:
        found |= _shared(each) if isinstance(each, str) else {reason: _named(rule) for reason, rule in each.items()}
    return found


@lru_cache(1 << 4)
def _shared(name: str) -> Rules:
    return _rules(definition_of("common")["x-beyond"][name])


def _named(name: str | None) -> Rule | None:
    """Return the rule of this name, or that which the function of this name makes of the words behind it."""
    if name is None:
        return None
    name, *given = name.split()
    found = rule_named(name)
    rule: Rule = found(*given) if given else found
    return rule


# Rulings.


def ruling(format: Format, row: Row, reason: str) -> str | None:
    """Judge a row that a schema rejects. Returns ``""`` where its definition or a rule rejects it too, `None` where neither can tell, else why it is right."""
    found = format.of(row)
    if found is None:
        return None
    if reason == FAILED:
        return "its schema fails on it, which no row may make it do"
    if isinstance(found, bool):
        return ""
    accepting, read = found
    definition = definition_of(accepting.reasons)
    if (chat_of := definition.get("x-chat")) is not None and reason not in _shared("anywhere"):
        return _as_chat(chat_of, read, accepting, lambda chat: ruling(_chats(), chat, reason))
    is_open = definition.get("x-open")
    known = {**_shared("open" if is_open else "anywhere"), **beyond(accepting.reasons)}
    if not {reason, ANY} & {*known}:
        return None if is_open else f"the definition of {accepting.name!r} accepts it, and no rule beyond it rejects a row for {reason!r}"
    must = _must(known.get(reason, known.get(ANY)), read, accepting)
    if must is None:
        return None
    return "" if must else f"the definition of {accepting.name!r} accepts it, and a second reading finds no {reason!r}"


def kept_fault(format: Format, row: Row) -> str:
    """Return why a row that its schema takes must be rejected; ``""`` where nothing says so."""
    found = format.of(row)
    if found is None:
        return ""
    if isinstance(found, bool):
        return f"the definition of {format.name!r} does not accept it"
    accepting, read = found[0], JudgedRow(found[1])
    if (chat_of := definition_of(accepting.reasons).get("x-chat")) is not None:
        return _as_chat(chat_of, read, accepting, partial(kept_fault, _chats())) or ""
    keys = _keys(read, accepting)
    for reason, rule, about in _of_kept(accepting.reasons):
        if (about is None or not keys.isdisjoint(about)) and _must(rule, read, accepting):
            return "by a second reading it is not whole" if reason == ANY else f"a second reading finds {reason!r}"
    return ""


@cache
def _chats() -> Format:
    """The definition of chats that rules make of rows."""
    found = format_of("messages", {"message_tools": False})
    assert found is not None
    return found


def _as_chat(name: str, row: Row, format: Format, judge: Callable[[Row], str | None]) -> str | None:
    """What is said of the chat that a rule makes of a row; `None` where it knows no such row."""
    try:
        said = judge(rule_named(name)(row, format.options))
        return said and f"of the chat that it is, {said}"
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def chat_fault(messages: Sequence[Message], tools: object, **beside: object) -> str:
    """Return why messages that a rule makes of a row are no chat; ``""`` where nothing says so. `beside`: other columns of a chat.

    Raises:
        ValueError: they have a number that is none, of which nobody can tell.
    """
    chat = {"messages": messages, "tools": tools, **beside}
    json.dumps(chat, allow_nan=False)
    return kept_fault(_chats(), chat)


@lru_cache(1 << 8)
def _of_kept(name: str) -> list[tuple[str, Rule, Sequence[str] | None]]:
    """Return the rules that rows of a schema are judged by, their reasons, and the fields that each needs."""
    return [(reason, rule, _ABOUT.get(reason)) for reason, rule in beyond(name).items() if rule is not None and rule is not no_json]


def _must(rule: Rule | None, row: Row, format: Format) -> bool | None:
    try:
        return None if rule is None else rule(row, format)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):  # a form that it does not know
        return None


_PARTS = "parts of a content"
_FILES = ("image", "audio", "video")
_ABOUT: Mapping[str, Sequence[str]] = {
    "conflicting_weights": (*WEIGHTS, _PARTS),
    "conflicting_reasoning": (*REASONINGS, "reasoning_details", _PARTS),
    "conflicting_content": (_PARTS,),
    "two_systems": ("system",),
    **dict.fromkeys(("conflicting_tools", "unknown_tool"), ("tools", "functions", "available_tools")),
    "weighted_space": (),  # of which its rule only says that there is none
    **{f"{kind}_count": (kind, f"{kind}s", _PARTS) for kind in _FILES},
}
"""Reasons that need one of these fields: most rows have none of them."""
_NAMED = {f"{name}_key": name for name in ("system", "tools", *(f"{kind}s" for kind in _FILES))}
"""Options that give fields another name."""


def _keys(row: Row, format: Format) -> set[str]:
    """Return the names of a row's fields and of those of its messages, and `_PARTS` where a content has parts."""
    keys = set(row)
    for chat in chats(row, format):
        keys.update(*chat)
        if any(type(message.get(format.options["content_key"])) is list for message in chat):
            keys.add(_PARTS)
    return keys | {name for option, name in _NAMED.items() if format.options.get(option) in keys}
