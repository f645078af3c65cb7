"""Schemas: how one raw row becomes one `Sample`, `Pair`, `Prompt` or `Group`.

A schema is a factory. It is called once with the options from the configuration and returns the function that is called on each row:

    @schema("alpaca", gives=Sample, example={"instruction": "Add 2 and 2.", "output": "4"})
    def alpaca(*, prompt_key: str = "instruction") -> Convert: ...

A row that does not fit raises `Refused`; `None` also refuses it, with the reason ``skipped_by_schema``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.samples import Example
from prep_assets.schemas.embedding import EMBEDDING, embedded
from prep_assets.schemas.fields import text_of as text_of  # part of what a schema of one's own imports from here
from prep_assets.schemas.own_function import OwnFunction, own_code, own_function

Convert = Callable[[Mapping[str, Any]], Example | None]
Factory = TypeVar("Factory", bound=Callable[..., Convert])


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema.

    Attributes:
        gives: the form that rows become; a union (``Sample | Pair``) where the options decide, so test it with `can_give`.
        example: a row that the schema converts with its default options.
        aliases: further names that `convert_with` accepts.
        variant_of: the schema that reads the same rows into another form, if there is one.
        labels: whether its samples have a label, which stands for the other answer of a pair.
    """

    name: str
    factory: Callable[..., Convert]
    gives: type | UnionType
    example: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    options: Mapping[str, inspect.Parameter] = field(default_factory=dict)
    variant_of: str | None = None
    labels: bool = False

    @property
    def summary(self) -> str:
        """First line of the factory's docstring."""
        return (inspect.getdoc(self.factory) or "").split("\n", 1)[0]

    def can_give(self, form: type) -> bool:
        """Whether rows may become `form`, one of `Sample`, `Pair`, `Prompt`, `Group`."""
        return issubclass(form, self.gives)


_SCHEMAS: dict[str, Schema] = {}
_ALIASES: dict[str, str] = {}


def schema(
    name: str,
    *,
    gives: type | UnionType,
    example: Mapping[str, Any],
    aliases: tuple[str, ...] = (),
    variant_of: str | None = None,
    labels: bool = False,
) -> Callable[[Factory], Factory]:
    """Register a schema factory under `name` and `aliases` (the names that other projects have for it)."""

    def register(factory: Factory) -> Factory:
        for word in (name, *aliases):
            if word in _SCHEMAS or word in _ALIASES:
                raise ConfigError(f"schema {word!r} is registered twice")
        options = dict(inspect.signature(factory).parameters)
        _SCHEMAS[name] = Schema(name, factory, gives, example, aliases, options, variant_of, labels)
        _ALIASES.update(dict.fromkeys(aliases, name))
        return factory

    return register


def schemas() -> dict[str, Schema]:
    """Every registered schema by name, sorted."""
    import prep_assets.schemas  # noqa: F401  (registers the shipped ones)

    return dict(sorted(_SCHEMAS.items()))


def convert_with(name: str, options: Mapping[str, Any] | None = None, *, gives: type | None = None, or_labels: bool = False) -> Convert:
    """The row function of the schema called `name` (or ``package.module:function``), bound to `options`.

    Args:
        gives: the form that the caller needs. A schema that gives another one is replaced by its variant that gives this:
            ``gsm8k`` is ``gsm8k_prompt`` where a `Prompt` is needed. A function of one's own is taken as it is.
        or_labels: a schema whose samples have a label will do as well.

    Raises:
        ConfigError: no such schema or option, an option of the wrong type, or no way to `gives`; the message names what is allowed and
            the nearest match.
    """
    known = schemas()
    found = known.get(_ALIASES.get(name, name))
    if found is None and ":" in name:
        return _own_function(name, dict(options or {}))
    if found is None:
        words = [*known, *_ALIASES]
        raise ConfigError(f"no schema {name!r}{nearest(name, words) or '.'} Known: {', '.join(known)}; or 'package.module:function'")
    if gives is not None:
        found = _giving(gives, found, known, or_labels)
    _check_options(name, found, options or {})
    return found.factory(**(options or {}))


def _giving(form: type, found: Schema, known: Mapping[str, Schema], or_labels: bool) -> Schema:
    def fits(schema: Schema) -> bool:
        return schema.can_give(form) or (or_labels and schema.labels)

    related = [other for other in known.values() if found.name in (other.name, other.variant_of)]
    fitting = [schema for schema in (found, *related) if fits(schema)]
    if not fitting:
        able = ", ".join(schema.name for schema in known.values() if fits(schema))
        raise ConfigError(f"schema {found.name!r} gives no {form.__name__}, which is needed here. These do: {able}")
    return fitting[0]


def _check_options(name: str, found: Schema, options: Mapping[str, Any]) -> None:
    """Options come from YAML or JSON, so nothing but the factory's own type hints says what they may be."""
    hints = _hints(found.factory)
    for option, value in options.items():
        if option not in found.options:
            allowed = ", ".join(found.options) or "none"
            raise ConfigError(f"schema {name!r} has no option {option!r}{nearest(option, found.options) or '.'} Allowed: {allowed}")
        try:
            TypeAdapter(hints[option]).validate_python(value, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ConfigError(f"schema {name!r}, option {option!r} = {value!r}: {problem}") from error


@bounded_cache("type hints of schemas", 256)
def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(factory)


def _own_function(path: str, options: dict[str, Any]) -> Convert:
    function = own_function("schema", path)
    unknown = [name for name in options if not _accepts(function, name)]
    if unknown:
        raise ConfigError(f"schema {path!r} takes no option {unknown[0]!r}; its signature is {inspect.signature(function)}")
    read, ids = convert_with("semantic"), convert_with("tokenized", {"ids_key": "sequence"})

    def convert(payload: Mapping[str, Any]) -> Example | None:
        found = function(payload, **options)
        if isinstance(found, Mapping):
            return ids(_built(found))
        # a read hook that was written for Cerebras Model Zoo returns a semantic data array
        if isinstance(found, list) and found and found[0].get("type") in EMBEDDING:
            return embedded(found)
        return read({"semantic_data_array": found}) if isinstance(found, list) else found

    return OwnFunction(convert)


def _built(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a mask builder that was written for AstrAI returns: it leaves out a mask of ones. Its domain is not used, `domain_key` decides."""
    if strange := sorted(set(row) - {"sequence", "loss_mask", "domain"}):
        raise Refused("unsupported_column", f"the function returns {strange[0]!r}; it may return 'sequence' with 'loss_mask', or a Sample")
    return {"loss_mask": [1] * len(row.get("sequence", ())), **{key: value for key, value in row.items() if key != "domain"}}


def own_code_gives(name: str, form: type) -> bool:
    """Whether a function of a user's own, ``package.module:function``, says by its annotation (``-> Group``) that it gives `form`.

    One that cannot be imported says nothing; `convert_with` reports it.
    """
    try:
        hint = get_type_hints(own_code(name)).get("return")
    except Exception:  # importing a module may raise anything
        return False
    return form in (hint, *get_args(hint))


def _accepts(function: Callable[..., Any], option: str) -> bool:
    parameters = inspect.signature(function).parameters
    return option in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
