"""Which rows of a store are derived the slow way: all of a small store, and of others the first of each form and one in `ONE_IN` or `SELDOM`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from prep_assets.array_types import Ints

FILE = 40
"""A place is the number of a file, and in so many bits below it that of a row."""
ONE_IN = 16
SELDOM = 64
"""One in so many rows is looked at again, where another derivation looks at all of them."""
MOST_FORMS = 1024
"""How many forms are told apart, so that rows that are each of another form stay a sample."""
_DEEPEST = 6
_NAMING = ("role", "from", "type")
"""Fields whose text tells what an object is."""


def numbers_of(places: Ints) -> Ints:
    """Return the numbers by which rows are chosen: those in their file, counted from elsewhere in each, so that of many small files not all first rows are."""
    return (places & ((1 << FILE) - 1)) + 37 * (places >> FILE)


class Sampled:
    """Chooses rows.

    Args:
        every: whether all rows are chosen.
    """

    def __init__(self, *, every: bool) -> None:
        self._every = every
        self._seen = set[Hashable]()

    def is_counted(self, number: int, one_in: int = ONE_IN) -> bool:
        """Return whether a row is chosen by its number, see `numbers_of`, which does not depend on how a store is divided among workers."""
        return self._every or number % one_in == 0

    def takes(self, number: int, row: Mapping[str, Any], one_in: int = ONE_IN) -> bool:
        """Return whether a row is chosen: by its number, or as the first of its form."""
        if self._every:
            return True
        form = form_of(row) if len(self._seen) < MOST_FORMS else None
        is_first = form is not None and form not in self._seen
        if is_first:
            self._seen.add(form)
        return is_first or self.is_counted(number, one_in)


def form_of(value: Any, deepest: int = _DEEPEST) -> Hashable:
    """Return what rows of the same form have in common: their fields, types, roles, the kinds of elements of their arrays, and which texts begin with markup
    or JSON."""
    if isinstance(value, str):
        return _begins(value)
    if not value:
        return (type(value),)
    if isinstance(value, dict):
        if not deepest:
            return dict
        form: list[Hashable] = []
        for key, inner in value.items():
            if isinstance(inner, str):
                form += (key, inner if key in _NAMING else _begins(inner))
            elif inner is not None:
                form += (key, form_of(inner, deepest - 1))
        return tuple(form)
    if isinstance(value, list):
        forms = [form_of(each, deepest - 1) for each in value] if deepest else []
        return (frozenset(forms), *forms[-1:], len(value) > 1)
    if isinstance(value, bool):
        return value
    return (type(value), value > 0) if isinstance(value, int | float) else str(type(value))


_MARKS: Mapping[str, Hashable] = {mark: mark for mark in ("", "<", "{", "[")}


def _begins(text: str) -> Hashable:
    return _MARKS.get(text[:1])
