"""How a template writes the chats of one form: learned once, from renders of invented texts, for both derivations of masks.

The form of a plain chat is the roles of its turns, of another all of it but its texts. What a template writes before, between and after the texts are frames:

    render   <|user|>\\nHi<|end|><|assistant|>\\nHello!<|end|>
    frames   <|user|>\\n  <|end|><|assistant|>\\n      <|end|>

Where control tokens and trained texts stand among them is for each derivation to say, of the chat of invented texts. What it says of others must be the same,
moved by the lengths of their texts. With the lengths of real texts these places become those of real renders, for a whole block in a few additions.

A chat has a form if its texts, put between the frames, are what the template makes of it. Whoever uses a form has to look.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.stores.arrays import in_arrow
from prep_assets.text.chats import Bools, ChatColumns, Ints, Kind, Outline, as_json, outline_of
from prep_assets.text.spans import Cuts, Prompt, bounds

T = TypeVar("T")

# Arguments of calls that a template lists, each with its name: how it does so is found where names and values of invented ones stand in a render.

_NUMBER = 73
WRITERS: Mapping[str, Callable[[Any], str]] = {
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "python": str,
    "escaped": json.dumps,
    "tight": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
}
"""Ways to write a value that is no text."""


@dataclass(frozen=True)
class Listed:
    """How arguments are listed.

    Attributes:
        between: what stands between a name and its value.
        joint: what stands between a value and the next name.
        around: what stands before and after a text.
        within_json: whether a text is written as in a string of JSON.
        ways: names of `WRITERS`, by type.
        empty: how an empty text is written.
    """

    between: str
    joint: str
    around: tuple[str, str]
    within_json: bool
    ways: Mapping[str, str]
    empty: str

    def __call__(self, arguments: str) -> str:
        """Arguments, given as JSON, as they are listed."""
        listed = []
        for name, value in json.loads(arguments).items():
            if isinstance(value, str):
                shown = (quoted(value) if self.within_json else value).join(self.around) if value else self.empty
            else:
                shown = WRITERS[self.ways[_type(value)]](value)
            listed.append(f"{name}{self.between}{shown}")
        return self.joint.join(listed)

    def holds(self, arguments: str) -> bool:
        """Whether no name and no text has white space at its ends, no name is empty, and each number is one."""
        given = json.loads(arguments)
        texts = [*given, *(value for value in given.values() if isinstance(value, str))]
        odd = any(isinstance(value, float) and value - value != 0 for value in given.values())
        return not odd and "" not in given and all(text == text.strip() for text in texts)


def _type(value: Any) -> str:
    return type(value).__name__ + ("" if value or isinstance(value, bool | int | float) or value is None else " empty")


def listed(render: str, given: Mapping[str, Any]) -> tuple[int, int, Listed] | None:
    """Where a render lists these arguments, of which the first and the last are numbers, and how; `None` where that is not certain."""
    names, number = list(given), str(_NUMBER)
    found = re.search(".*?".join(f"({re.escape(name)})" for name in names), render, re.DOTALL)
    if found is None or any(render.count(name) != 1 for name in names):
        return None
    edges = [found.span(at + 1) for at in range(len(names))]
    pieces = [render[left[1] : right[0]] for left, right in pairwise(edges)]
    between, _, joint = pieces[0].partition(number)
    ways: dict[str, str] = {}
    around, within_json, empty = ("", ""), False, ""
    for name, piece in zip(names, pieces, strict=False):
        value, shown = given[name], piece.removeprefix(between).removesuffix(joint)
        if value == "":
            empty = shown
        elif isinstance(value, str):
            as_written = next((each for each in (value, quoted(value)) if shown.count(each) == 1), None)
            if as_written is None:
                return None
            within_json = as_written != value
            before, _, after = shown.partition(as_written)
            around = before, after
        else:
            fitting = next((way for way, write in WRITERS.items() if write(value) == shown), None)
            if fitting is None or ways.setdefault(_type(value), fitting) != fitting:
                return None
    how = Listed(between, joint, around, within_json, ways, empty)
    end = edges[-1][1] + len(between) + len(number)
    return (found.start(), end, how) if how(json.dumps(given)) == render[found.start() : end] else None


# Forms: found in the render of a chat of invented texts.

Way = Callable[[str], str] | None
"""How a text is written; `None` where it is written as it is."""


def quoted(text: str) -> str:
    """A text as it stands in a string of JSON."""
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
"""By whether white space at the beginning and at the end is left away."""
_BLANKS = ("\n \r\t", " \t\n", "\t\u3000\n ")
"""White space put around words: each of the common characters stands first and last in one. A template may strip all of it, or line breaks only."""
_SORTS = 'It’s 5 o\'clock;\n\n* {{a}} <b>&amp; "q" \\n 中文 😀'


def _nested(name: str) -> dict[str, Any]:
    return {"b": name, "a": {"d": [1, name], "c": "é"}}


def several(name: str) -> dict[str, Any]:
    """Arguments of all types, with this name in all that is a name or a text; the first and the last are numbers."""
    values: tuple[Any, ...] = (_NUMBER, f'{name}"\n{name}', 0.25, None, False, True, [], {}, "", [7, "é"], {"d": ["ü", None]}, _NUMBER)
    return {f"{name}{letter}": value for letter, value in zip("abcdefghijkz", values, strict=True)}


def others(name: str) -> dict[str, Any]:
    """Others, in another order."""
    text = f"{name}{_SORTS}{name}"
    odd = [_SORTS, -1.5e-7, 10**20, True, None, {"": [], "a/b": {}, "\u2028\x7f": "'"}, text]
    values: tuple[Any, ...] = (text, {"Z": {"Y": 1.5}}, odd, {}, "", [], True, None, -2.5, False, 3)
    return {f"{name}{letter}": value for letter, value in zip("zbcdefghija", values, strict=True)}


@dataclass(frozen=True)
class Form:
    """How a template writes chats of one form.

    Attributes:
        frames: what stands before the first text, between neighbours and after the last: one more than texts.
        order: which text of a chat stands in each gap between frames.
        ways: how each of these is written.
        invented: the texts of chats by which what is said of the form is proven. The render of the first of them gave the frames.
    """

    frames: tuple[str, ...]
    order: tuple[int, ...]
    ways: tuple[Way, ...]
    invented: tuple[tuple[str, ...], ...] = ()

    def shown(self, texts: Sequence[str]) -> list[str]:
        """The texts of a chat as its render shows them, in its order."""
        return [way(texts[number]) if way else texts[number] for number, way in zip(self.order, self.ways, strict=True)]

    def text(self, shown: Sequence[str]) -> str:
        """The render of a chat, from its texts as they stand there."""
        return "".join(chain.from_iterable(zip(self.frames, shown, strict=False))) + self.frames[-1]

    @property
    def lists(self) -> bool:
        """Whether arguments are listed."""
        return any(isinstance(way, Listed) for way in self.ways)

    def holds(self, texts: Sequence[str]) -> bool:
        """Whether arguments that are listed are of the sorts that are known."""
        return all(way.holds(texts[number]) for number, way in zip(self.order, self.ways, strict=True) if isinstance(way, Listed))

    def ends_of(self, shown: Sequence[str]) -> list[int]:
        """Characters of a render before each frame."""
        return [0, *accumulate(len(frame) + len(text) for frame, text in zip(self.frames, shown, strict=False))]

    @cached_property
    def _ends(self) -> list[int]:
        return self.ends_of(self.shown(self.invented[0]))

    def mover(self, shown: Sequence[str]) -> Callable[[int], int]:
        """What gives the character of a render for a character of that of the first invented texts; -1 for one amid a text."""
        ends, new = self._ends, self.ends_of(shown)

        def moved(at: int) -> int:
            gap = bisect_right(ends, at) - 1
            return new[gap] + at - ends[gap] if at - ends[gap] <= len(self.frames[gap]) else -1

        return moved

    def in_bytes(self, places: Sequence[int]) -> Places:
        """Characters of the render of the first invented texts as places of all renders."""
        gaps = [bisect_right(self._ends, at) - 1 for at in places]
        after = [len(self.frames[gap][: at - self._ends[gap]].encode()) for gap, at in zip(gaps, places, strict=True)]
        return np.array(gaps, np.int64), np.array(after, np.int64)


Places = tuple[Ints, Ints]
"""For each of several places: how many texts end before it, and bytes after these."""
Texts = tuple[str, ...]


def form_of(kind: Kind, spaced: bool, write: Callable[[Texts], str]) -> Form | None:
    """The form of chats of a kind; `None` where it is not certain.

    Args:
        spaced: whether texts may have white space at their ends.
        write: the render of the chat that has these texts.
    """
    outline = outline_of(kind)
    names = [f"Qz{number:05d}zQ" for number in range(outline.size)]

    def invented(value: Callable[[str], object], words: Sequence[str]) -> Texts:
        return tuple([as_json(value(name)) if at in outline.json else words[at] for at, name in enumerate(names)])

    words = [f'{name}"\n{name}' for name in names]
    for value in (_nested, several) if len(outline.json) > outline.tools else (_nested,):
        texts = invented(value, words)
        render = write(texts)
        found = _found(outline, names, texts, render, lists=value is several)
        if found:
            break
    else:
        return None
    starts, ends, order, ways = zip(*found, strict=True)
    frames = tuple([render[left:right] for left, right in zip((0, *ends), (*starts, None), strict=True)])
    words = [f"{name}{_SORTS}{name}" for name in names]
    if not spaced:
        return Form(frames, order, ways, (texts, invented(others, words)))
    around = [tuple([f"{blank}{word}{blank}" for word in words]) for blank in _BLANKS]
    render, blank = write(around[0]), _BLANKS[0]
    places = [render.find(words[number]) for number in order]
    ways = tuple(
        _STRIPPED[not render[:at].endswith(before + blank), not render.startswith(blank + after, at + len(words[number]))]
        for at, number, before, after in zip(places, order, frames, frames[1:], strict=False)
    )
    return Form(frames, order, ways, (texts, *around))


def _found(outline: Outline, names: Sequence[str], texts: Texts, render: str, *, lists: bool) -> list[tuple[int, int, int, Way]] | None:
    """Where the texts stand in a render (start, end), their numbers, and how they are written, in the order of the render; `None` where one stands there twice,
    or it is not certain how it is written."""
    found: list[tuple[int, int, int, Way]] = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        if name not in render and number >= outline.tools:
            continue  # reasoning, names of tools and ids may be left out
        is_json = number in outline.json
        for way in _OF_JSON if is_json else _OF_TEXT:
            shown = way(text) if way else text
            if render.count(shown) == 1 and render.count(name) == shown.count(name):
                start = render.index(shown)
                found.append((start, start + len(shown), number, way))
                break
        else:
            place = listed(render, json.loads(text)) if lists and is_json and number >= outline.tools else None
            if place is None or render.count(name) != render[place[0] : place[1]].count(name):
                return None
            start, end, how = place
            found.append((start, end, number, how))
    return sorted(found, key=lambda place: place[0])


def agreed(form: Form, answer: Callable[[Texts], T], moved: Callable[[T, Form, Sequence[str]], T]) -> T | None:
    """What a derivation says of the first invented texts, if it says the same of all others.

    Args:
        answer: what it says of the chat that has these texts.
        moved: what is said of the first chat, moved to where it stands in that of other texts as a render shows them.
    """
    words = answer(form.invented[0])
    return words if all(moved(words, form, form.shown(texts)) == answer(texts) for texts in form.invented) else None


# What a derivation says of a form, in bytes, and the forms that come often.


@dataclass(frozen=True, eq=False)
class Located(Generic[T]):
    """Where things stand in the renders of one form, as one derivation says.

    Attributes:
        form: the form.
        words: what it says of the first invented texts.
        frames: those of the form in UTF-8.
        controls: where each control token starts and ends.
        tokens: int64[c], their ids.
        breaks: where the loss weight changes; the first is the beginning.
        weights: float32[b], the weight from there on.
        prompts: where each text that may be shortened starts and ends.
        roles: whose each of these is.
    """

    form: Form
    words: T
    frames: tuple[bytes, ...]
    controls: Places
    tokens: Ints
    breaks: Places
    weights: npt.NDArray[np.float32]
    prompts: Places
    roles: tuple[str, ...]

    @classmethod
    def of(
        cls,
        form: Form,
        words: T,
        controls: Sequence[tuple[int, int, int]],
        steps: Sequence[tuple[int, float]],
        prompts: Sequence[tuple[int, int, str]] = (),
    ) -> Located[T]:
        """From the characters of the render of the first invented texts.

        Args:
            controls: start, end and id of each control token.
            steps: where the loss weight changes, and to what.
            prompts: start, end and role of each text that may be shortened.
        """
        return cls(
            form,
            words,
            tuple([frame.encode() for frame in form.frames]),
            form.in_bytes([at for start, end, _ in controls for at in (start, end)]),
            np.array([token for _, _, token in controls], np.int64),
            form.in_bytes([at for at, _ in steps]),
            np.array([weight for _, weight in steps], np.float32),
            form.in_bytes([at for start, end, _ in prompts for at in (start, end)]),
            tuple([role for _, _, role in prompts]),
        )


LEARN_AFTER = 3
"""Chats of a form before it is learned, which takes the time of as many that are taken one by one."""
MOST_KNOWN = 4096
"""Forms that are counted, and texts of all forms that are remembered, each of which takes some 2 KB."""
MOST_TEXTS = 1 << 15


class Learned(Generic[T]):
    """What one derivation knows of forms. Whoever asks counts the chats of each form, so that those that come often are learned."""

    def __init__(self, learn: Callable[[Kind, bool], Located[T] | None], *, plain_at_once: bool) -> None:
        """With what learns a form, whose texts may have white space at their ends or not.

        Args:
            plain_at_once: whether plain chats that come once have a form as well.
        """
        self._learn, self._plain_at_once = learn, plain_at_once
        self._forms: dict[tuple[Kind, bool], Located[T] | None] = {}
        self._seen = Counter[int]()
        self._texts = 0

    def of(self, kind: Kind, spaced: bool, count: int = 0, *, at_once: bool = False) -> Located[T] | None:
        """What is said of a form, after `count` more of its chats. All forms are forgotten where there are too many."""
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

    def known(self, chats: ChatColumns, allowed: Bools, spaced: Bools) -> Known[T]:
        """Which chats have a form.

        Args:
            allowed: bool[n], which may have one.
            spaced: bool[n], which have a text with white space at its ends.
        """
        located, form, altered = list[Located[T]](), np.full(len(chats), -1), np.zeros(len(chats), bool)
        keys = 2 * chats.kind + spaced
        counts = np.bincount(chats.kind[chats.kind >= 0], minlength=len(chats.kinds)).tolist()
        for key in np.flatnonzero(np.bincount(keys[allowed & (chats.kind >= 0)])).tolist():
            count, counts[key >> 1] = counts[key >> 1], 0
            found = self.of(chats.kinds[key >> 1], bool(key & 1), count)
            if found is not None:
                own = np.flatnonzero(allowed & (keys == key))
                if found.form.lists:
                    own = own[[found.form.holds(chats.own(number)) for number in own.tolist()]]
                form[own], altered[own] = len(located), any(found.form.ways)
                located.append(found)
        return Known(located, form, altered)


@dataclass(frozen=True, slots=True)
class Laid:
    """The renders of n chats, one after the other.

    Attributes:
        rows: int64[n], which chats they are of those given.
        form: int64[n], which form each has.
        data: all of them in UTF-8.
        base: int64[n + 1], where each begins, and the end.
        items: int64[i, 3], start, end, and the id of a control token or -1 for ordinary text, in order.
        breaks: int64[b], where the loss weight changes, ascending.
        weights: float32[b], the weight from there on.
        prompts: by number of a render, the texts that may be shortened.
    """

    rows: Ints
    form: Ints
    data: bytes
    base: Ints
    items: Ints
    breaks: Ints
    weights: npt.NDArray[np.float32]
    prompts: dict[int, list[Prompt]]

    def render(self, number: int) -> bytes:
        """One of the renders."""
        return self.data[self.base[number] : self.base[number + 1]]

    def cuts(self) -> Cuts:
        """The same as a batch to be tokenized."""
        import pyarrow as pa

        starts, ends, token = self.items.T
        ordinary = token < 0
        edges = np.append(starts, len(self.data))
        pieces = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(edges), pa.py_buffer(self.data))
        return Cuts(
            pieces.take(in_arrow(np.flatnonzero(ordinary))).to_pylist(),
            np.isin(starts[ordinary], self.base),
            token,
            ends,
            np.searchsorted(starts, self.base),
            self.base,
            self.breaks,
            self.weights,
            self.prompts,
            [],
            lambda number: self.render(number).decode(),
        )


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """Of which chats a form is known.

    Attributes:
        located: what is known of the forms.
        form: int64[n], which of these each has; -1 for one that is taken by itself.
        altered: of which the render may not show the texts as they are.
    """

    located: Sequence[Located[T]]
    form: Ints
    altered: Bools

    def lay(self, chats: ChatColumns) -> Laid:
        """The renders of the chats that have a form, as their forms say; at least one has."""
        import pyarrow as pa

        rows = np.flatnonzero(self.form >= 0)
        form, altered = self.form[rows], self.altered[rows]
        gaps = np.array([len(each.form.order) for each in self.located])[form]
        # the pieces of a render are a frame, a text, a frame, …: each is one of all frames, of all texts, or of those that renders alter
        begins = bounds(2 * gaps + 1)
        pieces = np.empty(begins[-1], np.int64)
        frames = [frame for each in self.located for frame in each.frames]
        instead = [
            text.encode() for at in np.flatnonzero(altered).tolist() for text in self.located[form[at]].form.shown(chats.own(int(rows[at])))
        ]
        first_altered = np.cumsum(np.where(altered, gaps, 0)) - gaps + len(frames) + len(chats.bounds) - 1
        groups = [(each, np.flatnonzero(form == number)) for number, each in enumerate(self.located)]
        before = 0
        for each, own in groups:
            at = begins[own][:, None] + np.arange(2 * len(each.form.order) + 1)
            as_it_is = len(frames) + chats.first[rows[own]][:, None] + np.array(each.form.order)
            pieces[at[:, 0::2]] = before + np.arange(len(each.frames))
            pieces[at[:, 1::2]] = np.where(altered[own][:, None], first_altered[own][:, None] + np.arange(len(each.form.order)), as_it_is)
            before += len(each.frames)
        edges = bounds(np.concatenate([list(map(len, frames)), np.diff(chats.bounds), list(map(len, instead))]).astype(np.int64))
        data = b"".join([*frames, chats.data, *instead])
        every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
        taken = every.take(in_arrow(pieces))
        places = np.frombuffer(taken.buffers()[1], np.int64, len(pieces) + 1)
        base = places[begins]
        prompts: dict[int, list[Prompt]] = {}
        items, breaks, weights = list[Ints](), list[Ints](), list[npt.NDArray[np.float32]]()
        for each, own in groups:
            # where the frames of each render begin
            framed = places[begins[own][:, None] + np.arange(0, 2 * len(each.frames), 2)]
            edges = framed[:, each.controls[0]] + each.controls[1]
            low, high = (
                np.concatenate([base[own][:, None], edges[:, 1::2]], axis=1),
                np.concatenate([edges[:, 0::2], base[own + 1][:, None]], axis=1),
            )
            ordinary = np.stack([low.ravel(), high.ravel(), np.full(low.size, -1)], axis=1)
            items += [ordinary[ordinary[:, 0] < ordinary[:, 1]]]
            items += [np.stack([edges[:, 0::2].ravel(), edges[:, 1::2].ravel(), np.tile(each.tokens, len(own))], axis=1)]
            breaks.append((framed[:, each.breaks[0]] + each.breaks[1]).ravel())
            weights.append(np.tile(each.weights, len(own)))
            if each.roles:
                for row, shortened in zip(own.tolist(), (framed[:, each.prompts[0]] + each.prompts[1]).tolist(), strict=True):
                    prompts[row] = list(map(Prompt, shortened[::2], shortened[1::2], each.roles))
        listed, whose = np.concatenate(items), np.concatenate([np.repeat(own, len(each.weights)) for each, own in groups])
        order = np.argsort(whose, kind="stable")  # where one render ends and the next one begins, both may have a break
        ordered = listed[np.argsort(listed[:, 0])]
        steps = np.concatenate(breaks)[order]
        return Laid(rows, form, taken.buffers()[2].to_pybytes(), base, ordered, steps, np.concatenate(weights)[order], prompts)
