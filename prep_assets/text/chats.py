"""Chats in columns: the outline of each, and the texts of many as bytes."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Bools, Ints
from prep_assets.samples import MEDIA, SEPARATOR, TEXT, TOOL_CALL, PlainChat, Region, Sample, Spelled, Turn

# Outlines of samples with tools, calls or reasoning: without their texts many are equal, and the outline decides how they are rendered.

MOST_BLANKS = 16
"""Most characters of white space at an end of a text in an outline."""
as_json = json.JSONEncoder(ensure_ascii=False).encode

_Region = tuple[str, float | None, tuple[str, ...]]
"""Kind, weight, and a pattern: the white space around a text, or all of a blank text; for a call, the fields that are texts."""
_Turn = tuple[str, bool, bool, tuple[_Region, ...]]
"""Role, whether it has a name, whether it has a tool call id, and its regions."""


class Outline(NamedTuple):
    """A sample without its texts.

    Attributes:
        size: number of texts.
        json: indices of the texts that are JSON: tools, which come first, and arguments of calls.
        tools: number of tools.
        turns: the turns without texts. The texts of a turn are its name, the id of the call that it answers, and those of its regions.
    """

    size: int
    json: tuple[int, ...]
    tools: int
    turns: tuple[_Turn, ...]

    def sample(self, texts: Iterable[str]) -> Sample:
        """Return the sample with these texts."""
        remaining = iter(texts)
        tools = tuple([json.loads(next(remaining)) for _ in range(self.tools)])
        return Sample(tuple([_filled(turn, remaining) for turn in self.turns]), tools)


class OutlinedSample(Struct, frozen=True):
    """A sample as its outline and its texts, none blank or with white space at its ends."""

    form: Outline
    texts: tuple[str, ...]


Chat = PlainChat | OutlinedSample
Kind = tuple[str, ...] | Outline
"""The roles of a plain chat, or the outline of any other."""
Read = Callable[[Region], Mapping[str, Any]]


def outline_of(kind: Kind) -> Outline:
    """Return the outline of a kind of chats; that of plain chats takes any texts."""
    if isinstance(kind, Outline):
        return kind
    return Outline(len(kind), (), 0, tuple([(role, False, False, ((TEXT, None, ("", "")),)) for role in kind]))


def plain_chat(sample: Sample) -> PlainChat | None:
    """Return a sample of one text per turn and nothing else in columns; `None` for any other."""
    if sample != Sample(sample.turns):
        return None
    chat = PlainChat(tuple([turn.role for turn in sample.turns]), tuple([turn.text for turn in sample.turns]))
    return chat if chat.sample() == sample else None


def outlined(sample: Sample, read: Read = lambda region: json.loads(region.text)) -> OutlinedSample | None:
    """Return outline and texts of a sample; `None` where it holds anything else, such as an image or an empty tool.

    Args:
        read: region → tool call.
    """
    if sample != Sample(sample.turns, sample.tools) or not all(sample.tools):
        return None
    try:
        texts = [tool.json if isinstance(tool, Spelled) else as_json(tool) for tool in sample.tools]
        listed = [*range(len(texts))]
        turns = tuple([_outlined(turn, texts, listed, read) for turn in sample.turns])
    except (_NotOutlined, ValueError, KeyError, TypeError, RecursionError):
        return None
    return OutlinedSample(Outline(len(texts), tuple(listed), len(sample.tools), turns), tuple(texts)) if texts else None


_NO_BLANKS = "", ""


class _NotOutlined(Exception):
    """A part of a sample that no outline can hold."""


def _outlined(turn: Turn, texts: list[str], listed: list[int], read: Read) -> _Turn:
    if turn.name is not None or turn.tool_call_id is not None:
        texts += [_bare(text) for text in (turn.name, turn.tool_call_id) if text is not None]
    regions = tuple([(region.kind, region.loss_weight, _pattern(region, texts, listed, read)) for region in turn.regions])
    return turn.role, turn.name is not None, turn.tool_call_id is not None, regions


def _pattern(region: Region, texts: list[str], listed: list[int], read: Read) -> tuple[str, ...]:
    if region.drop or not region.attend or region.kind in (*MEDIA, SEPARATOR):
        raise _NotOutlined
    if region.kind == TOOL_CALL:
        call = read(region)
        if not isinstance(call["arguments"], dict):
            raise _NotOutlined
        present = {"id": bool(call.get("id")), "name": True, "arguments": bool(call["arguments"])}
        texts += [_bare(call[key]) for key in ("id", "name") if present[key]]
        if present["arguments"]:
            listed.append(len(texts))
            texts.append(as_json(call["arguments"]))
        return tuple([key for key in present if present[key]])
    words = region.text.strip()
    if words and len(words) == len(region.text):
        texts.append(words)
        return _NO_BLANKS
    around = tuple(region.text.split(words, 1)) if words else (region.text,)
    if any(len(blanks) > MOST_BLANKS for blanks in around):
        raise _NotOutlined
    texts += [words] if words else []
    return around


def _bare(text: object) -> str:
    """Return a name or an id; raise for anything but a string without white space at its ends."""
    if not isinstance(text, str) or not text or text != text.strip():
        raise _NotOutlined
    return text


def _filled(turn: _Turn, remaining: Iterator[str]) -> Turn:
    role, has_name, has_call, regions = turn
    name, call = [next(remaining) if is_present else None for is_present in (has_name, has_call)]
    return Turn(role, tuple([Region(kind, _text(kind, pattern, remaining), weight) for kind, weight, pattern in regions]), name, call)


def _text(kind: str, pattern: tuple[str, ...], remaining: Iterator[str]) -> str:
    if kind != TOOL_CALL:
        return next(remaining).join(pattern) if len(pattern) == 2 else pattern[0]
    call: dict[str, object] = {key: next(remaining) for key in pattern}
    return as_json(call | {"arguments": json.loads(str(call.get("arguments", "{}")))})


# Chats in columns: the texts of many as bytes, with vectorized predicates.


def any_of(strings: Iterable[str]) -> Sequence[str]:
    """Regular expressions for `ChatColumns.holding`: any of these strings, or half of a surrogate pair."""
    escaped = [_HALF_A_PAIR, *map(re.escape, sorted({*strings}))]
    return ["|".join(escaped[at : at + _AT_ONCE]) for at in range(0, len(escaped), _AT_ONCE)]


_HALF_A_PAIR = r"\xed[\xa0-\xbf]"
"""UTF-8 of half a surrogate pair."""
_AT_ONCE = 10_000
"""Strings in one expression; Arrow (RE2) refuses some that are three times as long."""
_MAY_BE_WHITE = np.array([byte >= 0x80 or chr(byte).isspace() for byte in range(256)])
"""Bytes that white space may begin or end with."""


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """Chats in columns.

    Attributes:
        kinds: the distinct kinds.
        kind: int64[n], index of the kind of each chat; -1 for a record without one, whose texts have no meaning.
        data: all texts in UTF-8, end to end.
        bounds: int64[t + 1], start of each text, and the end of the last.
        first, count: int64[n], number of the first text of each chat, and number of its texts.
        texts: the texts as strings.
    """

    kinds: Sequence[Kind]
    kind: Ints
    data: bytes
    bounds: Ints
    first: Ints
    count: Ints
    texts: Sequence[str]

    @classmethod
    def of(cls, chats: Sequence[Chat | None]) -> ChatColumns:
        """Return chats in columns; `None` is a record without a kind."""
        numbers: dict[Kind, int] = {}
        kinds = [
            -1 if chat is None else numbers.setdefault(chat.roles if isinstance(chat, PlainChat) else chat.form, len(numbers))
            for chat in chats
        ]
        own = [() if chat is None else chat.texts for chat in chats]
        texts = list(chain.from_iterable(own))
        data = list(map(str.encode, texts, repeat("utf-8"), repeat("surrogatepass")))
        count = np.fromiter(map(len, own), np.int64, len(own))
        bounds = np.append(0, np.cumsum(np.fromiter(map(len, data), np.int64, len(data))))
        return cls(list(numbers), np.array(kinds, np.int64), b"".join(data), bounds, np.cumsum(count) - count, count, texts)

    def __len__(self) -> int:
        return len(self.kind)

    def own(self, chat: int) -> list[str]:
        """Return the texts of a chat."""
        low = int(self.first[chat])
        return list(self.texts[low : low + int(self.count[chat])])

    def white(self) -> tuple[Bools, Bools]:
        """Return which chats have a blank text or no texts; and which have a text that begins or ends with white space."""
        starts, ends, codes = self.bounds[:-1], self.bounds[1:], np.frombuffer(self.data, np.uint8)
        doubtful = starts == ends
        non_empty = np.flatnonzero(~doubtful)
        # no other text begins or ends with white space
        doubtful[non_empty] = _MAY_BE_WHITE[codes[starts[non_empty]]] | _MAY_BE_WHITE[codes[ends[non_empty] - 1]]
        at = np.flatnonzero(doubtful)
        texts = [self.texts[number] for number in at.tolist()]
        words, whole = (np.array(list(map(len, column)), np.int64) for column in (map(str.strip, texts), texts))
        return self.having(at[words == 0]) | (self.count == 0), self.having(at[words < whole])

    def holding(self, patterns: Sequence[str]) -> Bools:
        """Return which chats have a match of one of the expressions in their texts. One across the end of a text counts as well."""
        import pyarrow as pa
        import pyarrow.compute as pc

        bounds = self.bounds[np.append(self.first, len(self.bounds) - 1)]
        chats = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), [None, pa.py_buffer(bounds), pa.py_buffer(self.data)])
        matches = [pc.match_substring_regex(chats, pattern).to_numpy(zero_copy_only=False) for pattern in patterns]
        held: Bools = np.logical_or.reduce(matches)
        return held

    def having(self, texts: Ints) -> Bools:
        """Return which chats have one of these texts, by number."""
        marks = np.zeros(len(self.bounds), np.int64)
        marks[texts + 1] = 1
        up_to = np.cumsum(marks)
        has_text: Bools = up_to[self.first + self.count] > up_to[self.first]
        return has_text

    def sampled(self, one_in: int) -> Bools:
        """Return a sample of one chat in so many, by a hash of the last text: the first may be the same in all rows. Chats without texts are not sampled."""
        is_sampled, has_texts = np.zeros(len(self), bool), self.count > 0
        last = (self.first + self.count)[has_texts] - 1
        borders = zip(self.bounds[last].tolist(), self.bounds[last + 1].tolist(), strict=True)
        is_sampled[has_texts] = [zlib.crc32(self.data[low:high]) % one_in == 0 for low, high in borders]
        return is_sampled
