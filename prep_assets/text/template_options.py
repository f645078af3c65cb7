"""Options of a chat template: which of them change a render, found by rendering chats of each kind with several values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, nearest
from prep_assets.samples import ASSISTANT, MEDIA, USER
from prep_assets.text.template import ChatTemplate, Message


def without_effect(template: ChatTemplate, options: Mapping[str, Any]) -> str:
    """A message about the first of `options` that has no effect, with the names of those that have one; ``""`` if each can change a render."""
    for name, value in options.items():
        if value is None:
            continue
        if name not in template.variables:
            fault = f"does not read {name!r}{nearest(name, effective(template)) or '.'}"
        elif template.renderer is not None:
            if value in (values := template.renderer.options[name]) or not values:
                continue
            fault = f"has no {name}: {value!r}. Take {' or '.join(map(repr, values))}."
        elif not _has_effect(template, name):
            fault = f"sets {name!r} itself: no value of it changes a chat with or without system prompt, tools, reasoning or several turns."
        elif isinstance(value, str) and value.strip().lower() in _WORDS_FOR_BOOLEANS and not _changes(template, name, value):
            fault = f"takes {name!r} as true or false, and {value!r} is text, which changes nothing. Write it without quotes."
        else:
            continue
        return f"template {template.name} {fault} It reads: {', '.join(effective(template)) or 'no options'}"
    return ""


@bounded_cache("options with an effect", 64, key=lambda template: template.hash)
def effective(template: ChatTemplate) -> tuple[str, ...]:
    """Names of the options that change a render, sorted."""
    if template.renderer is not None:
        return tuple(sorted(template.variables))
    return tuple(sorted(name for name in template.variables - {*template.special} if _has_effect(template, name)))


_WORDS_FOR_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "none", "null")
_TRIED_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "zqtool", "description": "Zq.", "parameters": {"type": "object", "properties": {"zq": {"type": "string"}}}},
}
_TRIED_VALUES: tuple[Any, ...] = (True, False, "zq", [_TRIED_TOOL])


def _has_effect(template: ChatTemplate, name: str) -> bool:
    """Whether any of several values of an option changes a render."""
    return any(_changes(template, name, value) for value in _TRIED_VALUES)


@bounded_cache("options of templates", 4096, key=lambda template, name, value: (template.hash, name, json.dumps(value)))
def _changes(template: ChatTemplate, name: str, value: Any) -> bool:
    """Whether an option of this value changes the render of any chat."""
    without = replace(template, options={key: other for key, other in template.options.items() if key != name})
    changed = replace(without, options={**without.options, name: value})
    return any(_try_render(changed, chat) != before for chat, before in _tried_renders(without))


@bounded_cache("chats for options", 64, key=lambda template: template.hash)
def _tried_renders(template: ChatTemplate) -> tuple[tuple[Mapping[str, Any], str | None], ...]:
    """Chats and their renders: with and without a system prompt, tools, documents, files, reasoning, calls, several turns, the generation prompt."""
    form = template.form

    def said(role: str, text: str, *kinds: str, **fields: Any) -> Message:
        parts = [*({"type": kind} for kind in kinds), {"type": "text", "text": text}]
        return {"role": role, "content": parts if form.content == "parts" or kinds else text, **fields}

    arguments: Any = {"zq": "1"} if form.arguments == "mapping" else '{"zq": "1"}'
    called = {"type": "function", "id": "zqcall001", "function": {"name": "zqtool", "arguments": arguments}}
    contents: Mapping[str, Mapping[str, Any]] = {"text": {"content": ""}, "null": {"content": None}, "absent": {}}
    empty = contents[form.no_content]
    system, question = said("system", "Be brief."), said(USER, "Why?")
    tools: Mapping[str, Any] = {"tools": [_TRIED_TOOL]}
    chats: list[Mapping[str, Any]] = [
        {"messages": [question]},
        {"messages": [said("developer", "Be brief."), question, said(ASSISTANT, "So.")]},
        {"messages": [system, question, said(ASSISTANT, "<think>\nHm.\n</think>\n\nSo."), said(USER, "And? /no_think")]},
        {"messages": [question, said(ASSISTANT, "So.")], "documents": [dict.fromkeys(("title", "text", "content"), "Zq.")]},
        *({"messages": [said(USER, "What?", kind, kind), said(ASSISTANT, "That.")]} for kind in MEDIA if form.image_parts),
    ]
    for before, fields in product(([], [system]), ({}, {form.reasoning: "Hm."})):
        rounds = [*before, question, said(ASSISTANT, "So.", **fields), said(USER, "And?"), said(ASSISTANT, "Yes.", **fields)]
        result = said("tool", "1", tool_call_id="zqcall001", name="zqtool")
        used = [*before, question, {"role": ASSISTANT, **empty, **fields, "tool_calls": [called]}, result]
        chats += [{"messages": rounds}, {"messages": rounds, **tools}, {"messages": [*rounds, said(USER, "Thanks.")]}]
        chats += [{"messages": used, **tools}, {"messages": [*used, said(ASSISTANT, "One."), said(USER, "Thanks.")], **tools}]
    listed: list[Mapping[str, Any]] = [{**chat, "generation_prompt": prompted} for chat in chats for prompted in (False, True)]
    return tuple((chat, _try_render(template, chat)) for chat in listed)


def _try_render(template: ChatTemplate, chat: Mapping[str, Any]) -> str | None:
    try:
        return template.render(**chat)
    except Refused:
        return None
