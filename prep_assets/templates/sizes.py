"""What a template may make at one stroke: single operations that take any amount of time or memory are held to a size.

A loop is ended by `prep_assets.limits`; ``'x' * 10 ** 10`` is one call of the interpreter, which nothing can end. The same operations always
exceed it, so a record for which one does is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.templates.environment import chat_template_utils

LARGEST = 1 << 26
"""Characters or elements that one operation makes."""
_WIDTH = re.compile(r"\d{8}")
_STARRED = re.compile(r"%[-+ #0]*\*|%[^%a-zA-Z]*\.\*|\{[^{}]*\{")
_SIZED_FILTERS = ("batch", "center", "indent", "slice", "tojson")
_SIZED_METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs")
"""They are told how much to write."""


@bounded_cache("compiled templates", 64)
def compiled(source: str) -> Any:
    """A template as transformers compiles it, with its operations held to `LARGEST`, those too that the compiler does ahead."""
    from jinja2 import Template

    bounded = environment()
    return Template.from_code(bounded, bounded.compile(source), bounded.make_globals(None))


@cache
def environment() -> Any:
    """That of transformers, bounded."""
    plain = chat_template_utils()._compile_jinja_template("").environment
    bounded = plain.overlay()
    bounded.intercepted_binops = frozenset(("*", "**", "%"))
    bounded.call_binop = _operate(plain)
    sized = {name: _sized(plain.filters[name]) for name in _SIZED_FILTERS}
    bounded.filters = {**plain.filters, **sized, "format": _formatting(plain.filters["format"])}
    bounded.call = _called(plain.call)
    bounded.finalize = _written
    return bounded


def _operate(plain: Any) -> Callable[..., Any]:
    def operate(context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for what, times in ((left, right), (right, left)):
                if isinstance(what, str | list | tuple) and isinstance(times, int) and len(what) * times > LARGEST:
                    raise _too_large(f"{len(what):,} characters or elements are repeated {times:,} times")
        elif operator == "**" and isinstance(left, int) and isinstance(right, int) and right * left.bit_length() > LARGEST:
            raise _too_large(f"a number of {left.bit_length():,} bits to the power of {right:,}")
        elif operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        return plain.binop_table[operator](left, right)

    return operate


def _sized(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def sized(*arguments: Any, **named: Any) -> Any:
        # the value comes first, after the environment where a filter wants that
        _check_sizes((*arguments[1 + (getattr(function, "jinja_pass_arg", None) is not None) :], *named.values()))
        return function(*arguments, **named)

    return sized


def _formatting(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def formatting(value: Any, *arguments: Any, **named: Any) -> Any:
        _check_format(str(value), (*arguments, *named.values()))
        return function(value, *arguments, **named)

    return formatting


def _called(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(context: Any, function: Any, *arguments: Any, **named: Any) -> Any:
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps those that format
        if isinstance(owner := getattr(method, "__self__", None), str):
            if method.__name__ in _SIZED_METHODS:
                _check_sizes(arguments)
            elif method.__name__ in ("format", "format_map"):
                _check_format(owner, (*arguments, *named.values()))
        return call(context, function, *arguments, **named)

    return called


def _check_format(form: str, values: Iterable[Any]) -> None:
    if found := _WIDTH.search(form):
        raise _too_large(f"the width {found[0]}… in {form[:40]!r}")
    if _STARRED.search(form):
        _check_sizes(values)


def _check_sizes(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int) and value > LARGEST:
            raise _too_large(f"the size {value:,}")


def _written(value: Any) -> Any:
    """What is about to be written. Where a function stands in memory differs from run to run."""
    from jinja2.exceptions import SecurityError
    from jinja2.runtime import Undefined

    if isinstance(value, str | Undefined) or not (callable(value) or hasattr(value, "__next__")) or hasattr(value, "__html__"):
        return value
    raise SecurityError(
        f"it writes a {type(value).__name__}, which is another text in each run. Does a call lack its brackets, or a list its filter?"
    )


def _too_large(what: str) -> Exception:
    from jinja2.exceptions import SecurityError

    return SecurityError(f"{what}: one operation of a template makes at most {LARGEST:,} characters or elements")
