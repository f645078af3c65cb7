"""Fields of raw rows: well-known names, typed access, the view that tracks which fields are read, loss weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, SupportsIndex

from msgspec import Struct, field

from prep_assets.errors import Refused
from prep_assets.samples import Row, Turn, changed

# Field names with a known meaning, at every level of a row.

NEUTRAL = frozenset(
    (
        *("id", "_id", "idx", "index", "uid", "uuid", "guid", "__index_level_0__", "prompt_id", "question_id", "conversation_id"),
        *("example_id", "sample_id", "record_id", "row_id", "doc_id", "source", "dataset", "dataset_name", "url", "uri", "language"),
        *("lang", "licence", "license", "timestamp", "date", "created", "created_at", "updated_at", "split", "subset", "meta"),
        *("metadata", "hash", "md5", "sha1", "sha256"),
    )
)
"""Fields that identify a row and say nothing that a model reads. Passed over and counted, in lower or upper case, at every level, unless they contradict
the order of a list or mix conversations (`require_agreement`)."""

SPLIT, HELD_OUT = "split", re.compile(r"(test|val|valid|validation|dev|eval|held[_-]?out|holdout)([_-].*)?", re.IGNORECASE)
"""A neutral field of a row, and its values that say that the row is not for training: where no option accounts for it, these stop the build."""
NUMBERS = ("index", "idx")
TIMES = ("timestamp", "date", "created", "created_at")
"""Neutral fields that say which place an object has in its list: of any object, and of a message."""
TOGETHER = ("conversation_id", "prompt_id", "question_id")
"""Neutral fields that say to which conversation or prompt an object belongs."""
SPEAKERS = ("role", "from")
"""Fields that only messages have."""

MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns of media. A text loses its meaning without them."""

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

WEIGHTS = ("loss_weight", "weight", "loss_mask", "loss_scale")
FLAGS = ("train", "training", "loss")
"""Fields that say how much a row, a message or a part is trained: numbers, and true or false."""

STRETCHES = ("train_detail", "training_detail")
"""Fields that say which stretches of a message's text are trained (axolotl)."""

DECISIVE = frozenset(
    (
        *("reasoning_details", "history", "input", "context", "margin", "refusal", "prefix", "rejected_response", "rejected_messages"),
        *(*MEDIA, *REASONING, *CALLS, *TOOLS, TEMPLATE_OPTIONS, DOCUMENTS, SYSTEM_PROMPT, *LABELS, *WEIGHTS, *FLAGS, *STRETCHES),
    )
)
"""Fields that decide what is trained, or that are part of a prompt. A row is rejected where its schema has no place for one of them."""

_DECIDING = frozenset(
    (
        *("train", "training", "trained", "weight", "weights", "mask", "loss", "margin", "reward", "rewards", "label", "labels"),
        *("chosen", "rejected", "reject", "system", "persona", "instruction", "instructions", "prefix", "history", "tool", "tools"),
        *("function", "functions", "reasoning", "thinking", "thought", "thoughts", "image", "images", "video", "videos", "audio"),
        "audios",
    )
)
"""Words in names of fields that decide what is trained or asked."""


def decides(path: str) -> bool:
    """Whether the name of a field says that it decides what is trained or asked, such as ``system_prompt``, ``messages.train_detail`` or ``lossScale``.

    Such a field is never offered for `ignore`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.rpartition(".")[2])
    return not _DECIDING.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))


# Typed access to the values of a raw row.
#
# Rows are arbitrary JSON. Each of these functions returns a value of the type in its name, or rejects the record with ``missing_field`` or ``wrong_type``
# and the path of the value.

_JSON_TYPES = (
    (bool, "true or false"),
    (int, "an integer"),
    (float, "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    (list | tuple, "an array"),
)
"""Python types and their names in JSON. A bool is an int too, so it comes first."""


def wrong_type(value: object, where: str, needed: str) -> NoReturn:
    """Reject the record because of `value` at `where`, which is not what is `needed`."""
    actual = next((words for kind, words in _JSON_TYPES if isinstance(value, kind)), "null" if value is None else type(value).__name__)
    raise Refused("wrong_type", f"{where!r} is {actual}, needs {needed}")


def inside(where: str, key: str) -> str:
    """The path of field `key` of the object at `where`; ``""`` is the row itself."""
    return f"{where}.{key}" if where else key


def value_at(row: Mapping[str, Any], key: str, where: str = "") -> Any:
    """The value under `key`; absent and null are both rejected (``missing_field``)."""
    value = row.get(key)
    if value is None:
        if key in row:
            raise Refused("missing_field", f"{inside(where, key)!r} is null")
        place = f"{where} " if where else ""
        raise Refused("missing_field", f"{place}needs {key!r}; it has {', '.join(map(repr, row)) or 'no fields, ignored ones aside'}")
    return value


def as_text(value: object, where: str) -> str:
    """`value` as a string."""
    return value if isinstance(value, str) else wrong_type(value, where, "a string")


def as_mapping(value: object, where: str) -> Mapping[str, Any]:
    """`value` as a JSON object."""
    return value if isinstance(value, Mapping) else wrong_type(value, where, "an object")


def as_list(value: object, where: str, needed: str = "an array") -> Sequence[Any]:
    """`value` as a JSON array. `needed` names all allowed types for the error."""
    return value if isinstance(value, list | tuple) else wrong_type(value, where, needed)


def as_integer(value: object, where: str) -> int:
    """`value` as an integer. Booleans are rejected."""
    return value if isinstance(value, int) and not isinstance(value, bool) else wrong_type(value, where, "an integer")


def as_number(value: object, where: str) -> float:
    """`value` as a finite float. Booleans are rejected."""
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
    """The string under `key` of the object at `where`. Rejects a missing key, null and other types; with `required` false, missing and null give ``""``."""
    return "" if not required and row.get(key) is None else as_text(value_at(row, key, where), inside(where, key))


def objects(value: object, where: str, needed: str = "an array") -> Iterator[tuple[str, Row]]:
    """The path and the fields of each object of an array. `needed` names all allowed types for the error."""
    for number, element in enumerate(as_list(value, where, needed)):
        place = f"{where}[{number}]"
        yield place, as_mapping(element, place)


def texts_of(row: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """The strings under `keys`, all of them required."""
    return tuple(text_of(row, key) for key in keys)


def needed(text: str, reason: str, where: str) -> str:
    """`text`, rejected with `reason` where it is empty or only whitespace."""
    if not text.strip():
        raise Refused(reason, f"{where!r} is {'empty' if not text else 'only whitespace'}")
    return text


# Views: rows, and the objects inside them (messages, content parts, tool calls), that track which of their fields are read.
#
# A schema sees a view in place of the row. A view is a `dict` in every respect, so a user's schema need not know about it. Whatever takes every field
# (`items`, `values`, ``**row``, a copy, `json.dumps`, `repr`) counts as reading them all. Testing for a key reads nothing.

_get_item = dict.__getitem__
_set_item = dict.__setitem__


class Book(Struct):
    """The state that all views of one row share.

    Attributes:
        ignore: path of an object → its keys to hide, as if the row did not have them.
        dropped: paths of hidden fields with content.
        views: the objects of the row that a schema has reached.
        lists: those of each list of several objects.
        by_name: whether a field counts as read only when it is accessed by name: a user's function may loop over all of them.
    """

    ignore: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    views: list[View] = field(default_factory=list)
    lists: list[list[View]] = field(default_factory=list)
    by_name: bool = False


class View(dict[str, Any]):
    """One object of a row.

    Attributes:
        left: keys not read yet.
        path: dotted path of the object, without array positions: ``messages.tool_calls``; ``""`` for the row itself.
        book: the state of the row.
        listed: whether its keys were listed, so that an access by name may come from a loop over all of them.
    """

    __slots__ = ("book", "left", "listed", "path")

    left: set[str]
    path: str
    book: Book
    listed: bool

    def __getitem__(self, key: str) -> Any:
        if key in self.left:
            self._take(key, key)
        return _get_item(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        if key in self.left:
            self._take(key, key)
        elif key not in self:
            return default if (inner := self._inner(key)) is None else inner
        return super().get(key, default)

    def __missing__(self, key: str) -> Any:
        if (inner := self._inner(key)) is None:
            raise KeyError(key)
        return inner

    def _inner(self, path: str) -> Any:
        """The field at a dotted path, as options of schemas may name one; `None` without it."""
        if self.book.by_name or "." not in path:
            return None
        first, _, rest = path.partition(".")
        holder = self.get(first)
        return holder.get(rest) if isinstance(holder, View) else None

    def _take(self, key: str, shown: str, *, named: bool = True) -> None:
        if not self.book.by_name or (named and not self.listed):
            self.left.discard(key)
        value = _get_item(self, key)
        if type(value) in _READ and key != "bytes":
            _set_item(self, key, _with_views(value, join(self.path, shown), self.book))

    # without an `__iter__` of its own, Python copies a dict past `__getitem__`
    def __iter__(self) -> Iterator[str]:
        self.listed = True
        return super().__iter__()

    def keys(self) -> Any:
        self.listed = True
        return super().keys()

    def items(self) -> Any:
        # the keys of an object that is iterated are data, such as the names of turns; those of the row are its columns
        for key in sorted(self.left):  # a set has another order in each process
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
    """A field, or `None`, without counting it as read; whoever uses the value has to read it."""
    return dict.get(row, key) if isinstance(row, dict) else row.get(key)


def expand(row: View) -> None:
    """Replace all objects of a row by views without reading a field: for libraries that bypass a view's methods."""
    row.book.by_name = True
    for view in row.book.views:  # grows in this loop
        for key in dict.keys(view):
            _set_item(view, key, _with_views(_get_item(view, key), join(view.path, key), row.book))


def join(path: str, key: str) -> str:
    """The path of a field of the object at `path`."""
    return f"{path}.{key}" if path else key


_READ = frozenset({dict, list, bytes})


def _with_views(value: Any, path: str, book: Book) -> Any:
    """`value` as a schema reads it: objects as views, messages in columns as a list of them, text of a binary column as text."""
    if type(value) is dict:
        messages = None if book.by_name else _messages_of_columns(value)
        return _view(value, path, book) if messages is None else _with_views(messages, path, book)
    if type(value) is bytes and not book.by_name:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if type(value) is not list:
        return value
    elements = [_with_views(element, path, book) for element in value]
    if len(elements) > 1 and type(elements[0]) is View:
        book.lists.append(elements)
    return elements


def _messages_of_columns(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The messages of an object of lists with one entry a message, as `datasets` stores a sequence of objects; `None` for any other object."""
    if not any(type(value.get(key)) is list for key in SPEAKERS) or {*map(type, value.values())} != {list}:
        return None
    if len({*map(len, value.values())}) > 1:
        return None
    return [{key: inner for key, inner in zip(value, row, strict=True) if inner is not None} for row in zip(*value.values(), strict=True)]


def whole(value: Any) -> Any:
    """`value` as plain dicts, all of its fields read: for values that are passed on unchanged, such as the description of a tool."""
    if isinstance(value, View):
        return {key: whole(inner) for key, inner in value.items()}
    return [whole(element) for element in value] if type(value) is list else value


def has_content(value: object) -> bool:
    """Whether a field is anything but null, ``""``, ``[]`` or ``{}``."""
    return value is not None and value != "" and value != [] and value != {}


def unread(row: View) -> list[tuple[str, Any]]:
    """Path and value of each field with content that was not read.

    An object without any field that was read is one unread value, under the name of the field that holds it.
    """
    fields: list[tuple[str, Any]] = []
    for view in row.book.views:
        if not view.left:
            continue
        if view is not row and len(view.left) == len(view):
            unread_object = dict(super(View, view).items())
            if any(map(has_content, unread_object.values())):
                fields.append((view.path, unread_object))
            continue
        for key in view:
            if key in view.left and has_content(value := _get_item(view, key)):
                fields.append((join(view.path, key), value))
    return fields


def require_agreement(row: View) -> None:
    """Reject a row of which a neutral field that the schema did not read says something else than the row's own form.

    Raises:
        Refused: ``order_contradicted``, where numbers of the objects of a list (from 0 or 1 on), or times of messages, do not ascend;
            ``mixed_conversations``, where a field of `TOGETHER` has two values.
    """
    for elements in row.book.lists:
        for key in (*NUMBERS, *(TIMES if any(name in elements[0] for name in SPEAKERS) else ())):
            values = [
                _get_item(each, key) for each in elements if type(each) is View and key in each.left and has_content(_get_item(each, key))
            ]
            ordered = [] if len(values) < 2 else _as_order(values, key)
            if ordered != sorted(ordered):
                detail = f"{join(elements[0].path, key)!r} is {', '.join(map(str, values[:8]))}, which is not the order of the list"
                raise Refused("order_contradicted", f"{detail}. Put it in order, or list the field under `ignore`")
    for key in TOGETHER:
        held = (_get_item(view, key) for view in row.book.views if key in view.left)
        if len(named := dict.fromkeys(str(value) for value in held if has_content(value))) > 1:
            raise Refused("mixed_conversations", f"{key!r} is {' and '.join(map(repr, list(named)[:2]))} in one row")


def _as_order(values: list[Any], key: str) -> list[Any]:
    """Numbers or times that can be compared; empty for others."""
    if key in NUMBERS:  # others number the objects of a data set
        places = {*map(type, values)} == {int} and sorted(values) in ([*range(len(values))], [*range(1, len(values) + 1)])
        return values if places else []
    if {*map(type, values)} <= {int, float}:
        return values
    if {*map(type, values)} != {str}:
        return []
    try:
        times = [datetime.fromisoformat(value) for value in values]
        return times if len({time.tzinfo is None for time in times}) == 1 else []
    except ValueError:
        return []


# Loss weights in rows.


def loss_weight_of(message: Mapping[str, Any], where: str) -> float | None:
    """The loss weight that a message, a content part or a row sets; `None` where it sets none.

    Reads ``loss_weight`` (LLaMA-Factory v1), ``weight`` (OpenAI fine-tuning), ``loss_mask``, ``loss_scale`` (ms-swift), and the booleans ``train`` and
    ``training`` (Axolotl) and ``loss`` (ms-swift). Rejects a weight that `as_weight` does not accept (``bad_weight``) and two fields that disagree
    (``conflicting_weights``).
    """
    weights = {key: as_weight(message[key], inside(where, key)) for key in WEIGHTS if message.get(key) is not None}
    for key in FLAGS:
        if (flag := message.get(key)) is not None:
            weights[key] = float(flag) if isinstance(flag, bool) else wrong_type(flag, inside(where, key), "true or false")
    if len(set(weights.values())) > 1:
        detail = f"{where or 'the record'}: {', '.join(f'{key} = {value:g}' for key, value in weights.items())}"
        raise Refused("conflicting_weights", detail)
    return next(iter(weights.values()), None)


LEAST, MOST = 1e-30, 1e30
"""Bounds of weights, which are stored as float32: smaller ones would become 0, larger ones infinite."""


def as_weight(value: object, where: str) -> float:
    """`value` as a loss weight: 0, or a number from `LEAST` to `MOST`; true and false are 1 and 0."""
    weight = float(value) if isinstance(value, bool) else as_number(value, where)
    if weight != 0 and not LEAST <= weight <= MOST:
        raise Refused("bad_weight", f"{where!r} is {weight:g}; a loss weight is 0, or from {LEAST:g} to {MOST:g}")
    return weight


def weighted(turn: Turn, weight: float) -> Turn:
    """`turn` with `weight` on each region that has none from the row, such as 0 for an answer inside a prompt."""
    return changed(turn, regions=tuple(r if r.loss_weight is not None else changed(r, loss_weight=weight) for r in turn.regions))
