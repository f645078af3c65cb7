"""Tool calls: the JSON that a region holds, and its strings, which are what can be marked in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from prep_assets.disk.strict_json import TOO_DEEP, is_too_deep, may_be_too_deep, once
from prep_assets.errors import Refused
from prep_assets.samples import Region


def tool_call(region: Region) -> dict[str, Any]:
    """The call that a `TOOL_CALL` region holds: ``{"name": str, "arguments": …}``, and its ``"id"`` where it has one."""
    try:
        call = json.loads(region.text, object_pairs_hook=once)
        name, arguments = call["name"], call["arguments"]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("bad_tool_call", f"{region.text[:80]!r} is no {{name, arguments}}: {error}", stage="render") from error
    except RecursionError as error:
        raise Refused("too_deeply_nested", f"{region.text[:80]!r} is {TOO_DEEP}", stage="render") from error
    if not isinstance(name, str) or not name:
        raise Refused("bad_tool_call", f"{region.text[:80]!r} calls {name!r}, which is no name", stage="render")
    if may_be_too_deep(region.text) and is_too_deep(arguments):
        raise Refused("too_deeply_nested", f"the arguments of {name!r} are {TOO_DEEP}", stage="render")
    return {"name": name, "arguments": arguments, **({"id": call["id"]} if call.get("id") else {})}


def strings(value: Any) -> Iterator[str]:
    """Every non-empty string among the values of a JSON value."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def map_strings(value: Any, write: Callable[[str], str]) -> Any:
    """The JSON value with `write` of each non-empty string among its values, in the order of `strings`."""
    if isinstance(value, str):
        return write(value) if value else value
    if isinstance(value, dict):
        return {key: map_strings(inner, write) for key, inner in value.items()}
    return [map_strings(inner, write) for inner in value] if isinstance(value, list) else value


def keys(value: Any) -> Iterator[str]:
    """Every key of a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)
