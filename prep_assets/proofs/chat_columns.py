"""Chats in columns: the texts of many as bytes, and what is asked of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.shaped_samples import Outline, OutlinedSample
from prep_assets.samples import PlainChat

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Chat = PlainChat | OutlinedSample
Kind = tuple[str, ...] | Outline
"""The roles of a plain chat, or the outline of another one."""

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
        kinds = [-1 if chat is None else numbers.setdefault(kind_of(chat), len(numbers)) for chat in chats]
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

    def sampled(self) -> Bools:
        """Which chats are derived by themselves as well; false for those without texts."""
        found, some = np.zeros(len(self), bool), self.count > 0
        last = (self.first + self.count)[some] - 1
        borders = zip(self.bounds[last].tolist(), self.bounds[last + 1].tolist(), strict=True)
        found[some] = [PlainDerivation.picks(self.data[low:high]) for low, high in borders]
        return found


def kind_of(chat: Chat) -> Kind:
    """What a chat is without its texts."""
    return chat.roles if isinstance(chat, PlainChat) else chat.form
