"""Whether a row holds a passage of a benchmark, found a second time: passages are strings here, looked up as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

FEWEST = 8
"""Words of the shortest passage."""


@dataclass(slots=True)
class Passages:
    """Passages of benchmarks: for each number of words, the passages of so many, joined by spaces."""

    words: int
    known: dict[int, set[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Any], words: int) -> Passages:
        """Those of every text in `rows`; texts of fewer than `words` words are one passage each."""
        found = cls(words)
        for text in texts(rows):
            size = min(words, len(text))
            if size >= FEWEST:
                found.known.setdefault(size, set()).update(_passages(text, size))
        return found

    def holds(self, row: Any) -> bool:
        """Whether any text of a row holds one."""
        return any(not known.isdisjoint(_passages(text, size)) for text in texts(row) for size, known in self.known.items())


def texts(value: Any) -> Iterator[list[str]]:
    """The words of every string in a value."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield [word for word in re.split(r"\W+", one.casefold()) if word]
        elif hasattr(one, "values"):
            left.extend(one.values())
        elif hasattr(one, "__iter__"):
            left.extend(one)


def _passages(words: list[str], size: int) -> Iterator[str]:
    return (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
