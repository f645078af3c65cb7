"""Where any of some strings stands in bytes: the places of the byte of each that is the rarest, and of these the ones with all of its other bytes around."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ONE_IN = 64
"""Share of the bytes by which it is told how often each byte stands."""
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
        often = np.bincount(every[::ONE_IN], minlength=_BYTES)
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
