"""Which chats of a batch hold one of several strings. All their texts are searched as one, for bytes that are rare in texts, and only beside these further."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.samples import PlainChat
from prep_assets.templates.shapes import ShapedChat

Raw = npt.NDArray[np.uint8]
_COMMON = ' etaoinsrhlcdumpfgyw.b,v\n"0123456789k'
"""What texts are made of, the most common first."""
_NONCHARACTER = b"\xef\xb7\x90"
"""U+FDD0 in UTF-8, the first of 32, of which marks are made."""


@dataclass(frozen=True)
class _Sharing:
    """Strings that share a byte.

    Attributes:
        sign: the byte.
        strings: those in which it stands first at a place, by that place.
        before, after: bool[256], what may stand before the byte in those in which it is not the first, and after it in the others.
    """

    sign: int
    strings: tuple[tuple[int, tuple[bytes, ...]], ...]
    before: npt.NDArray[np.bool_]
    after: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, sign: int, strings: Sequence[bytes]) -> _Sharing:
        """The strings, all of which hold the byte."""
        by_place: dict[int, list[bytes]] = {}
        before, after = np.zeros(256, bool), np.zeros(256, bool)
        for each in strings:
            place = each.index(sign)
            by_place.setdefault(place, []).append(each)
            if place:
                before[each[place - 1]] = True
            else:
                after[each[1] if len(each) > 1 else slice(None)] = True
        return cls(sign, tuple((place, tuple(each)) for place, each in by_place.items()), before, after)

    def starts(self, data: bytes, raw: Raw) -> list[int]:
        """Where they begin in `data`, which ends with a byte that is in none of them."""
        at = np.flatnonzero(raw == self.sign)
        near = at[self.before[raw[at - 1]] | self.after[raw[np.minimum(at + 1, len(raw) - 1)]]].tolist()
        return [
            place - offset for place in near for offset, each in self.strings if place >= offset and data.startswith(each, place - offset)
        ]


class Search:
    """Finds chats that hold one of several strings, or a character that no text may have."""

    def __init__(self, needles: Iterable[str]) -> None:
        listed = sorted(set(needles), key=len)
        # who holds a string holds all that stand in it
        shortest = [needle for number, needle in enumerate(listed) if not any(short in needle for short in listed[:number])]
        self._sharing = _by_sign([needle.encode() for needle in shortest])
        self._between = next(chr(code) for code in range(32) if not any(chr(code) in needle for needle in shortest)).encode()

    def suspects(self, chats: Sequence[PlainChat | ShapedChat | None]) -> set[int]:
        """Which of the chats hold something."""
        listed = [(number, chat) for number, chat in enumerate(chats) if chat is not None]
        try:
            texts = list(map(str.encode, chain.from_iterable([chat.texts for _, chat in listed])))
        except UnicodeEncodeError:  # half of a surrogate pair
            encodable = [chat if chat is not None and _is_encodable(chat) else None for chat in chats]
            return {number for number, _ in listed if encodable[number] is None} | self.suspects(encodable)
        data = self._between.join([*texts, b""])
        raw = np.frombuffer(data, np.uint8)
        starts = [start for each in self._sharing for start in each.starts(data, raw)]
        if not data.isascii():
            at = np.flatnonzero(raw == _NONCHARACTER[0])
            starts += at[(raw[at + 1] == _NONCHARACTER[1]) & (raw[at + 2] - np.uint8(_NONCHARACTER[2]) < 32)].tolist()
        if not starts:
            return set()
        text = np.searchsorted(np.cumsum([len(each) + 1 for each in texts]), starts, "right")
        return {listed[at][0] for at in np.searchsorted(np.cumsum([len(chat.texts) for _, chat in listed]), text, "right").tolist()}


search_for = bounded_cache("searches of chats", 8)(Search)
"""The search for a frozen set of strings, which is prepared once."""


def _by_sign(needles: Sequence[bytes]) -> list[_Sharing]:
    """Strings in groups, each with a byte that all of them have, so that few bytes are looked for: most strings are alike: ``<|…|>``, ``…think>``."""
    left, groups = list(needles), list[_Sharing]()
    while left:
        holders = Counter(byte for needle in left for byte in set(needle))
        # common ones by their place, all others alike
        sign = max(holders, key=lambda each: (_COMMON.find(chr(each)) % (len(_COMMON) + 1), holders[each], each))
        groups.append(_Sharing.of(sign, [needle for needle in left if sign in needle]))
        left = [needle for needle in left if sign not in needle]
    return groups


def _is_encodable(chat: PlainChat | ShapedChat) -> bool:
    try:
        "".join(chat.texts).encode()
    except UnicodeEncodeError:
        return False
    return True
