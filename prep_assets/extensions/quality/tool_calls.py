"""Tool calls that the tools on offer do not allow: another tool, or arguments that its JSON Schema rejects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.extensions.quality.steps import Finding, Step, by_example, quality_step
from prep_assets.samples import ASSISTANT, TEXT, TOOL_CALL, Contrast, Example, Group, Pair, Prompt, Region, Sample, Turn, parts_of, turn

UNKNOWN, WRONG = "unknown_tool", "wrong_arguments"


def finding_of(example: Example) -> Finding | None:
    """The first call of an example that its tools do not allow. Examples without tools are passed over: they say nothing about what may be called."""
    if isinstance(example, Contrast) or not (tools := example.tools):
        return None
    parameters = dict(filter(None, map(_named, tools)))
    turns = chain.from_iterable(parts_of(example))
    calls = (json.loads(region.text) for turn in turns if turn.role == ASSISTANT for region in turn.regions if region.kind == TOOL_CALL)
    for number, call in enumerate(calls, 1):
        if call["name"] not in parameters:
            return UNKNOWN, f"call {number} is of none of the {len(tools)} tools on offer"
        if fault := next(_faults(parameters[call["name"]], call["arguments"]), ""):
            return WRONG, f"call {number}: {fault}"
    return None


def _named(tool: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Name and parameters of a tool; `None` for a built-in one, which has no function."""
    function = tool.get("function", tool)
    return (function["name"], function.get("parameters") or {}) if isinstance(function, Mapping) and "name" in function else None


def _faults(schema: Any, arguments: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with arguments. A schema that is none, as with ``"type": "dict"``, says nothing but which arguments there are."""
    properties: Any = schema.get("properties") if isinstance(schema, Mapping) else {}
    is_closed = isinstance(properties, Mapping) and properties and schema.keys().isdisjoint({"additionalProperties", "patternProperties"})
    if is_closed and (unknown := arguments.keys() - properties.keys()):
        yield f"it has {len(unknown)} arguments that the tool does not know"
    if (validator := _validator(json.dumps(schema, sort_keys=True))) is not None:
        for error in validator.iter_errors(arguments):
            yield f"{'.'.join(map(str, error.schema_path))} of the tool's parameters does not hold"


@bounded_cache("tool schemas", 1024)
def _validator(schema_text: str) -> Any:
    """The validator of a JSON Schema; `None` if it is none, or refers to another file."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if '"$ref": "' in schema_text.replace('"$ref": "#', ""):
        return None
    schema = json.loads(schema_text)
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except SchemaError:
        return None
    return kind(schema)


_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}


@quality_step(
    "tool_calls",
    source="what Berkeley's function-calling leaderboard checks of a call's syntax tree: its name, and its arguments by JSON Schema",
    corrupted=(
        (
            Sample(
                (turn("user", "2?"), Turn(ASSISTANT, (Region(TEXT, "I see."), Region(TOOL_CALL, '{"name":"ad","arguments":{"x":2}}')))),
                tools=(_TOOL,),
            ),
        ),
        UNKNOWN,
    ),
    takes=(Sample, Pair, Prompt, Group),
    libraries=("jsonschema",),
)
def tool_calls() -> Step:
    """Calls of tools that are not on offer, or with arguments that the tool's JSON Schema rejects or does not name."""
    return by_example(lambda block, at: finding_of(block.examples[at]))
