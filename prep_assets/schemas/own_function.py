"""Functions of the user's own, named as ``package.module:function``: found, and called within the limits of one call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from traceback import extract_tb
from types import TracebackType
from typing import Any

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.limits import limited


def own_code(path: str) -> Any:
    """What stands at ``package.module:name``.

    Raises:
        Exception: whatever importing somebody's module raises.
    """
    module_name, _, name = path.rpartition(":")
    return getattr(importlib.import_module(module_name), name)


def own_function(key: str, path: str) -> Callable[..., Any]:
    """The function at `path`, each call of which is limited in time and memory.

    Args:
        key: what names it in the configuration, for errors.

    Raises:
        ConfigError: there is none.
    """
    try:
        function = within_limits(key, path, own_code)(path)
    except PrepAssetsError:
        raise
    except Exception as error:  # whatever importing somebody's module raises
        raise ConfigError(
            f"{key} {path!r} cannot be loaded: {type(error).__name__}: {error}. It must be 'package.module:name', importable from here"
        ) from error

    return within_limits(key, path, function)


def within_limits(key: str, path: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of somebody's code, each call of which is limited in time and memory.

    Args:
        key, path: what names it in the configuration, and where it stands, for errors.
    """

    def over(what: str, trace: TracebackType | None) -> ConfigError:
        where = extract_tb(trace)[-1]
        return ConfigError(
            f"{key} {path!r}: {where.filename}, line {where.lineno}: one call {what}. Mend it, or leave out the row that makes it so"
        )

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with limited(over):
            return function(*args, **options)

    return called
