"""Tool calls and tool descriptions, in the shapes that data sets have them.

A call becomes the text ``{"name":…,"arguments":{…}}``, with its ``"id"`` at the end where it has one: compact JSON, non-ASCII characters as
they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.disk.strict_json import loads
from prep_assets.errors import Refused
from prep_assets.schemas.fields import as_list, as_mapping, as_text, value_at
from prep_assets.schemas.view import has_content, whole

ARGUMENTS = ("arguments", "parameters", "input")
"""Where a call has its arguments: OpenAI, Llama 3, Anthropic."""
MOST_SHARED = 1 << 14
"""Characters of the JSON text of tools that is remembered, for rows after it that have the same."""
CALL_TYPES = ("function", "tool_call", "tool_use", "function_call")


def call_text(call: Mapping[str, Any], where: str) -> str:
    """The text of one call, given flat (``{"name", "arguments"}``) or as OpenAI nests it (``{"function": {"name", "arguments"}}``).

    Arguments stand under one of `ARGUMENTS`, as an object or its JSON text; none at all are ``{}``. Anything else is refused as
    ``bad_tool_call``.
    """
    function = as_mapping(call["function"], f"{where}.function") if call.get("function") is not None else call
    name, identity = as_text(value_at(function, "name", where), f"{where}.name"), call.get("id")
    if (kind := call.get("type")) is not None and kind not in CALL_TYPES:
        raise Refused("bad_tool_call", f"{where} is of type {kind!r}; known: {', '.join(CALL_TYPES)}")
    given = {key: whole(function[key]) for key in ARGUMENTS if function.get(key) is not None}
    if sum(map(has_content, given.values())) > 1:
        raise Refused("bad_tool_call", f"{where} has arguments under {' and '.join(given)}")
    arguments = next((value for value in given.values() if has_content(value)), None)
    if isinstance(arguments, str):
        arguments = _parsed(arguments, "bad_tool_call", f"{where}.arguments") if arguments.strip() else {}
    if not name.strip() or not isinstance(arguments, Mapping | None):
        raise Refused("bad_tool_call", f"{where} needs a name and an object of arguments; they are {name!r} and {arguments!r}")
    text = {"name": name, "arguments": arguments or {}, **({} if identity is None else {"id": as_text(identity, f"{where}.id")})}
    return require_json(text, "bad_tool_call", f"{where}.arguments")


def require_json(value: object, reason: str, where: str) -> str:
    """`value` as compact JSON; refused with `reason` where JSON has no form for it, such as NaN or a date of a Parquet file."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(reason, f"{where} cannot be written as JSON: {error}") from error


def call_texts(value: object, where: str) -> list[str]:
    """The texts of one call or of an array of calls, given as JSON text or as JSON values."""
    parsed = _parsed(value, "bad_tool_call", where) if isinstance(value, str) else value
    calls = [parsed] if isinstance(parsed, Mapping) else as_list(parsed, where)
    if not calls:
        raise Refused("bad_tool_call", f"{where!r} has no call")
    return [call_text(as_mapping(call, f"{where}[{i}]"), f"{where}[{i}]") for i, call in enumerate(calls)]


def call_id(text: str) -> str | None:
    """The id of a call, given as the text that `call_text` writes."""
    found: str | None = json.loads(text).get("id")
    return found


def tools_at(row: Mapping[str, Any], key: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tools on offer: an array of JSON schemas, one schema, or the JSON text of either. Absent, null and ``""`` are no tools.

    A schema without the ``{"type": "function", "function": …}`` wrapper gets it, since that is the form chat templates look for.
    """
    value = None if key is None else whole(row.get(key))
    if not isinstance(value, str):
        return _tools(value, str(key))
    return (_shared_tools if len(value) <= MOST_SHARED else _tools_of)(value, str(key))


def _tools_of(text: str, where: str) -> tuple[Mapping[str, Any], ...]:
    """The tools of JSON text, which many rows share. Nobody changes them."""
    return _tools(_parsed(text, "bad_tools", where) if text.strip() else None, where)


_shared_tools = bounded_cache("tools", 256)(_tools_of)


def _tools(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if not has_content(value):
        return ()
    require_json(value, "bad_tools", where)
    tools = [value] if isinstance(value, Mapping) else as_list(value, where)
    return tuple(_wrapped(as_mapping(tool, f"{where}[{i}]"), f"{where}[{i}]") for i, tool in enumerate(tools))


def _wrapped(tool: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    if "function" in tool or "name" not in tool:
        if not isinstance(tool.get("function"), Mapping) and "type" not in tool:
            raise Refused(
                "bad_tools", f"{where} is not a tool: it has {', '.join(map(repr, tool)) or 'no fields'}, needs 'name' or 'function'"
            )
        return tool
    return {"type": "function", "function": dict(tool)}


def _parsed(text: str, reason: str, where: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise Refused(reason, f"{where!r} is not JSON: {error}; it begins {text[:60]!r}") from error
