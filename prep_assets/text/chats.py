"""Chats in columns: what each is beside its texts, and the texts of many as bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.samples import IMAGE, TEXT, TOOL_CALL, PlainChat, Region, Sample, Turn

# Samples with tools, calls or reasoning, without their texts: what is left is the same for many of them, and decides what they must become.

MOST_BLANKS = 16
"""Characters of white space at an end of a text that are a part of an outline."""
as_json = json.JSONEncoder(ensure_ascii=False).encode

_Region = tuple[str, float | None, tuple[str, ...]]
"""Kind, weight, and a pattern: the white space around a text, or all of one of nothing else; of a call which of its parts are texts."""
_Turn = tuple[str, bool, bool, tuple[_Region, ...]]
"""Role, whether it has a name, whether it names a call, and its regions."""


class Outline(NamedTuple):
    """A sample without its texts.

    Attributes:
        size: how many texts there are.
        json: which of them are JSON: tools, which come first, and the arguments of calls.
        tools: how many tools there are.
        turns: the rest of its turns. The texts of each are its name, the id of the call that it answers, and those of its regions.
    """

    size: int
    json: tuple[int, ...]
    tools: int
    turns: tuple[_Turn, ...]

    def sample(self, texts: Iterable[str]) -> Sample:
        """The sample that has these texts."""
        left = iter(texts)
        tools = tuple([json.loads(next(left)) for _ in range(self.tools)])
        return Sample(tuple([_filled(turn, left) for turn in self.turns]), tools)


class OutlinedSample(Struct, frozen=True):
    """A sample as its outline and its texts, of which none is blank, or has white space at its ends."""

    form: Outline
    texts: tuple[str, ...]


Chat = PlainChat | OutlinedSample
Kind = tuple[str, ...] | Outline
"""The roles of a plain chat, or the outline of another one."""
Read = Callable[[Region], Mapping[str, Any]]


def outline_of(kind: Kind) -> Outline:
    """The outline of chats of a kind; that of plain ones takes any texts."""
    if isinstance(kind, Outline):
        return kind
    return Outline(len(kind), (), 0, tuple([(role, False, False, ((TEXT, None, ("", "")),)) for role in kind]))


def plain_chat(sample: Sample) -> PlainChat | None:
    """A sample of one text a turn with nothing beside, in columns; `None` for any other."""
    if sample != Sample(sample.turns):
        return None
    texts: list[str] = []
    for turn in sample.turns:
        if len(turn.regions) != 1 or turn.name is not None or turn.tool_call_id is not None:
            return None
        region = turn.regions[0]
        if region.kind != TEXT or region.loss_weight is not None or region.drop or not region.attend:
            return None
        texts.append(region.text)
    return PlainChat(tuple([turn.role for turn in sample.turns]), tuple(texts))


def outlined(sample: Sample, read: Read = lambda region: json.loads(region.text)) -> OutlinedSample | None:
    """The outline and the texts of a sample; `None` where something in it is neither, such as an image, or an empty tool.

    Args:
        read: gives the call of a region.
    """
    if sample != Sample(sample.turns, sample.tools) or not all(sample.tools):
        return None
    try:
        texts = [as_json(tool) for tool in sample.tools]
        listed = [*range(len(texts))]
        turns = tuple([_outlined(turn, texts, listed, read) for turn in sample.turns])
    except (_Other, ValueError, KeyError, TypeError, RecursionError):
        return None
    return OutlinedSample(Outline(len(texts), tuple(listed), len(sample.tools), turns), tuple(texts)) if texts else None


class _Other(Exception):
    """Something that is neither a part of an outline nor a text."""


def _outlined(turn: Turn, texts: list[str], listed: list[int], read: Read) -> _Turn:
    texts += [_bare(own) for own in (turn.name, turn.tool_call_id) if own is not None]
    regions = tuple([(each.kind, each.loss_weight, _pattern(each, texts, listed, read)) for each in turn.regions])
    return turn.role, turn.name is not None, turn.tool_call_id is not None, regions


def _pattern(region: Region, texts: list[str], listed: list[int], read: Read) -> tuple[str, ...]:
    if region.drop or not region.attend or region.kind == IMAGE:
        raise _Other
    if region.kind == TOOL_CALL:
        call = read(region)
        if not isinstance(call["arguments"], dict):
            raise _Other
        has = {"id": bool(call.get("id")), "name": True, "arguments": bool(call["arguments"])}
        texts += [_bare(call[key]) for key in ("id", "name") if has[key]]
        if has["arguments"]:
            listed.append(len(texts))
            texts.append(as_json(call["arguments"]))
        return tuple([key for key in has if has[key]])
    words = region.text.strip()
    around = tuple(region.text.split(words, 1)) if words else (region.text,)
    if any(len(blanks) > MOST_BLANKS for blanks in around):
        raise _Other
    texts += [words] if words else []
    return around


def _bare(text: object) -> str:
    """A name or an id; others than strings, and those with white space at their ends, are no texts."""
    if not isinstance(text, str) or not text or text != text.strip():
        raise _Other
    return text


def _filled(turn: _Turn, left: Iterator[str]) -> Turn:
    role, has_name, has_call, regions = turn
    name, call = [next(left) if has else None for has in (has_name, has_call)]
    return Turn(role, tuple([Region(kind, _text(kind, pattern, left), weight) for kind, weight, pattern in regions]), name, call)


def _text(kind: str, pattern: tuple[str, ...], left: Iterator[str]) -> str:
    if kind != TOOL_CALL:
        return next(left).join(pattern) if len(pattern) == 2 else pattern[0]
    call: dict[str, object] = {key: next(left) for key in pattern}
    return as_json(call | {"arguments": json.loads(str(call.get("arguments", "{}")))})


# Where any of some strings stands in bytes: the places of the byte of each that is the rarest, and of these the ones with all of its other bytes around.

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_STEP = 64
"""Of so many bytes one is counted to tell how often each byte stands."""
_BYTES = 256
_HALF, _SECOND = 0xED, 0xA0
"""How half of a surrogate pair begins in UTF-8: this byte, and one that is not below the second."""


class ByteSearch:
    """Finds some strings, and half of a surrogate pair.

    Args:
        strings: none of them empty.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        some = sorted({each.encode() for each in strings})
        # a string that holds another one is found with it
        self._strings = [each for each in some if not any(other in each for other in some if other != each)]

    def places(self, data: bytes) -> Ints:
        """Where they begin, in no order."""
        every = np.frombuffer(data, np.uint8)
        often = np.bincount(every[::_STEP], minlength=_BYTES)
        halves = np.flatnonzero(every[:-1] == _HALF) if _HALF in data else np.zeros(0, np.int64)
        found, standing = [halves[every[halves + 1] >= _SECOND]], dict[int, Ints]()
        for string in self._strings:
            order = sorted(range(len(string)), key=lambda at: (often[string[at]], string[at]))
            rarest = string[order[0]]
            if rarest not in standing:
                standing[rarest] = np.flatnonzero(every == rarest) if rarest in data else np.zeros(0, np.int64)
            begins = standing[rarest] - order[0]
            begins = begins[(begins >= 0) & (begins <= len(every) - len(string))]
            for at in order[1:]:
                begins = begins[every[begins + at] == string[at]]
            found.append(begins)
        return np.concatenate(found)


# Chats in columns: the texts of many as bytes, and what is asked of all of them at once.

_MAY_BE_WHITE = np.array([byte >= 0x80 or chr(byte).isspace() for byte in range(256)])
"""Bytes that white space may begin or end with."""


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """Chats in columns.

    Attributes:
        kinds: what they are.
        kind: int64[n], which of these each is; -1 for a record that is another conversation, or a part of one: its texts mean nothing.
        data: all texts in UTF-8, one after the other.
        bounds: int64[t + 1], where each text begins, and the end of the last.
        first, count: int64[n], number of the first text of each chat, and how many it has. A text may be of none.
        texts: the same as strings, where they are at hand.
    """

    kinds: Sequence[Kind]
    kind: Ints
    data: bytes
    bounds: Ints
    first: Ints
    count: Ints
    texts: Sequence[str] | None = None

    @classmethod
    def of(cls, chats: Sequence[Chat | None]) -> ChatColumns:
        """`None` has no texts."""
        numbers: dict[Kind, int] = {}
        kinds = [
            -1 if chat is None else numbers.setdefault(chat.roles if isinstance(chat, PlainChat) else chat.form, len(numbers))
            for chat in chats
        ]
        texts = list(chain.from_iterable(chat.texts for chat in chats if chat is not None))
        data = list(map(str.encode, texts, repeat("utf-8"), repeat("surrogatepass")))
        count = np.array([0 if chat is None else len(chat.texts) for chat in chats], np.int64)
        bounds = np.cumsum([0, *map(len, data)])
        return cls(list(numbers), np.array(kinds, np.int64), b"".join(data), bounds, np.cumsum(count) - count, count, texts)

    @classmethod
    def joined(cls, parts: Sequence[ChatColumns]) -> ChatColumns:
        """Several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        numbers: dict[Kind, int] = {}
        kinds = [np.array([*(numbers.setdefault(each, len(numbers)) for each in part.kinds), -1])[part.kind] for part in parts]
        texts = None if any(part.texts is None for part in parts) else [text for part in parts for text in part.texts or ()]
        bounds = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.bounds) for part in parts]))])
        before = np.cumsum([0, *(len(part.bounds) - 1 for part in parts)])
        first = np.concatenate([part.first + shift for part, shift in zip(parts, before.tolist(), strict=False)])
        count = np.concatenate([part.count for part in parts])
        return cls(list(numbers), np.concatenate(kinds), b"".join(part.data for part in parts), bounds, first, count, texts)

    @classmethod
    def of_texts(cls, data: bytes, bounds: Ints, borders: Ints) -> ChatColumns:
        """Chats of which only the texts are known; `borders`: int64[n + 1], number of the first text of each, and of all."""
        first, count = borders[:-1], np.diff(borders)
        return cls([], np.full_like(first, -1), data, bounds, first, count)

    def taken(self, which: Ints) -> ChatColumns:
        """Some of them, in ascending order."""
        return replace(self, kind=self.kind[which], first=self.first[which], count=self.count[which])

    def only(self, chosen: Bools) -> ChatColumns:
        """The same, where all others are conversations of another kind."""
        return replace(self, kind=np.where(chosen, self.kind, -1))

    def __len__(self) -> int:
        return len(self.kind)

    def own(self, chat: int) -> list[str]:
        """The texts of one."""
        low = int(self.first[chat])
        own = range(low, low + int(self.count[chat]))
        return list(map(self._text, own)) if self.texts is None else list(self.texts[own.start : own.stop])

    def _text(self, number: int) -> str:
        return self.data[self.bounds[number] : self.bounds[number + 1]].decode("utf-8", "surrogatepass")

    def white(self) -> tuple[Bools, Bools]:
        """Of which chats a text is nothing but white space, or which have none; and of which one begins or ends with white space."""
        starts, ends, every = self.bounds[:-1], self.bounds[1:], np.frombuffer(self.data, np.uint8)
        doubtful = starts == ends
        some = np.flatnonzero(~doubtful)
        # no other text begins or ends with white space
        doubtful[some] = _MAY_BE_WHITE[every[starts[some]]] | _MAY_BE_WHITE[every[ends[some] - 1]]
        at = np.flatnonzero(doubtful)
        texts = list(map(self._text, at.tolist()))
        words, whole = (np.array(list(map(len, each)), np.int64) for each in (map(str.strip, texts), texts))
        return self.having(at[words == 0]) | (self.count == 0), self.having(at[words < whole])

    def holding(self, search: ByteSearch) -> Bools:
        """Which chats have a text in which something is found. What stands across the end of one counts as well."""
        return self.having(np.searchsorted(self.bounds, search.places(self.data), "right") - 1)

    def having(self, texts: Ints) -> Bools:
        """Which chats have one of these texts."""
        some = np.zeros(len(self.bounds), np.int64)
        some[texts + 1] = 1
        up_to = np.cumsum(some)
        found: Bools = up_to[self.first + self.count] > up_to[self.first]
        return found

    def sampled(self, one_in: int) -> Bools:
        """One chat in so many, by its last text: the first may be the same in all rows. Those without texts are none."""
        found, some = np.zeros(len(self), bool), self.count > 0
        last = (self.first + self.count)[some] - 1
        borders = zip(self.bounds[last].tolist(), self.bounds[last + 1].tolist(), strict=True)
        found[some] = [zlib.crc32(self.data[low:high]) % one_in == 0 for low, high in borders]
        return found
