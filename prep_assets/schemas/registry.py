"""The registry of schemas, schemas written by users, and the output of other projects' hooks."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, wraps
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, get_type_hints

from msgspec import Struct, field
from pydantic import TypeAdapter, ValidationError

from prep_assets import plugins
from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.own_code import added_code, own_code, own_code_hash, own_function, within_limits
from prep_assets.samples import Contrast, Example, Pair, Row
from prep_assets.schemas.fields import View, as_integer, as_text, expand, has_content, join, needed
from prep_assets.schemas.fields import text_of as text_of  # a public name of this module: users' schemas import it
from prep_assets.stores.lists import lists_of

# Cerebras' semantic data arrays for embeddings, as its read hooks return them: turns with a type and one content.

EMBEDDING = ("question", "context_positive", "context_negative", "embedding", "id")
"""The turn types of these arrays."""


def embedded(turns: Sequence[Mapping[str, Any]]) -> Contrast:
    """The `Contrast` of such an array: a question with its contexts, or a text to embed with its id."""
    contents: dict[str, list[Any]] = {kind: [] for kind in EMBEDDING}
    for number, turn in enumerate(turns):
        if turn.get("type") not in contents:
            raise Refused("unknown_role", f"turn {number} has type {turn.get('type')!r}; known: {', '.join(EMBEDDING)}")
        contents[turn["type"]].append(turn.get("content"))
    if contents["embedding"]:
        return text_to_embed(_only_content(contents, "embedding"), _only_content(contents, "id"))
    positives, negatives = (
        tuple(as_text(content, kind) for content in contents[kind]) for kind in ("context_positive", "context_negative")
    )
    return Contrast(as_text(_only_content(contents, "question"), "question"), positives, negatives)


def text_to_embed(text: object, identity: object) -> Contrast:
    """A text to embed, with its id."""
    return Contrast(needed(as_text(text, "the text"), "empty_query", "the text"), id=as_integer(identity, "id"))


def _only_content(contents: Mapping[str, list[Any]], kind: str) -> object:
    if len(contents[kind]) != 1:
        raise Refused("wrong_type", f"{len(contents[kind])} turns have the type {kind!r}, needs one")
    return contents[kind][0]


# Users' row functions.


_FAILED = object()


class OwnFunction(Struct, frozen=True):
    """A user's row function, which finds out which fields it reads.

    A view sees a field that is accessed by name. A function may also take the whole row: ``Model(**row)``, `dict`, `json`, or a library that
    bypasses a view (`msgspec`, `pydantic`). Then a second call on the row without a field decides: if the example stays the same, the field is
    unread. A field that made a difference once counts as read for all rows.

    Attributes:
        convert: the function with its options.
        used: paths whose removal has changed an example.
    """

    convert: Callable[[Row], Any]
    used: set[str] = field(default_factory=set)

    def __call__(self, row: Row) -> Any:
        if isinstance(row, View):
            expand(row)
        return self.convert(row)

    def unread(self, row: Row, fields: Sequence[tuple[str, Any]], neutral: Callable[[str], bool]) -> list[tuple[str, Any]]:
        """Those of `fields` that do not change the example.

        Args:
            row: the row as the function gets it, without views.
            fields: paths and values of the fields that were not accessed by name.
            neutral: whether a path is passed over in any case.
        """
        if not fields:
            return []
        example = self._example_of(row)
        unread: dict[str, Any] = {}
        paths = {path for path, _ in fields}
        for path, value in fields:
            if any(path.startswith(f"{parent}.") for parent in paths):
                continue  # part of another one of the fields
            for inner_path, inner_value in self._unread_within(row, example, path, value, neutral):
                unread.setdefault(inner_path, inner_value)
        return list(unread.items())

    def _unread_within(self, row: Row, example: Any, path: str, value: Any, neutral: Callable[[str], bool]) -> list[tuple[str, Any]]:
        if neutral(path):
            return [(path, value)]
        if path not in self.used:
            if self._example_of(_without(row, path.split("."))) == example:
                return [(path, value)]
            self.used.add(path)
        inner_fields = {join(path, key): inner_value for key, inner_value in _fields(value).items()}
        return [
            unread for key, inner_value in inner_fields.items() for unread in self._unread_within(row, example, key, inner_value, neutral)
        ]

    def _example_of(self, row: Any) -> Any:
        try:
            return self.convert(copy.deepcopy(row))
        except Exception:  # a function that needs a field may raise what it likes
            return _FAILED


def _fields(value: Any) -> dict[str, Any]:
    """Key and value of each field with content, of an object or of the objects of an array (of these one value a key)."""
    fields: dict[str, Any] = {}
    for element in value if isinstance(value, list) else [value]:
        if isinstance(element, dict):
            fields.update({key: inner for key, inner in dict(element).items() if has_content(inner)})
    return fields


def _without(value: Any, path: Sequence[str]) -> Any:
    """`value` without the field at `path`, in arrays without it in each object."""
    if isinstance(value, list):
        return [_without(element, path) for element in value]
    if not isinstance(value, Mapping) or not path:
        return value
    for size in range(len(path), 0, -1):  # a key may have dots
        key = ".".join(path[:size])
        if key in value:
            inner_path = path[size:]
            return {
                name: _without(inner, inner_path) if name == key else inner for name, inner in value.items() if inner_path or name != key
            }
    return value


# Schemas: each turns one raw row into one `Sample`, `Pair`, `Prompt`, `Group` or `Contrast`.
#
# A schema is a factory. It is called once, with the options of the configuration, and returns the function that converts rows:
#
#     @schema("alpaca", gives=Sample, example={"instruction": "Add 2 and 2.", "output": "4"})
#     def alpaca(*, prompt_key: str = "instruction") -> Convert: ...
#
# A row that does not fit raises `Refused`; `None` also rejects it, with the reason ``skipped_by_schema``.

Convert = Callable[[Row], Example | None]
Factory = TypeVar("Factory", bound=Callable[..., Convert])


class Schema(Struct, frozen=True):
    """A registered schema.

    Attributes:
        gives: the type that rows become; a union (``Sample | Pair``) where the options decide, so test it with `can_give`.
        example: a row that the schema converts with its default options.
        aliases: further names that `convert_with` accepts.
        variant_of: the schema that reads the same rows into another type, if there is one.
        labels: whether its samples have a label, so that they train preferences without a second answer.
        further: what its groups have beside rewards: runs of agents, or rewards of steps.
    """

    name: str
    factory: Callable[..., Convert]
    gives: type | UnionType
    example: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    options: Mapping[str, inspect.Parameter] = field(default_factory=dict)
    variant_of: str | None = None
    labels: bool = False
    further: str = ""

    @property
    def summary(self) -> str:
        """First line of the factory's docstring."""
        return (inspect.getdoc(self.factory) or "").split("\n", 1)[0]

    @property
    def description(self) -> str:
        """The factory's docstring without its options."""
        return (inspect.getdoc(self.factory) or "").partition("\n\nOptions:\n")[0]

    @property
    def meanings(self) -> dict[str, str]:
        """What each option does, from the factory's docstring."""
        listed = (inspect.getdoc(self.factory) or "").partition("\n\nOptions:\n")[2]
        return {name: " ".join(text.split()) for name, text in re.findall(r"^    (\w+): (.+(?:\n {6,}.+)*)", listed, re.MULTILINE)}

    def can_give(self, form: type) -> bool:
        """Whether rows may become `form`: `Sample`, `Pair`, `Prompt`, `Group` or `Contrast`; `object`: any of them."""
        return form is object or issubclass(form, self.gives)


_SCHEMAS: dict[str, Schema] = {}
_ALIASES: dict[str, str] = {}


def schema(
    name: str,
    *,
    gives: type | UnionType,
    example: Mapping[str, Any] | str,
    aliases: tuple[str, ...] = (),
    variant_of: str | None = None,
    labels: bool = False,
    further: Literal["", "runs", "steps"] = "",
) -> Callable[[Factory], Factory]:
    """Register a schema factory under `name` and `aliases` (its names in other projects). `example`: a row, or the registered schema that it is taken from."""

    def register(factory: Factory) -> Factory:
        plugins.claim("schema", (name, *aliases), factory)
        options = dict(inspect.signature(factory).parameters)
        row = _SCHEMAS[example].example if isinstance(example, str) else example
        _SCHEMAS[name] = Schema(name, factory, gives, row, aliases, options, variant_of, labels, further)
        _ALIASES.update(dict.fromkeys(aliases, name))
        return factory

    return register


def options_of(shared: Callable[..., Any]) -> Callable[[Callable[..., Convert]], Callable[..., Convert]]:
    """A factory with the options of `shared` after its own. It is called with what `shared` makes of them, and with its own."""

    def sharing(factory: Callable[..., Convert]) -> Callable[..., Convert]:
        given, (_, *own) = (inspect.signature(each).parameters.values() for each in (shared, factory))

        @wraps(factory)
        def made(**options: Any) -> Convert:
            named = {parameter.name: options.pop(parameter.name) for parameter in given if parameter.name in options}
            return factory(shared(**named), **options)

        made.__signature__ = inspect.Signature([*own, *given])  # type: ignore[attr-defined]
        made.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *given)}
        text, _, listed = (inspect.getdoc(factory) or "").partition("\n\nOptions:\n")
        made.__doc__ = "\n".join(filter(None, (f"{text}\n\nOptions:", listed, (inspect.getdoc(shared) or "").partition("Options:\n")[2])))
        return made

    return sharing


@cache
def _load() -> None:
    plugins.load_all("schemas")


def schemas() -> dict[str, Schema]:
    """Every registered schema by name, sorted, those of other packages too."""
    _load()
    return dict(sorted(_SCHEMAS.items()))


def schema_named(name: str) -> Schema | None:
    """The registered schema with this name or alias, if there is one."""
    return schemas().get(_ALIASES.get(name, name))


def schema_code(name: str) -> str | None:
    """What decides what a schema from outside this package does: the hash of a function ``package.module:function``, or `added_code` of a registered one, and
    of what other packages add as its variants or lists; `None` for a shipped schema, which our version covers."""
    if ":" in name:
        return own_code_hash(name)
    shipped = schema_named(name)
    variants = [each for each in schemas().values() if shipped and shipped.name in (each.name, each.variant_of)]
    modules = [*(each.factory.__module__ for each in variants), *([lists.encode.__module__] if (lists := lists_of(name)) else [])]
    return "; ".join(code for module in modules if (code := added_code(module))) or None


def convert_with(name: str, options: Mapping[str, Any] | None = None, *, gives: type | None = None) -> Convert:
    """The row function of the schema called `name` (or ``package.module:function``), bound to `options`.

    Args:
        gives: the type that the caller needs. A schema of another type is replaced by its variant of this type:
            ``gsm8k`` by ``gsm8k_prompt`` where a `Prompt` is needed. Labelled samples stand for a `Pair`. A user's function is taken as it is.

    Raises:
        ConfigError: no such schema or option, an option of the wrong type, or no way to `gives`; the message names what is allowed and
            the nearest match.
    """
    selected = selected_schema(name, gives)
    if selected is None:
        return _own_function(name, dict(options or {}))
    check_options(f"schema {name!r}", options or {}, selected.factory)
    return selected.factory(**(options or {}))


def selected_schema(name: str, gives: type | None = None) -> Schema | None:
    """The schema that `convert_with` takes; `None` for a user's function.

    Raises:
        ConfigError: no such schema, or no way to `gives`.
    """
    known, selected = schemas(), schema_named(name)
    if selected is None and ":" in name:
        return None
    if selected is None:
        names_and_aliases = [*known, *_ALIASES]
        raise ConfigError(
            f"no schema {name!r}{nearest(name, names_and_aliases) or '.'} Known: {', '.join(known)}; or 'package.module:function'"
        )
    if gives is not None:
        fitting = [schema for schema in known.values() if schema.can_give(gives) or (gives is Pair and schema.labels)]
        candidates = [schema for schema in fitting if selected.name in (schema.name, schema.variant_of)]
        if not candidates:
            names = ", ".join(schema.name for schema in fitting)
            raise ConfigError(f"schema {selected.name!r} gives no {gives.__name__}, which is needed here. These do: {names}")
        selected = selected if selected in candidates else candidates[0]
    return selected


def check_options(
    subject: str, options: Mapping[str, Any], factory: Callable[..., Any], known: Mapping[str, inspect.Parameter] | None = None
) -> None:
    """Check options from YAML or JSON against a factory's type hints, which are their only schema.

    Args:
        subject: whose options they are, for errors.
        known: the parameters of the factory that are options, if not all of them.

    Raises:
        ConfigError: an unknown option, a value of the wrong type, or none where one is needed; the message names what is allowed and the nearest match.
    """
    known = inspect.signature(factory).parameters if known is None else known
    for option, value in options.items():
        if option not in known:
            raise ConfigError(f"{subject} has no option {option!r}{nearest(option, known) or '.'} Allowed: {', '.join(known) or 'none'}")
        try:
            TypeAdapter(_hints(factory)[option]).validate_python(value, strict=True)
        except ValidationError as error:
            raise ConfigError(f"{subject}, option {option!r} = {value!r}: {error.errors()[0]['msg']}") from error
    if missing := [name for name, option in known.items() if option.default is option.empty and name not in options]:
        raise ConfigError(f"{subject} needs the option {missing[0]!r}: {known[missing[0]].annotation}")


@bounded_cache("type hints of factories", 256)
def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(factory, include_extras=True)


def _own_function(path: str, options: dict[str, Any]) -> Convert:
    function = own_function("schema", path)
    if inspect.isclass(builder := own_code(path)) and callable(getattr(builder, "build", None)):
        function = _builder(path, builder)
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    if unknown := [name for name in options if name not in parameters and not takes_any]:
        raise ConfigError(f"schema {path!r} takes no option {unknown[0]!r}; its signature is {inspect.signature(function)}")
    read_semantic, read_tokenized = convert_with("semantic"), convert_with("tokenized", {"ids_key": "sequence"})

    def convert(payload: Row) -> Example | None:
        output = function(payload, **options)
        if isinstance(output, Mapping):
            return read_tokenized(_tokenized_row(output, payload))
        # a read hook written for Cerebras Model Zoo returns a semantic data array
        if isinstance(output, list) and output and output[0].get("type") in EMBEDDING:
            return embedded(output)
        return read_semantic({"semantic_data_array": output}) if isinstance(output, list) else output

    return OwnFunction(convert)


def _builder(path: str, builder: type) -> Callable[..., Any]:
    """The method ``build(item, config, tokenizer)`` of an AstrAI mask builder as a function of a row: `config` has the options, and `tokenizer` is the one in
    the folder of the option of this name, whose ``encode`` gives ids."""
    build = within_limits("schema", path, builder().build)

    def function(payload: Row, **options: Any) -> Any:
        folder = options.get("tokenizer")
        return build(payload, SimpleNamespace(**options), None if folder is None else _tokenizer_of_builder(folder))

    return function


@lru_cache(8)
def _tokenizer_of_builder(folder: str) -> SimpleNamespace:
    """A tokenizer with what AstrAI's builders call."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    return SimpleNamespace(encode=lambda text, add_special_tokens=True: [*backend.encode(text, add_special_tokens=add_special_tokens).ids])


def _tokenized_row(output: Row, payload: Row) -> Mapping[str, Any]:
    """A row for `tokenized` from the output of an AstrAI mask builder, which omits a mask of ones. A domain that it returns must stand in the row, where
    `domain_key` finds it."""
    keys = [key for key in ("sequence", "ids") if key in output]
    if unknown := sorted(set(output) - {"sequence", "ids", "loss_mask", "domain"}) or keys[1:]:
        raise Refused("unsupported_column", f"the function returns {unknown[0]!r}; it may return 'sequence' with 'loss_mask', or a Sample")
    domain = output.get("domain")
    if domain not in (None, "", "__default__") and domain not in payload.values():
        detail = (
            f"the function puts the row into the domain {domain!r}, which no field of it says. Name the field that decides in domain_key"
        )
        raise Refused("unsupported_column", detail)
    ids = output[keys[0]] if keys else ()
    return {"sequence": ids, "loss_mask": output.get("loss_mask", [1] * len(ids))}
