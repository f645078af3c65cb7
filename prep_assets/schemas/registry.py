"""The registry of schemas; functions of the user's own, and the hooks of other projects."""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import importlib.util
import inspect
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from traceback import extract_tb
from types import TracebackType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, nearest
from prep_assets.limits import limited
from prep_assets.samples import Contrast, Example
from prep_assets.schemas.fields import Row, View, as_integer, as_text, expand, has_content, join, needed
from prep_assets.schemas.fields import text_of as text_of  # part of what a schema of one's own imports from here

# Cerebras' semantic data arrays for embeddings: turns of a type and one content, as their read hooks return them.

EMBEDDING = ("question", "context_positive", "context_negative", "embedding", "id")
"""Types of their turns."""


def embedded(turns: Sequence[Mapping[str, Any]]) -> Contrast:
    """A question with its contexts, or a text to be embedded with its id."""
    found: dict[str, list[Any]] = {kind: [] for kind in EMBEDDING}
    for at, turn in enumerate(turns):
        if turn.get("type") not in found:
            raise Refused("unknown_role", f"turn {at} has type {turn.get('type')!r}; known: {', '.join(EMBEDDING)}")
        found[turn["type"]].append(turn.get("content"))
    if found["embedding"]:
        return text_to_embed(_one(found, "embedding"), _one(found, "id"))
    positives, negatives = (tuple(as_text(each, kind) for each in found[kind]) for kind in ("context_positive", "context_negative"))
    return Contrast(as_text(_one(found, "question"), "question"), positives, negatives)


def text_to_embed(text: object, identity: object) -> Contrast:
    """A text with its id."""
    return Contrast(needed(as_text(text, "the text"), "empty_query", "the text"), id=as_integer(identity, "id"))


def _one(found: Mapping[str, list[Any]], kind: str) -> object:
    if len(found[kind]) != 1:
        raise Refused("wrong_type", f"{len(found[kind])} turns have the type {kind!r}, needs one")
    return found[kind][0]


# Which source files a schema of the user's own is made of: its module, and every module of the project that it imports, and they import.
#
# Imports are read from the source, those inside functions too; nothing is run. A module counts where it lies beside the schema's own top-level package, or in
# any other folder of the import path that is neither the standard library's nor one of installed packages.

NOT_OWN = ("prep_assets",)
"""Our own package has versions of its own."""


def own_code_hash(name: str) -> str | None:
    """sha256 of the source files of a user's schema ``package.module:function``: of the file itself where it imports nothing of the project.

    `None` for a shipped schema, whose version is ours, and for a module without a source file, which is refused when it is loaded.
    """
    if ":" not in name:
        return None
    files = source_files(name.rpartition(":")[0])
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for _, path in files]
    if len(hashes) < 2:
        return hashes[0] if hashes else None
    listed = "".join(f"{module} {digest}\n" for (module, _), digest in zip(files, hashes, strict=True))
    return hashlib.sha256(listed.encode()).hexdigest()


def source_files(module: str) -> list[tuple[str, Path]]:
    """Name and file of a module and of all modules of the project that it imports, directly or not; sorted by name, the module first."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.origin or not (origin := Path(spec.origin)).is_file():
        return []
    depth = len(module.split(".")) - (origin.name != "__init__.py")
    home = origin.resolve().parents[depth]
    found: dict[str, Path] = {}
    # importing a module runs the packages above it as well
    waiting = [(module, origin.resolve()), *_located(module, module.partition(".")[0], home)]
    while waiting:
        name, path = waiting.pop()
        if name in found or path.suffix != ".py":
            continue
        found[name] = path
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for wanted in _imported(path, package):
            waiting += _located(wanted, module.partition(".")[0], home)
    found.setdefault(module, origin)
    return [(module, found.pop(module)), *sorted(found.items())]


def _imported(path: Path, package: str) -> Iterator[str]:
    """Full names that a file imports; of ``from a import b`` also ``a.b``, which may be a module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _located(name: str, own: str, home: Path) -> Iterator[tuple[str, Path]]:
    """The files that importing a name runs: of each package above it, and its own; none where it is not the project's.

    The project's are in the folder of the schema, and in those of the import path that hold neither the standard library nor installed packages.
    """
    parts = name.split(".")
    if parts[0] in NOT_OWN or not parts[0]:
        return
    if parts[0] != own and _is_installed(home):
        return
    on_the_path = [Path(entry or ".").resolve() for entry in sys.path]
    for folder in (home, *(entry for entry in on_the_path if entry.is_dir() and not _is_installed(entry))):
        if not ((folder / parts[0]).is_dir() or (folder / f"{parts[0]}.py").is_file()):
            continue
        for depth in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:depth])
            for file in (place / "__init__.py", place.with_suffix(".py")):
                if file.is_file():
                    yield ".".join(parts[:depth]), file
                    break
        return


def _is_installed(folder: Path) -> bool:
    return any(place == folder or place in folder.parents for place in _installed())


@cache
def _installed() -> frozenset[Path]:
    """The folders of the standard library and of installed packages, which stay what they are for as long as Python runs."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(place).resolve() for place in (*places, *site.getsitepackages(), site.getusersitepackages()) if place)


# Functions of the user's own, named as ``package.module:function``: found, and called within the limits of one call.


def own_code(path: str) -> Any:
    """What stands at ``package.module:name``.

    Raises:
        Exception: whatever importing the module raises.
    """
    module_name, _, name = path.rpartition(":")
    return getattr(importlib.import_module(module_name), name)


def own_function(key: str, path: str) -> Callable[..., Any]:
    """The function at `path`, with each call limited in time and memory.

    Args:
        key: what names it in the configuration, for errors.

    Raises:
        ConfigError: it does not exist.
    """
    try:
        function = within_limits(key, path, own_code)(path)
    except PrepAssetsError:
        raise
    except Exception as error:  # importing a module may raise anything
        raise ConfigError(
            f"{key} {path!r} cannot be loaded: {type(error).__name__}: {error}. It must be 'package.module:name', importable from here"
        ) from error

    return within_limits(key, path, function)


def within_limits(key: str, path: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of somebody's code, with each call limited in time and memory.

    Args:
        key, path: what names it in the configuration, and where it stands, for errors.
    """

    def over(what: str, trace: TracebackType | None) -> ConfigError:
        where = extract_tb(trace)[-1]
        return ConfigError(
            f"{key} {path!r}: {where.filename}, line {where.lineno}: one call {what}. Fix it, or leave out the row that causes it"
        )

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with limited(over):
            return function(*args, **options)

    return called


_NOTHING = object()


@dataclass(frozen=True)
class OwnFunction:
    """A row function of a user's own, and what it reads of a row.

    A view sees a field that is asked for by its name. A function may also take the row as a whole: ``Model(**row)``, `dict`, `json`, or a
    library that goes past a view (`msgspec`, `pydantic`). Whether it uses a field then, a second call tells, on the row without it: a field
    without which the example is the same one was not read. What made a difference once is known for all rows.

    Attributes:
        convert: the function with its options.
        used: paths without which some example was another one.
    """

    convert: Callable[[Row], Any]
    used: set[str] = field(default_factory=set)

    def __call__(self, row: Row) -> Any:
        if isinstance(row, View):
            expand(row)
        return self.convert(row)

    def unread(self, row: Row, left: Sequence[tuple[str, Any]], neutral: Callable[[str], bool]) -> list[tuple[str, Any]]:
        """Of fields that were not asked for by name, those that change nothing.

        Args:
            row: the row as the function gets it, plain.
            left: their paths and values.
            neutral: whether a path is passed over in any case.
        """
        if not left:
            return []
        example = self._of(row)
        found: dict[str, Any] = {}
        paths = {path for path, _ in left}
        for path, value in left:
            if any(path.startswith(f"{other}.") for other in paths):
                continue  # it stands within another one
            for own, each in self._within(row, example, path, value, neutral):
                found.setdefault(own, each)
        return list(found.items())

    def _within(self, row: Row, example: Any, path: str, value: Any, neutral: Callable[[str], bool]) -> list[tuple[str, Any]]:
        if neutral(path):
            return [(path, value)]
        if path not in self.used:
            if self._of(_without(row, path.split("."))) == example:
                return [(path, value)]
            self.used.add(path)
        inner = {join(path, key): each for key, each in _fields(value).items()}
        return [left for key, each in inner.items() for left in self._within(row, example, key, each, neutral)]

    def _of(self, row: Any) -> Any:
        try:
            return self.convert(copy.deepcopy(row))
        except Exception:  # a function that needs a field may raise what it likes
            return _NOTHING


def _fields(value: Any) -> dict[str, Any]:
    """A value of each field with content of an object, or of the objects of an array."""
    found: dict[str, Any] = {}
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            found.update({key: inner for key, inner in dict(each).items() if has_content(inner)})
    return found


def _without(value: Any, path: Sequence[str]) -> Any:
    """A row without a field; of an array, without it in each of its objects."""
    if isinstance(value, list):
        return [_without(each, path) for each in value]
    if not isinstance(value, Mapping) or not path:
        return value
    for size in range(len(path), 0, -1):  # a key may have dots
        key = ".".join(path[:size])
        if key in value:
            rest = path[size:]
            return {name: _without(inner, rest) if name == key else inner for name, inner in value.items() if rest or name != key}
    return value


# Schemas: how one raw row becomes one `Sample`, `Pair`, `Prompt` or `Group`.
#
# A schema is a factory. It is called once with the options from the configuration and returns the function that is called on each row:
#
#     @schema("alpaca", gives=Sample, example={"instruction": "Add 2 and 2.", "output": "4"})
#     def alpaca(*, prompt_key: str = "instruction") -> Convert: ...
#
# A row that does not fit raises `Refused`; `None` also refuses it, with the reason ``skipped_by_schema``.

Convert = Callable[[Row], Example | None]
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
        fitting = [schema for schema in known.values() if schema.can_give(gives) or (or_labels and schema.labels)]
        related = [schema for schema in fitting if found.name in (schema.name, schema.variant_of)]
        if not related:
            able = ", ".join(schema.name for schema in fitting)
            raise ConfigError(f"schema {found.name!r} gives no {gives.__name__}, which is needed here. These do: {able}")
        found = found if found in related else related[0]
    hints = _hints(found.factory)  # options come from YAML or JSON, so nothing but the factory's own type hints says what they may be
    for option, value in (options or {}).items():
        if option not in found.options:
            allowed = ", ".join(found.options) or "none"
            raise ConfigError(f"schema {name!r} has no option {option!r}{nearest(option, found.options) or '.'} Allowed: {allowed}")
        try:
            TypeAdapter(hints[option]).validate_python(value, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ConfigError(f"schema {name!r}, option {option!r} = {value!r}: {problem}") from error
    return found.factory(**(options or {}))


@bounded_cache("type hints of schemas", 256)
def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(factory)


def _own_function(path: str, options: dict[str, Any]) -> Convert:
    function = own_function("schema", path)
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    if unknown := [name for name in options if name not in parameters and not takes_any]:
        raise ConfigError(f"schema {path!r} takes no option {unknown[0]!r}; its signature is {inspect.signature(function)}")
    read, ids = convert_with("semantic"), convert_with("tokenized", {"ids_key": "sequence"})

    def convert(payload: Row) -> Example | None:
        found = function(payload, **options)
        if isinstance(found, Mapping):
            return ids(_built(found))
        # a read hook that was written for Cerebras Model Zoo returns a semantic data array
        if isinstance(found, list) and found and found[0].get("type") in EMBEDDING:
            return embedded(found)
        return read({"semantic_data_array": found}) if isinstance(found, list) else found

    return OwnFunction(convert)


def _built(row: Row) -> Mapping[str, Any]:
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
