"""A row that notes which of its fields are taken, and the objects inside it likewise: messages, content parts, tool calls.

A schema sees a view in place of the row. A view is a `dict` in every respect, so a schema of one's own needs to know nothing of it. What takes
every field (`items`, `values`, ``**row``, a copy, `json.dumps`, `repr`) counts as reading them all. Looking whether a key is there takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

_get = dict.__getitem__
_put = dict.__setitem__


@dataclass(slots=True)
class Book:
    """What is known of one row.

    Attributes:
        ignore: path of an object → its keys that are left out, as if the row did not have them.
        dropped: paths of fields with content that were left out.
        views: the objects of the row that a schema came to.
        by_name: whether only a field that is asked for by its name counts as taken, see `own_reading`.
    """

    ignore: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    views: list[View] = field(default_factory=list)
    by_name: bool = False


class View(dict[str, Any]):
    """One object of a row.

    Attributes:
        left: keys not taken yet.
        path: where the object stands, dotted, without positions in arrays: ``messages.tool_calls``; ``""`` for the row itself.
        book: what is known of the row.
        listed: whether its keys were listed, so that a field asked for by its name may be one of a loop over all of them.
    """

    __slots__ = ("book", "left", "listed", "path")

    left: set[str]
    path: str
    book: Book
    listed: bool

    def __getitem__(self, key: str) -> Any:
        if key in self.left:
            self._take(key, key)
        return _get(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        if key in self.left:
            self._take(key, key)
        return super().get(key, default)

    def _take(self, key: str, shown: str, *, named: bool = True) -> None:
        if not self.book.by_name or (named and not self.listed):
            self.left.discard(key)
        value = _get(self, key)
        if type(value) is dict or type(value) is list:
            _put(self, key, _inside(value, join(self.path, shown), self.book))

    # without an `__iter__` of its own, Python copies a dict past `__getitem__`
    def __iter__(self) -> Iterator[str]:
        self.listed = True
        return super().__iter__()

    def keys(self) -> Any:
        self.listed = True
        return super().keys()

    def items(self) -> Any:
        # the keys of an object that is gone through are data, such as the names of turns; those of the row are its columns
        for key in list(self.left):
            self._take(key, "*" if self.path and not self.book.by_name else key, named=False)
        return super().items()

    def values(self) -> Any:
        self.items()
        return super().values()

    def pop(self, key: str, *default: Any) -> Any:
        self.get(key)
        return super().pop(key, *default)

    def __delitem__(self, key: str) -> None:
        whole(self.pop(key))

    def setdefault(self, key: str, default: Any = None) -> Any:
        self.get(key)
        return super().setdefault(key, default)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __repr__(self) -> str:
        return repr(whole(self))

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return whole(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (whole(self),)


def view_of(row: Mapping[str, Any], ignore: Mapping[str, Sequence[str]] | None = None) -> View:
    """A view of a row; the row itself stays as it is. `ignore`: see `Book`."""
    return _view(row, "", Book(ignore or {}))


def _view(value: Mapping[str, Any], path: str, book: Book) -> View:
    view = View(value)
    for key in book.ignore.get(path, ()) if book.ignore else ():
        if has_content(dict.pop(view, key, None)):
            book.dropped.add(join(path, key))
    view.left, view.listed = set(dict.keys(view)), False
    view.path = path
    view.book = book
    book.views.append(view)
    return view


def peek(row: Mapping[str, Any], key: str) -> Any:
    """A field, or `None`; looking at it does not count as reading it, so its user has to take it."""
    return dict.get(row, key) if isinstance(row, dict) else row.get(key)


def expand(row: View) -> None:
    """Put views into the place of all objects of a row, and take none of its fields: for readers that go past a view."""
    row.book.by_name = True
    for view in row.book.views:  # which grows
        for key in dict.keys(view):
            _put(view, key, _inside(_get(view, key), join(view.path, key), row.book))


def join(path: str, key: str) -> str:
    """The path of a field of the object at `path`."""
    return f"{path}.{key}" if path else key


def _inside(value: Any, path: str, book: Book) -> Any:
    if type(value) is dict:
        return _view(value, path, book)
    return [_inside(each, path, book) for each in value] if type(value) is list else value


def whole(value: Any) -> Any:
    """`value` without views, every field of it taken: for what is passed on as it is, such as the description of a tool."""
    if isinstance(value, View):
        return {key: whole(inner) for key, inner in value.items()}
    return [whole(each) for each in value] if type(value) is list else value


def has_content(value: object) -> bool:
    """Whether a field says anything: null, ``""``, ``[]`` and ``{}`` do not."""
    return value is not None and value != "" and value != [] and value != {}


def unread(row: View) -> list[tuple[str, Any]]:
    """Path and value of each field with content that was not taken.

    An object without any taken field is one unread value, under the name of the field that holds it.
    """
    found: list[tuple[str, Any]] = []
    for view in row.book.views:
        if not view.left:
            continue
        if view is not row and len(view.left) == len(view):
            plain = dict(super(View, view).items())
            if any(map(has_content, plain.values())):
                found.append((view.path, plain))
            continue
        for key in view:
            if key in view.left and has_content(value := _get(view, key)):
                found.append((join(view.path, key), value))
    return found
