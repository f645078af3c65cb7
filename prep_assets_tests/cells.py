"""Grids of small cells, each grid as one test: pytest takes 3 ms for a test in one of several processes, and each of them collects them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import pytest

from prep_assets_tests.effort import SOAK

FAILED = (Exception, pytest.fail.Exception, pytest.skip.Exception)
SHOWN = 5


def cells(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] | Sequence[str] | None = None
) -> Callable[..., Any]:
    """As `pytest.mark.parametrize` in one test, which runs all cells and names those that fail, with the tracebacks of the first few.

    Cells share the test's fixtures, and none can be skipped; those that are marked `soak` run in `make soak` alone."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    asked = [value for value in values if SOAK or all(mark.name != "soak" for mark in getattr(value, "marks", ()))]
    rows = [
        (tuple(value.values), value.id) if hasattr(value, "marks") else (tuple(value) if len(keys) > 1 else (value,), None)
        for value in asked
    ]
    assert rows

    def label(at: int) -> str:
        given, own = rows[at]
        if own is not None or (ids is not None and not callable(ids)):
            return str(own if own is not None else ids[at])  # type: ignore[index]
        return ", ".join(str(ids(value)) if callable(ids) else repr(value)[:80] for value in given)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def every(**fixtures: Any) -> None:
            failed: dict[str, BaseException] = {}
            for at, (given, _) in enumerate(rows):
                try:
                    test(**fixtures, **dict(zip(keys, given, strict=True)))
                except FAILED as error:
                    failed[f"{at}: {label(at)}"] = error
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(rows)} cells\n" + "\n".join(failed), [*failed.values()][:SHOWN])

        given = signature(test)
        every.__signature__ = given.replace(parameters=[each for name, each in given.parameters.items() if name not in keys])  # type: ignore[attr-defined]
        return every

    return decorate
