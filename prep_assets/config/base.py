"""The base of all configuration models, the largest values of numbers, and options that have no effect."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from prep_assets import plugins
from prep_assets.caches import bounded_cache

# The base model, and the largest values of numbers.

MOST, LONGEST = 10**12, 1 << 24
"""The largest value of a count; the largest number of tokens held in memory at a time."""
MOST_WORKERS, MOST_EPOCHS, MOST_PATCHES, MOST_DOMAINS, MOST_SEED = 4096, 10_000, 65_536, 10_000, 2**63 - 1


class Model(BaseModel):
    """Frozen, and strict about keys and numbers. The docstring below a field says what the option means."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value.values() if isinstance(value, Mapping) else (value,)
        if any(isinstance(element, bool) for element in values) and _is_numeric(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("needs a number, not true or false")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, description in descriptions(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = description
        return schema


def younger(default: Any, **limits: Any) -> Any:
    """A field that older recipes lack: dumps leave it out at its default, so that it makes no store stale."""
    return Field(default=default, exclude_if=lambda value: value == default, **limits)


def left_out(model: type[BaseModel], path: str = "") -> dict[str, Any]:
    """Dotted name → default of each option that recipes leave out at its default, see `younger`."""
    found = dict[str, Any]()
    for name, option in model.model_fields.items():
        default = option.get_default() if option.exclude_if else option.annotation
        if option.exclude_if and isinstance(default, BaseModel):
            found |= {f"{path}{name}.{part}": getattr(default, part) for part in type(default).model_fields}
        elif option.exclude_if:
            found[f"{path}{name}"] = default
        elif isinstance(default, type) and issubclass(default, BaseModel):
            found |= left_out(default, f"{path}{name}.")
    return found


@bounded_cache("descriptions", 128)
def descriptions(model: type[Model]) -> dict[str, str]:
    """What each field of a model means, on one line. It is read from the source, which takes some milliseconds, so only when somebody wants to know."""
    described: dict[str, str] = {}
    for ancestor in reversed(model.__mro__[: model.__mro__.index(Model)]):
        described |= _field_docstrings(inspect.getsource(sys.modules[ancestor.__module__])).get(ancestor.__name__, {})
    return described


@bounded_cache("docstrings of fields", 32)
def _field_docstrings(source: str) -> dict[str, dict[str, str]]:
    """Class of a module → field → the docstring below it, on one line."""
    return {
        definition.name: {
            ast.unparse(field.target): " ".join(str(below.value.value).split())
            for field, below in pairwise(definition.body)
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        }
        for definition in ast.walk(ast.parse(source))
        if isinstance(definition, ast.ClassDef)
    }


def _is_numeric(hint: Any) -> bool:
    """Whether a type hint is a number, a mapping to numbers, or one of these or null."""
    return hint in (int, float) or any(_is_numeric(argument) for argument in get_args(hint))


# Options of an extension, and options that have no effect.


class NoOptions(Model):
    """What an extension that is not installed adds."""


def options_of_media(of: str) -> type[Model]:
    """The options of images, audio and video that the configuration of a family, or of a domain, has."""
    module = plugins.of_extension("media", "options")
    model: type[Model] = NoOptions if module is None else module.MODELS[of]
    return model


class Rule(NamedTuple):
    """The path of an option, a test for configurations in which it has no effect, and the reason with the remedy."""

    path: str
    idle: Callable[[Any], bool]
    why: str


def apply_rule(model: BaseModel, rule: Rule, subject: Any, prefix: str = "") -> Iterator[str]:
    """What is wrong where a rule finds that an option has no effect."""
    *sections, name = rule.path.split(".")
    for key in sections:
        if key not in type(model).model_fields:
            return
        model = getattr(model, key)
    field = type(model).model_fields.get(name)
    if field is not None and (value := getattr(model, name)) != field.get_default() and rule.idle(subject):
        yield f"{prefix}{rule.path}: {value!r} has no effect here: {rule.why}"
