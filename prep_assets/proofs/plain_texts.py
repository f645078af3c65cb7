"""The texts of many chats as bytes, and what is asked of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.shaped_samples import OutlinedSample
from prep_assets.samples import PlainChat

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MAY_BE_WHITE = np.array([byte >= 0x80 or chr(byte).isspace() for byte in range(256)])
"""Bytes that white space may begin or end with."""


@dataclass(frozen=True, slots=True)
class PlainTexts:
    """The texts of chats in UTF-8.

    Attributes:
        data: each text.
        joined: all of them, one after the other, each with a NUL after it.
        ends: int64[t], where each NUL stands.
        first: int64[n + 1], number of the first text of each chat, and of all.
        blank: of which chats a text is nothing but white space, or which have none.
        edged: of which a text begins or ends with white space.
    """

    data: Sequence[bytes]
    joined: bytes
    ends: Ints
    first: Ints
    blank: Bools
    edged: Bools

    @classmethod
    def of(cls, chats: Sequence[PlainChat | OutlinedSample | None]) -> PlainTexts:
        """`None` has no texts."""
        texts = list(chain.from_iterable(chat.texts for chat in chats if chat is not None))
        first = np.cumsum([0, *(len(chat.texts) if chat is not None else 0 for chat in chats)])
        data = list(map(str.encode, texts, repeat("utf-8"), repeat("surrogatepass")))
        joined, sizes = b"\0".join([*data, b""]), np.fromiter(map(len, data), np.int64, len(data))
        ends = np.cumsum(sizes + 1) - 1
        every = np.frombuffer(joined, np.uint8)
        edges = _MAY_BE_WHITE[every[ends - sizes]] | _MAY_BE_WHITE[every[ends - 1]]
        # no other text is empty, or begins or ends with white space
        doubtful = np.flatnonzero(edges | (sizes == 0))
        some = [texts[at] for at in doubtful.tolist()]
        words, whole = (np.fromiter(map(len, each), np.int64, len(some)) for each in (map(str.strip, some), some))
        blank, edged = np.diff(first) == 0, np.zeros(len(chats), bool)
        for found, holds in ((blank, words == 0), (edged, words < whole)):
            found[np.searchsorted(first, doubtful[holds], "right") - 1] = True
        return cls(data, joined, ends, first, blank, edged)

    def holding(self, search: ByteSearch) -> Bools:
        """Which chats have a text in which something is found."""
        found = np.zeros(len(self.blank), bool)
        found[np.searchsorted(self.first, np.searchsorted(self.ends, search.places(self.joined)), "right") - 1] = True
        return found

    def sampled(self) -> Bools:
        """Which chats are derived by themselves as well; false for those without texts."""
        found, some = np.zeros(len(self.blank), bool), np.diff(self.first) > 0
        found[some] = [PlainDerivation.picks(self.data[number - 1]) for number in self.first[1:][some].tolist()]
        return found

    def bounds(self, chosen: Bools) -> tuple[list[int], list[int]]:
        """Where the texts of the chosen chats begin and end."""
        return self.first[:-1][chosen].tolist(), self.first[1:][chosen].tolist()
