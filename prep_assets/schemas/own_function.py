"""Functions of the user's own, named as ``package.module:function``: found, and called within the limits of one call."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from traceback import extract_tb
from types import TracebackType
from typing import Any

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.limits import limited
from prep_assets.schemas.view import View, expand, has_content, join


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

    convert: Callable[[Mapping[str, Any]], Any]
    used: set[str] = field(default_factory=set)

    def __call__(self, row: Mapping[str, Any]) -> Any:
        if isinstance(row, View):
            expand(row)
        return self.convert(row)

    def unread(self, row: Mapping[str, Any], left: Sequence[tuple[str, Any]], neutral: Callable[[str], bool]) -> list[tuple[str, Any]]:
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

    def _within(self, row: Mapping[str, Any], example: Any, path: str, value: Any, neutral: Callable[[str], bool]) -> list[tuple[str, Any]]:
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
