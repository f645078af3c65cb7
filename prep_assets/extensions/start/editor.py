"""JSON Schema of the configuration files, for editors: made of the models, and of the options of schemas, quality steps and export formats.

An editor that knows the language server of YAML completes keys and names, shows what they mean, and marks what cannot be. What only the loader can know, such
as two options that exclude each other or a domain that does not exist, it leaves to the loader.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter

from prep_assets.checks.bounds import BOUNDED
from prep_assets.config.models import FAMILIES
from prep_assets.extensions.exports.registry import exports
from prep_assets.extensions.quality.steps import Action, quality_steps
from prep_assets.graph.graph import EVERY
from prep_assets.samples import Group
from prep_assets.schemas.registry import Schema, schemas

JsonSchema = dict[str, Any]
OWN = r"^[\w.]+:\w+$"
"""``package.module:function``."""


def json_schema(family: str) -> JsonSchema:
    """The JSON Schema of a family's configuration file."""
    model = FAMILIES[family]
    described: JsonSchema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(by_alias=True)}
    definitions = described["$defs"]
    named = schemas_of(family)
    options = {name: _options(chosen.factory) for name, chosen in named.items()}
    options |= {alias: options[name] for name, chosen in named.items() for alias in chosen.aliases}
    _choose(definitions["Domain"], "schema", options, own=True)
    assets = [asset for asset in EVERY.values() if asset.family == family]
    definitions["Export"]["properties"]["from"]["enum"] = [asset.name for asset in assets if asset.streams]
    _choose(definitions["Export"], "to", {name: _options(target.write, target.options) for name, target in exports().items()})
    quality = definitions["Quality"]["properties"]
    steps = {name: _options(step.factory) for name, step in quality_steps().items()}
    for step in steps.values():
        step["properties"]["action"] = {"enum": list(get_args(Action)), "default": "drop"}
    own: JsonSchema = {"type": "object", "properties": {"action": {"enum": list(get_args(Action))}}}
    quality["steps"] |= {"properties": steps, "patternProperties": {OWN: own}, "additionalProperties": False}
    bounded = [asset.name for asset in assets if any(check.name in BOUNDED for check in asset.checks)]
    quality["bounds"]["propertyNames"] = {"pattern": "^(" + "|".join(bounded) + r")\."}
    return described


def schemas_of(family: str) -> dict[str, Schema]:
    """Name → the schema that reads rows so called for a family: itself, or its variant that gives what the family needs."""
    known = schemas()
    forms = (FAMILIES[family].form_of_rows, *([Group] if family == "rl" else []))
    fitting = {name for name, other in known.items() if any(map(other.can_give, forms)) or (family == "preference" and other.labels)}
    variants = {other.variant_of: other for name, other in known.items() if name in fitting and other.variant_of}
    return {name: named if name in fitting else variants[name] for name, named in known.items() if name in fitting or name in variants}


def _choose(definition: JsonSchema, key: str, options: Mapping[str, JsonSchema], *, own: bool = False) -> None:
    """Let `key` be one of the names, or a function of the user's own, and `options` what the chosen one takes."""
    names: JsonSchema = {"enum": sorted(options)}
    described = definition["properties"][key]
    described.pop("type")
    described |= {"anyOf": [names, {"type": "string", "pattern": OWN}]} if own else names
    definition["allOf"] = [
        {
            "if": {"properties": {key: {"const": name}}, "required": [key]},
            "then": {"properties": {"options": schema}, **({"required": ["options"]} if schema["required"] else {})},
        }
        for name, schema in sorted(options.items())
    ]


def _options(factory: Callable[..., Any], parameters: Mapping[str, inspect.Parameter] | None = None) -> JsonSchema:
    """The keyword arguments of a factory as an object."""
    hints, known = get_type_hints(factory, include_extras=True), parameters or inspect.signature(factory).parameters
    properties, required = dict[str, JsonSchema](), list[str]()
    for name, parameter in known.items():
        properties[name] = TypeAdapter(hints[name]).json_schema()
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            properties[name]["default"] = TypeAdapter(object).dump_python(parameter.default, mode="json")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
