"""Forms: how a template writes chats of one shape, learned once from renders of invented texts, for both derivations of masks.

A plain chat's form depends on the roles of its turns, any other chat's on all but its texts. Frames are what the template writes around the texts:

    render   <|user|>\\nHi<|end|><|assistant|>\\nHello!<|end|>
    frames   <|user|>\\n  <|end|><|assistant|>\\n      <|end|>

Each derivation locates control tokens and trained texts in the chat of invented texts. For other texts the result must be the same,
shifted by their lengths. The lengths of real texts turn these places into those of real renders, for a whole block in a few additions.

A form holds for a chat if frames and texts, joined, equal its render. Callers have to check this.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Bools, Float32s, Ints
from prep_assets.stores.arrays import in_arrow
from prep_assets.text.chats import ChatColumns, Kind, Outline, as_json, outline_of
from prep_assets.text.spans import Prompt, RenderedBlock, bounds

T = TypeVar("T")

# Arguments of calls that a template lists by name: the layout is learned from the places of invented names and values in a render.

_NUMBER = 73
WRITERS: Mapping[str, Callable[[Any], str]] = {
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "python": str,
    "escaped": json.dumps,
    "tight": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
}
"""Ways to write a value that is not a string."""


class Listed(Struct, frozen=True):
    """How a template lists arguments.

    Attributes:
        between: the text between a name and its value.
        joint: the text between a value and the next name.
        around: the text before and after a string.
        within_json: whether a string is escaped as in JSON.
        ways: names of `WRITERS`, by type.
        empty: how an empty string is written.
    """

    between: str
    joint: str
    around: tuple[str, str]
    within_json: bool
    ways: Mapping[str, str]
    empty: str

    def __call__(self, arguments: str) -> str:
        """Return arguments, given as JSON, as the template lists them."""
        listed = []
        for name, value in json.loads(arguments).items():
            if isinstance(value, str):
                shown = (quoted(value) if self.within_json else value).join(self.around) if value else self.empty
            else:
                shown = WRITERS[self.ways[_type(value)]](value)
            listed.append(f"{name}{self.between}{shown}")
        return self.joint.join(listed)

    def holds(self, arguments: str) -> bool:
        """Whether no name and no string has white space at its ends, no name is empty, and every number is finite."""
        values = json.loads(arguments)
        texts = [*values, *(value for value in values.values() if isinstance(value, str))]
        odd = any(isinstance(value, float) and value - value != 0 for value in values.values())
        return not odd and "" not in values and all(text == text.strip() for text in texts)


def _type(value: Any) -> str:
    return type(value).__name__ + ("" if value or isinstance(value, bool | int | float) or value is None else " empty")


def listed(render: str, arguments: Mapping[str, Any]) -> tuple[int, int, Listed] | None:
    """Return start, end and layout of these arguments in a render; the first and the last are numbers. `None` where that is not certain."""
    names, number = list(arguments), str(_NUMBER)
    match = re.search(".*?".join(f"({re.escape(name)})" for name in names), render, re.DOTALL)
    if match is None or any(render.count(name) != 1 for name in names):
        return None
    edges = [match.span(at + 1) for at in range(len(names))]
    pieces = [render[left[1] : right[0]] for left, right in pairwise(edges)]
    between, _, joint = pieces[0].partition(number)
    ways: dict[str, str] = {}
    around, within_json, empty = ("", ""), False, ""
    for name, piece in zip(names, pieces, strict=False):
        value, shown = arguments[name], piece.removeprefix(between).removesuffix(joint)
        if value == "":
            empty = shown
        elif isinstance(value, str):
            as_written = next((spelling for spelling in (value, quoted(value)) if shown.count(spelling) == 1), None)
            if as_written is None:
                return None
            within_json = as_written != value
            before, _, after = shown.partition(as_written)
            around = before, after
        else:
            fitting = next((way for way, write in WRITERS.items() if write(value) == shown), None)
            if fitting is None or ways.setdefault(_type(value), fitting) != fitting:
                return None
    listing = Listed(between, joint, around, within_json, ways, empty)
    end = edges[-1][1] + len(between) + len(number)
    return (match.start(), end, listing) if listing(json.dumps(arguments)) == render[match.start() : end] else None


# Forms, learned from the render of a chat of invented texts.

Way = Callable[[str], str] | None
"""How a text is written; `None` for unchanged."""


def quoted(text: str) -> str:
    """Return a text escaped as in a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _respelled(text: str, how: Mapping[str, Any]) -> str:
    return json.dumps(json.loads(text), ensure_ascii=False, **how)


_OF_TEXT: tuple[Way, ...] = (None, quoted)
_OF_JSON: tuple[Way, ...] = (
    None,
    *(
        partial(_respelled, how={"indent": indent, "separators": separators, "sort_keys": in_order})
        for indent in (None, 4, 2)
        for separators in (None, (",", ":"))
        for in_order in (False, True)
        if indent or separators or in_order
    ),
)
_STRIPPED: Mapping[tuple[bool, bool], Way] = {
    (False, False): None,
    (True, False): str.lstrip,
    (False, True): str.rstrip,
    (True, True): str.strip,
}
"""By whether white space at the beginning and at the end is stripped."""
_BLANKS = ("\n \r\t", " \t\n", "\t\u3000\n ")
"""White space put around words; each common character is first and last in one. A template may strip all of it, or line breaks only."""
_SORTS = 'It’s 5 o\'clock;\n\n* {{a}} <b>&amp; "q" \\n 中文 😀'


def _nested(name: str) -> dict[str, Any]:
    return {"b": name, "a": {"d": [1, name], "c": "é"}}


def several(name: str) -> dict[str, Any]:
    """Return arguments of all types, with this name in every name and string; the first and the last are numbers."""
    values: tuple[Any, ...] = (_NUMBER, f'{name}"\n{name}', 0.25, None, False, True, [], {}, "", [7, "é"], {"d": ["ü", None]}, _NUMBER)
    return {f"{name}{letter}": value for letter, value in zip("abcdefghijkz", values, strict=True)}


def others(name: str) -> dict[str, Any]:
    """Return other arguments, in another order."""
    text = f"{name}{_SORTS}{name}"
    odd = [_SORTS, -1.5e-7, 10**20, True, None, {"": [], "a/b": {}, "\u2028\x7f": "'"}, text]
    values: tuple[Any, ...] = (text, {"Z": {"Y": 1.5}}, odd, {}, "", [], True, None, -2.5, False, 3)
    return {f"{name}{letter}": value for letter, value in zip("zbcdefghija", values, strict=True)}


class Layout(Struct, frozen=True, dict=True):
    """How a template writes chats of one form.

    Attributes:
        frames: what the template writes before, between and after the texts: one more than texts.
        order: index of the text in each gap between frames.
        ways: how the text in each gap is written.
        invented: texts of the chats that test derivations of the form. The render of the first gave the frames.
    """

    frames: tuple[str, ...]
    order: tuple[int, ...]
    ways: tuple[Way, ...]
    invented: tuple[tuple[str, ...], ...] = ()

    def shown(self, texts: Sequence[str]) -> list[str]:
        """Return the texts of a chat as rendered, in render order."""
        return [way(texts[number]) if way else texts[number] for number, way in zip(self.order, self.ways, strict=True)]

    def text(self, shown: Sequence[str]) -> str:
        """Return the render of a chat, from its texts as rendered."""
        return "".join(chain.from_iterable(zip(self.frames, shown, strict=False))) + self.frames[-1]

    @property
    def lists(self) -> bool:
        """Whether arguments are listed."""
        return any(isinstance(way, Listed) for way in self.ways)

    def holds(self, texts: Sequence[str]) -> bool:
        """Whether all listed arguments have a known layout."""
        return all(way.holds(texts[number]) for number, way in zip(self.order, self.ways, strict=True) if isinstance(way, Listed))

    def ends_of(self, shown: Sequence[str]) -> list[int]:
        """Return the number of characters of a render before each frame."""
        return [0, *accumulate(len(frame) + len(text) for frame, text in zip(self.frames, shown, strict=False))]

    @cached_property
    def _ends(self) -> list[int]:
        return self.ends_of(self.shown(self.invented[0]))

    def mover(self, shown: Sequence[str]) -> Callable[[int], int]:
        """Return a function from characters in the render of the first invented texts to this render; -1 inside a text."""
        ends, new = self._ends, self.ends_of(shown)

        def moved(at: int) -> int:
            gap = bisect_right(ends, at) - 1
            return new[gap] + at - ends[gap] if at - ends[gap] <= len(self.frames[gap]) else -1

        return moved

    def in_bytes(self, places: Sequence[int]) -> Places:
        """Convert characters in the render of the first invented texts to places in any render."""
        gaps = [bisect_right(self._ends, at) - 1 for at in places]
        after = [len(self.frames[gap][: at - self._ends[gap]].encode()) for gap, at in zip(gaps, places, strict=True)]
        return np.array(gaps, np.int64), np.array(after, np.int64)


Places = tuple[Ints, Ints]
"""For several places: number of texts that end before each, and bytes after these."""
Texts = tuple[str, ...]


def layout_of(kind: Kind, spaced: bool, write: Callable[[Texts], str]) -> Layout | None:
    """Learn how a template writes chats of a kind; `None` where it is not certain.

    Args:
        spaced: whether texts may have white space at their ends.
        write: texts → render of the chat with these texts.
    """
    outline = outline_of(kind)
    names = [f"Qz{number:05d}zQ" for number in range(outline.size)]

    def invented(value: Callable[[str], object], words: Sequence[str]) -> Texts:
        return tuple([as_json(value(name)) if at in outline.json else words[at] for at, name in enumerate(names)])

    words = [f'{name}"\n{name}' for name in names]
    for value in (_nested, several) if len(outline.json) > outline.tools else (_nested,):
        texts = invented(value, words)
        render = write(texts)
        text_places = _locate_texts(outline, names, texts, render, lists=value is several)
        if text_places:
            break
    else:
        return None
    starts, ends, order, ways = zip(*text_places, strict=True)
    frames = tuple([render[left:right] for left, right in zip((0, *ends), (*starts, None), strict=True)])
    words = [f"{name}{_SORTS}{name}" for name in names]
    if not spaced:
        return Layout(frames, order, ways, (texts, invented(others, words)))
    around = [tuple([f"{blank}{word}{blank}" for word in words]) for blank in _BLANKS]
    render, blank = write(around[0]), _BLANKS[0]
    places = [render.find(words[number]) for number in order]
    ways = tuple(
        _STRIPPED[not render[:at].endswith(before + blank), not render.startswith(blank + after, at + len(words[number]))]
        for at, number, before, after in zip(places, order, frames, frames[1:], strict=False)
    )
    return Layout(frames, order, ways, (texts, *around))


def _locate_texts(
    outline: Outline, names: Sequence[str], texts: Texts, render: str, *, lists: bool
) -> list[tuple[int, int, int, Way]] | None:
    """Return start, end, number and way of each text, in render order; `None` where a text occurs twice,
    or it is not certain how it is written."""
    text_places: list[tuple[int, int, int, Way]] = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        if name not in render and number >= outline.tools:
            continue  # reasoning, names of tools and ids may be left out
        is_json = number in outline.json
        for way in _OF_JSON if is_json else _OF_TEXT:
            shown = way(text) if way else text
            if render.count(shown) == 1 and render.count(name) == shown.count(name):
                start = render.index(shown)
                text_places.append((start, start + len(shown), number, way))
                break
        else:
            place = listed(render, json.loads(text)) if lists and is_json and number >= outline.tools else None
            if place is None or render.count(name) != render[place[0] : place[1]].count(name):
                return None
            start, end, listing = place
            text_places.append((start, end, number, listing))
    return sorted(text_places, key=lambda place: place[0])


def agreed(layout: Layout, answer: Callable[[Texts], T], moved: Callable[[T, Layout, Sequence[str]], T]) -> T | None:
    """Return the derivation of the first invented texts, if that of all others agrees; else `None`.

    Args:
        answer: texts → derivation of the chat with these texts.
        moved: derivation of the first chat, layout, rendered texts of another chat → derivation moved to that chat.
    """
    answers = list(map(answer, layout.invented))
    return answers[0] if [moved(answers[0], layout, layout.shown(texts)) for texts in layout.invented] == answers else None


# Forms compiled to places in bytes, the cache of frequent forms, and the renders of many chats.


class CompiledForm(Struct, Generic[T], frozen=True, eq=False, weakref=True):
    """Places in the renders of one form, by one derivation.

    Attributes:
        layout: how the template writes such chats.
        derived: the derivation of the first invented texts.
        frames: its frames in UTF-8.
        controls: start and end of each control token.
        tokens: int64[c], their ids.
        breaks: where the loss weight changes; the first is the beginning.
        weights: float32[b], the weight from there on.
        prompts: start and end of each text that may be shortened.
        roles: the role of each of these texts.
    """

    layout: Layout
    derived: T
    frames: tuple[bytes, ...]
    controls: Places
    tokens: Ints
    breaks: Places
    weights: Float32s
    prompts: Places
    roles: tuple[str, ...]

    @classmethod
    def of(
        cls,
        layout: Layout,
        derived: T,
        controls: Sequence[tuple[int, int, int]],
        steps: Sequence[tuple[int, float]],
        prompts: Sequence[tuple[int, int, str]] = (),
    ) -> CompiledForm[T]:
        """Convert characters in the render of the first invented texts.

        Args:
            controls: start, end and id of each control token.
            steps: where the loss weight changes, and the new weight.
            prompts: start, end and role of each text that may be shortened.
        """
        return cls(
            layout,
            derived,
            tuple([frame.encode() for frame in layout.frames]),
            layout.in_bytes([at for start, end, _ in controls for at in (start, end)]),
            np.array([token for _, _, token in controls], np.int64),
            layout.in_bytes([at for at, _ in steps]),
            np.array([weight for _, weight in steps], np.float32),
            layout.in_bytes([at for start, end, _ in prompts for at in (start, end)]),
            tuple([role for _, _, role in prompts]),
        )


LEARN_AFTER = 3
"""Chats of a form before it is learned: learning costs as much as so many chats one by one."""
MOST_KNOWN = 4096
"""Most forms that are counted, and (`MOST_TEXTS`) most texts of all cached forms, each of which takes some 2 KB."""
MOST_TEXTS = 1 << 15


class FormCache(Generic[T]):
    """The forms of one derivation. Callers count the chats of each form, so that frequent ones are learned."""

    def __init__(self, learn: Callable[[Kind, bool], CompiledForm[T] | None], *, plain_at_once: bool) -> None:
        """`learn`: kind, and whether texts may have white space at their ends → form.

        Args:
            plain_at_once: whether forms of plain chats are learned at the first chat.
        """
        self._learn, self._plain_at_once = learn, plain_at_once
        self._forms: dict[tuple[Kind, bool], CompiledForm[T] | None] = {}
        self._seen = Counter[int]()
        self._texts = 0

    def of(self, kind: Kind, spaced: bool, count: int = 0, *, at_once: bool = False) -> CompiledForm[T] | None:
        """Return a form after `count` more of its chats. The cache is cleared when it is full."""
        if len(self._seen) >= MOST_KNOWN or self._texts >= MOST_TEXTS:
            self._texts = 0
            self._seen.clear()
            self._forms.clear()
        key = hash(kind)  # the shape of a long chat takes memory; of one that comes once nothing else is kept
        self._seen[key] += count
        at_once |= self._plain_at_once and not isinstance(kind, Outline)
        if (kind, spaced) not in self._forms and (at_once or self._seen[key] >= LEARN_AFTER):
            self._texts += outline_of(kind).size
            self._forms[kind, spaced] = self._learn(kind, spaced)
        return self._forms.get((kind, spaced))

    def assign(self, chats: ChatColumns, allowed: Bools, spaced: Bools) -> tuple[list[CompiledForm[T]], Ints]:
        """Return the known forms of chats, and int64[n], the number of that of each chat, -1 for a chat without one.

        Args:
            allowed: bool[n], which chats may have a form.
            spaced: bool[n], which chats have a text with white space at its ends.
        """
        forms, numbers = list[CompiledForm[T]](), np.full(len(chats), -1)
        keys = 2 * chats.kind + spaced
        counts = np.bincount(chats.kind[chats.kind >= 0], minlength=len(chats.kinds)).tolist()
        for key in np.flatnonzero(np.bincount(keys[allowed & (chats.kind >= 0)])).tolist():
            count, counts[key >> 1] = counts[key >> 1], 0
            form = self.of(chats.kinds[key >> 1], bool(key & 1), count)
            if form is not None:
                rows = np.flatnonzero(allowed & (keys == key))
                numbers[[row for row in rows.tolist() if form.layout.holds(chats.own(row))] if form.layout.lists else rows] = len(forms)
                forms.append(form)
        return forms, numbers


def render_forms(chats: ChatColumns, forms: Sequence[CompiledForm[Any]], numbers: Ints) -> RenderedBlock:
    """Return the renders of the chats with a form (see `FormCache.assign`), of which there must be at least one.

    A render is a frame, a text, a frame, …: pieces, taken from all frames and all texts. What is 2 bytes into the second frame of a render is 2 bytes behind
    the beginning of its third piece.
    """
    import pyarrow as pa

    rows, texts, text_bounds = np.flatnonzero(numbers >= 0), chats.data, chats.bounds
    numbers = numbers[rows]
    if any(any(form.layout.ways) for form in forms):
        texts, text_bounds = _as_rendered(chats, forms, rows, numbers)
    frames = [frame for form in forms for frame in form.frames]
    edges = np.concatenate([bounds(list(map(len, frames)))[:-1], text_bounds + sum(map(len, frames))])
    data = b"".join([*frames, texts])
    first, breaks_of = (bounds(np.array([count(form) for form in forms])[numbers]) for count in (_pieces, lambda form: len(form.weights)))
    pieces, before = np.empty(first[-1], np.int64), 0
    members = [np.flatnonzero(numbers == number) for number in range(len(forms))]
    for form, own in zip(forms, members, strict=True):
        at = first[own][:, None] + np.arange(_pieces(form))
        pieces[at[:, 0::2]] = before + np.arange(len(form.frames))
        pieces[at[:, 1::2]] = len(frames) + chats.first[rows[own]][:, None] + np.array(form.layout.order, np.int64)
        before += len(form.frames)
    all_pieces = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    taken = all_pieces.take(in_arrow(pieces))
    begins = np.frombuffer(taken.buffers()[1], np.int64, len(pieces) + 1)
    controls, prompts = list[tuple[Ints, Ints, Ints]](), dict[int, list[Prompt]]()
    breaks, weights = np.empty(breaks_of[-1], np.int64), np.empty(breaks_of[-1], np.float32)
    for form, own in zip(forms, members, strict=True):
        frame = begins[first[own][:, None] + np.arange(0, _pieces(form), 2)]
        tokens = frame[:, form.controls[0]] + form.controls[1]
        controls.append((tokens[:, 0::2].ravel(), tokens[:, 1::2].ravel(), np.tile(form.tokens, len(own))))
        at = breaks_of[own][:, None] + np.arange(len(form.weights))
        breaks[at], weights[at] = frame[:, form.breaks[0]] + form.breaks[1], form.weights
        for row, places in zip(own.tolist(), (frame[:, form.prompts[0]] + form.prompts[1]).tolist() if form.roles else (), strict=False):
            prompts[row] = list(map(Prompt, places[0::2], places[1::2], form.roles))
    starts, ends, ids = map(np.concatenate, zip(*controls, strict=True))
    return RenderedBlock.of(taken.buffers()[2].to_pybytes(), begins[first], (starts, ends, ids), breaks, weights, prompts)


def _pieces(form: CompiledForm[Any]) -> int:
    return 2 * len(form.frames) - 1


def _as_rendered(chats: ChatColumns, forms: Sequence[CompiledForm[Any]], rows: Ints, numbers: Ints) -> tuple[bytes, Ints]:
    """Return the texts of chats as their layouts write them, in UTF-8, and their bounds."""
    texts = list(chats.texts)
    for low, number in zip(chats.first[rows].tolist(), numbers.tolist(), strict=True):
        for text, way in zip(forms[number].layout.order, forms[number].layout.ways, strict=True):
            if way:
                texts[low + text] = way(texts[low + text])
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(encoded), bounds(list(map(len, encoded)))
