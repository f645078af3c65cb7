"""Loops over characters, words and bytes, compiled to machine code by numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from prep_assets.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def compiled(loop: Callable[P, T]) -> Callable[P, T]:
    """A function of arrays and numbers, compiled when it is called first, or read from numba's cache.

    It may use numbers of its module, and no other functions of ours. As Python, it is `__wrapped__`.
    """
    made: list[Callable[P, T]] = []

    @wraps(loop)
    def call(*args: P.args, **named: P.kwargs) -> T:
        if made:
            return made[0](*args, **named)
        try:
            from numba import njit
        except ImportError as error:
            raise ConfigError("quality steps compile their loops with numba: pip install 'prep-assets[quality]'") from error
        try:
            fast: Callable[P, T] = njit(cache=True)(loop)
            result = fast(*args, **named)
        except Exception:  # its cache has no folder, no space or a torn file: numba raises what it comes across, each time again
            fast = njit(loop)
            result = fast(*args, **named)
        made.append(fast)
        return result

    return call
