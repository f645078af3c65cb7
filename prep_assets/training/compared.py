"""What items read of several arrays, compared with the manifest for the price of one look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prep_assets.stores.guards import bare

STRETCH = 16
"""Bits of the number of elements that are compared at a time."""


class Compared:
    """Arrays of one length that are read at the same places: one look says whether all of them were compared with the manifest there.

    Attributes:
        bare: the arrays without their guards, to be read once `check` was asked.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.bare = tuple(map(bare, arrays))
        self._guarded = [each for each, other in zip(arrays, self.bare, strict=True) if each is not other]
        stretches = (min(map(len, arrays)) >> STRETCH) + 1
        self._seen = bytearray(stretches) if self._guarded else bytearray(b"\1" * stretches)

    def check(self, begin: int, end: int) -> None:
        """Compare the stretches that elements ``begin … end - 1`` are in.

        Raises:
            StoreError: an array is not what the manifest says.
        """
        first, last, seen = begin >> STRETCH, (end - 1) >> STRETCH, self._seen
        if seen[first] and seen[last] and last - first < 2:
            return
        for stretch in range(first, last + 1):
            if not seen[stretch]:
                for each in self._guarded:
                    each[stretch << STRETCH : (stretch + 1) << STRETCH]
                seen[stretch] = 1
