"""Fields of raw rows: names with a known meaning, values of a type, the view that notes what is read, loss weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, SupportsIndex

from prep_assets.errors import Refused
from prep_assets.samples import Turn

Row = Mapping[str, Any]
"""A raw row, or an object inside one."""

# Names of fields whose meaning is known wherever they stand.

NEUTRAL = frozenset(
    {
        *("id", "_id", "idx", "index", "uid", "uuid", "guid", "__index_level_0__"),
        *("prompt_id", "question_id", "conversation_id", "example_id", "sample_id", "record_id", "row_id", "doc_id"),
        *("source", "dataset", "dataset_name", "url", "uri", "language", "lang", "licence", "license"),
        *("timestamp", "date", "created", "created_at", "updated_at", "split", "subset", "meta", "metadata"),
        *("hash", "md5", "sha1", "sha256"),
    }
)
"""They say where a row comes from and nothing that a model reads. Passed over and counted, in lower or upper case, at every level."""

MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns of media. Without them a text is another text."""

REASONING = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT")
"""Spellings of an assistant's reasoning, one text each. OpenRouter's ``reasoning_details`` is an array of parts."""

CALLS = ("tool_calls", "function_call", "function_calls")
"""Spellings of an assistant's tool calls."""

TOOLS = ("tools", "functions", "available_tools")
"""Columns with the tools on offer."""

TEMPLATE_OPTIONS = "chat_template_kwargs"
DOCUMENTS = "documents"
SYSTEM_PROMPT = "system"
LABELS = ("label", "kto_tag")
"""Columns that say whether an answer is a good one."""

WEIGHTS = ("loss_weight", "weight", "loss_mask")
FLAGS = ("train", "training", "loss")
"""Fields that say how much a row, a message or a part is trained: numbers, and true or false."""

DECISIVE = frozenset(
    {
        *(*MEDIA, *REASONING, "reasoning_details", *CALLS, *TOOLS, TEMPLATE_OPTIONS, DOCUMENTS, SYSTEM_PROMPT, *LABELS, *WEIGHTS, *FLAGS),
        *("history", "input", "context", "margin", "refusal", "prefix"),
    }
)
"""They decide what is trained, or are part of what an answer answers. A row is refused where its schema cannot carry one of them."""


# Values of a raw row, each with the type that a schema needs.
#
# Rows are arbitrary JSON. Every function here returns a value of the type that its name says, or refuses the record with ``missing_field`` or ``wrong_type``
# and the place where the value stands.

_JSON_TYPES = (
    (bool, "true or false"),
    (int, "an integer"),
    (float, "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    (list | tuple, "an array"),
)
"""Types of Python in the words of JSON. A bool is an int too, so it comes first."""


def wrong_type(value: object, where: str, needed: str) -> NoReturn:
    """Refuse `value`, which stands at `where` and is not what is `needed`."""
    found = next((words for kind, words in _JSON_TYPES if isinstance(value, kind)), "null" if value is None else type(value).__name__)
    raise Refused("wrong_type", f"{where!r} is {found}, needs {needed}")


def inside(where: str, key: str) -> str:
    """The place of field `key` of what stands at `where`; ``""`` is the row itself."""
    return f"{where}.{key}" if where else key


def value_at(row: Mapping[str, Any], key: str, where: str = "") -> Any:
    """What stands under `key`; absent and null are refused alike."""
    value = row.get(key)
    if value is None:
        place = f"{where} " if where else ""
        raise Refused("missing_field", f"{place}needs {key!r}; it has {', '.join(map(repr, row)) or 'no fields'}")
    return value


def as_text(value: object, where: str) -> str:
    """`value` as a string."""
    return value if isinstance(value, str) else wrong_type(value, where, "a string")


def as_mapping(value: object, where: str) -> Mapping[str, Any]:
    """`value` as a JSON object."""
    return value if isinstance(value, Mapping) else wrong_type(value, where, "an object")


def as_list(value: object, where: str, needed: str = "an array") -> Sequence[Any]:
    """`value` as a JSON array. `needed` says what else the place may hold, for the error."""
    return value if isinstance(value, list | tuple) else wrong_type(value, where, needed)


def as_integer(value: object, where: str) -> int:
    """`value` as an integer. Booleans are refused."""
    return value if isinstance(value, int) and not isinstance(value, bool) else wrong_type(value, where, "an integer")


def as_number(value: object, where: str) -> float:
    """`value` as a finite float. Booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong_type(value, where, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refused("wrong_type", f"{where!r} is not a finite number")
    return number


def text_of(row: Row, key: str, where: str = "", *, required: bool = True) -> str:
    """The string under `key` of what stands at `where`. Refuses a missing key, null, or a value that is not a string; an optional one gives ``""``."""
    return "" if not required and row.get(key) is None else as_text(value_at(row, key, where), inside(where, key))


def objects(value: object, where: str, needed: str = "an array") -> Iterator[tuple[str, Row]]:
    """The place and the fields of each object of an array, one after the other. `needed` says what else may stand there, for the error."""
    for number, element in enumerate(as_list(value, where, needed)):
        place = f"{where}[{number}]"
        yield place, as_mapping(element, place)


def texts_of(row: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """The strings under `keys`, all of them required."""
    return tuple(text_of(row, key) for key in keys)


def needed(text: str, reason: str, where: str) -> str:
    """`text`, refused with `reason` where it is empty or only whitespace."""
    if not text.strip():
        raise Refused(reason, f"{where!r} is {'empty' if not text else 'only whitespace'}")
    return text


# A row that notes which of its fields are taken, and the objects inside it likewise: messages, content parts, tool calls.
#
# A schema sees a view in place of the row. A view is a `dict` in every respect, so a schema of one's own needs to know nothing of it. What takes every field
# (`items`, `values`, ``**row``, a copy, `json.dumps`, `repr`) counts as reading them all. Looking whether a key is there takes nothing.

_get = dict.__getitem__
_put = dict.__setitem__


@dataclass(slots=True)
class Book:
    """What is known of one row.

    Attributes:
        ignore: path of an object → its keys that are left out, as if the row did not have them.
        dropped: paths of fields with content that were left out.
        views: the objects of the row that a schema came to.
        by_name: whether only a field that is asked for by its name counts as taken: a function of the user's own may go through all of them.
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

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __repr__(self) -> str:
        return repr(whole(self))

    def copy(self) -> dict[str, Any]:
        return dict(self)

    __copy__ = copy

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


# Loss weights that a row gives to its own messages.


def loss_weight_of(message: Mapping[str, Any], where: str) -> float | None:
    """The weight that `message` (or a content part, or a row) asks for, `None` where it asks for none.

    Read are ``loss_weight`` (LLaMA-Factory v1), ``weight`` (OpenAI fine-tuning) and ``loss_mask``, and the booleans ``train`` and ``training``
    (Axolotl) and ``loss`` (ms-swift). Refuses a weight that `as_weight` does not take (``bad_weight``) and two fields that disagree (``conflicting_weights``).
    """
    asked = {key: as_weight(message[key], inside(where, key)) for key in WEIGHTS if message.get(key) is not None}
    for key in FLAGS:
        if (flag := message.get(key)) is not None:
            asked[key] = float(flag) if isinstance(flag, bool) else wrong_type(flag, inside(where, key), "true or false")
    if len(set(asked.values())) > 1:
        raise Refused("conflicting_weights", f"{where or 'the record'}: {', '.join(f'{key} = {value:g}' for key, value in asked.items())}")
    return next(iter(asked.values()), None)


LEAST, MOST = 1e-30, 1e30
"""Weights that are stored as float32; of a smaller one nothing would be left, and a larger one would be infinite."""


def as_weight(value: object, where: str) -> float:
    """`value` as a loss weight: 0, or a number from `LEAST` to `MOST`; true and false are 1 and 0."""
    weight = float(value) if isinstance(value, bool) else as_number(value, where)
    if weight != 0 and not LEAST <= weight <= MOST:
        raise Refused("bad_weight", f"{where!r} is {weight:g}; a loss weight is 0, or from {LEAST:g} to {MOST:g}")
    return weight


def weighted(turn: Turn, weight: float) -> Turn:
    """`turn` with this weight wherever the row itself gives none, such as 0 for an answer that is part of a prompt."""
    return replace(turn, regions=tuple(r if r.loss_weight is not None else replace(r, loss_weight=weight) for r in turn.regions))
