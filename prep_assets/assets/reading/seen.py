"""Which digests came before, and where: 16 bytes a record, under 20 with what holds them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

KEY = 11
"""Bytes of a digest that are kept: 88 bits, of which two among 10⁹ are equal by chance once in 600 million such sets."""
PLACE = 5
_ENTRY = KEY + PLACE
_FULL = 96
"""Entries of a bucket, on average, at which there come to be twice as many buckets."""


@dataclass(slots=True)
class Seen:
    """Digests in buckets, each one piece of memory of entries end to end: a part of a digest, and a number for where it was seen first.

    Places are numbered as they come, so that a stretch of a file is one run: its first number, what to add to a row, and the file.
    """

    _buckets: list[bytearray] = field(default_factory=lambda: [bytearray()])
    _count: int = 0
    _runs: list[tuple[int, int, str]] = field(default_factory=list)
    _next: int = 0

    def first(self, digest: bytes, identity: str) -> str | None:
        """The identity of the record that had this digest before; `None` where none had it, and it is noted.

        Args:
            identity: ``<file name>:<row>``.
        """
        key = digest[:KEY]
        bucket = self._buckets[int.from_bytes(key[:4], "little") & (len(self._buckets) - 1)]
        at = bucket.find(key)
        while at % _ENTRY and at >= 0:
            at = bucket.find(key, at + 1)
        if at >= 0:
            return self._identity(int.from_bytes(bucket[at + KEY : at + _ENTRY], "little"))
        bucket += key + self._place(identity).to_bytes(PLACE, "little")
        self._count += 1
        if self._count > _FULL * len(self._buckets):
            self._split()
        return None

    def _place(self, identity: str) -> int:
        name, _, digits = identity.rpartition(":")
        row = int(digits)
        if not self._runs or name != self._runs[-1][2] or row + self._runs[-1][1] < self._next:
            self._runs.append((self._next, self._next - row, name))
        place = row + self._runs[-1][1]
        self._next = place + 1
        return place

    def _identity(self, place: int) -> str:
        _, shift, name = self._runs[bisect_right(self._runs, place, key=lambda run: run[0]) - 1]
        return f"{name}:{place - shift}"

    def _split(self) -> None:
        half = len(self._buckets)
        self._buckets += [bytearray()] * half
        for number in range(half):
            low, high = bytearray(), bytearray()
            bucket = self._buckets[number]
            for at in range(0, len(bucket), _ENTRY):
                entry = bucket[at : at + _ENTRY]
                if int.from_bytes(entry[:4], "little") & half:
                    high += entry
                else:
                    low += entry
            self._buckets[number], self._buckets[number + half] = low, high
