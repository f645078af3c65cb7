"""Words that were met before, and the reference's ids of each: in memory as long as they are met, and on disk for the next process.

The reference library alone makes every entry. What is on disk stands under a key of the tokenizer, the versions of the libraries, and the code of the
proofs that cut texts into words; a file that is not as it was written counts as none.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.disk.kept import Kept
from prep_assets.tokenization.flat import NO_TEXTS, Flat

MOST_BYTES, EACH = 12 << 20, 144
"""After so many bytes of words and ids, and so many for each word beside, half of them are forgotten: those that were not met for the longest time."""
LONGEST_HELD = 1024
"""Longest word that is remembered, in bytes."""
KEPT = Kept("words", 16)

Ints = npt.NDArray[np.int64]
Parts = tuple[npt.NDArray[np.uint32], Ints, Ints]
"""Ids, and for each part where its own begin among them and how many they are."""
_NONE: Ints = np.zeros(0, np.int64)


class _File(msgspec.Struct, frozen=True):
    words: list[bytes]
    ids: bytes
    counts: bytes


class Words:
    """Ids of words.

    Attributes:
        known: the number of each word that is remembered.
        held: their ids, by number.
        fresh: how many came since they were last on disk.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.held, self.fresh = NO_TEXTS, 0
        self._met, self._turn, self._bytes = _NONE, 0, 0

    def ids_of(self, distinct: list[bytes], tokenized: Callable[[list[bytes]], Flat]) -> Parts:
        """The ids of some distinct words; `tokenized` gives those of new ones."""
        found = list(map(self.known.get, distinct))
        new = [part for part, number in zip(distinct, found, strict=True) if number is None]
        # long ones stand last, so that they can be forgotten
        lasting = [part for part in new if len(part) <= LONGEST_HELD]
        listed = [*lasting, *(part for part in new if len(part) > LONGEST_HELD)]
        known, held = len(self.known), len(self.known) + len(lasting)
        every = joint(self.held, tokenized(listed)) if listed else self.held
        fresh = dict(zip(listed, range(known, known + len(listed)), strict=True))
        numbers = np.array([fresh[part] if number is None else number for part, number in zip(distinct, found, strict=True)], np.int64)
        self.known |= zip(lasting, range(known, held), strict=True)
        self.held = Flat(every.ids[: every.offsets[held]], every.offsets[: held + 1])
        self.fresh += len(lasting)
        self._turn += 1
        self._met = np.append(self._met, np.full(len(lasting), self._turn))
        self._met[numbers[numbers < held]] = self._turn
        self._bytes += int(_sizes(lasting, self.held.offsets[known:]).sum())
        if self._bytes > MOST_BYTES:
            self._forget()
        return every.ids, every.offsets[numbers], np.diff(every.offsets)[numbers]

    def _forget(self) -> None:
        words, latest = list(self.known), np.argsort(self._met)[::-1]
        sizes = _sizes(words, self.held.offsets)
        left = np.sort(latest[2 * np.cumsum(sizes[latest]) <= MOST_BYTES])
        self._bytes = int(sizes[left].sum())
        self.known = {words[number]: at for at, number in enumerate(left.tolist())}
        self.held, self._met = picked(self.held, left), self._met[left]

    def keep(self, key: str) -> None:
        """Put them on disk, where enough of them are new."""
        if 16 * self.fresh > len(self.known):
            counts = np.diff(self.held.offsets).astype(np.uint32)
            KEPT.keep(key, msgspec.msgpack.encode(_File(list(self.known), self.held.ids.tobytes(), counts.tobytes())))
            self.fresh = 0

    @classmethod
    def found(cls, key: str) -> Words:
        """Those that are on disk."""
        words, data = cls(), KEPT.find(key)
        if data is not None:
            file = msgspec.msgpack.decode(data, type=_File)
            offsets = np.concatenate([[0], np.cumsum(np.frombuffer(file.counts, np.uint32), dtype=np.int64)])
            words.known = dict(zip(file.words, range(len(file.words)), strict=True))
            words.held, words._met = Flat(np.frombuffer(file.ids, np.uint32), offsets), np.full(len(file.words), words._turn)
            words._bytes = int(_sizes(file.words, offsets).sum())
        return words


def _sizes(words: list[bytes], offsets: Ints) -> Ints:
    """Bytes that each of some words takes, of which ids begin at these places."""
    sizes: Ints = np.fromiter(map(len, words), np.int64) + EACH + 4 * np.diff(offsets)
    return sizes


def picked(flat: Flat, which: Ints) -> Flat:
    """The texts of a result in another order."""
    counts = np.diff(flat.offsets)[which]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Flat(flat.ids[np.repeat(flat.offsets[which] - offsets[:-1], counts) + np.arange(offsets[-1])], offsets)


def joint(one: Flat, other: Flat) -> Flat:
    """Two results, one after the other."""
    return Flat(np.concatenate([one.ids, other.ids]), np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]]))
