"""Decontamination: a record that holds a passage of a benchmark is refused, so that no test set is trained on.

A passage is a run of `words` words, compared without case, punctuation and white space. A benchmark's text of fewer words, but at least
`SHORTEST`, counts as one passage. Thirteen words is GPT-3's choice (Brown et al., 2020, appendix C).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prep_assets.errors import Refused
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.read import read_blocks
from prep_assets.workers.memory import require_memory

SHORTEST = 8
"""Fewest words of a passage; shorter texts are common property."""
_PASSAGE = 200
"""Bytes of a passage in memory, beside 8 for each word."""
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Benchmarks:
    """Passages of benchmarks.

    Attributes:
        words: length of a passage.
        numbers: word → its number; words that no benchmark has are unknown, and no passage spans them.
        passages: length → the passages of that length, as numbers, and the record each is from.
    """

    words: int
    numbers: dict[str, int] = field(default_factory=dict)
    passages: dict[int, dict[tuple[int, ...], str]] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Iterable[SourceFile], words: int) -> Benchmarks:
        """All strings of all rows of benchmark files, in any format that sources may have."""
        found = cls(words)
        for number, file in enumerate(files):
            for block in read_blocks(file, number):
                found._require_memory()
                for record in block.records:
                    for text in strings_in(record.payload):
                        found._add(text, record_id(file, record.row))
        return found

    def _require_memory(self) -> None:
        """Raises:
        ConfigError: the passages so far leave no room for more.
        """
        needed = sum((_PASSAGE + 8 * size) * len(known) for size, known in self.passages.items())
        count = sum(map(len, self.passages.values()))
        require_memory(2 * needed, f"the {count:,} passages of benchmarks so far, and as many more,", "Give `decontaminate` fewer files")

    def _add(self, text: str, source: str) -> None:
        numbered = tuple(self.numbers.setdefault(word, len(self.numbers)) for word in _words(text))
        size = min(self.words, len(numbered))
        if size >= SHORTEST:
            known = self.passages.setdefault(size, {})
            for start in range(len(numbered) - size + 1):
                known.setdefault(numbered[start : start + size], source)

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse a row that holds a passage.

        Raises:
            Refused: stage ``decontaminate``; the detail has the passage and where it is from.
        """
        for text in strings_in(payload):
            words = _words(text)
            for run, start in _known_runs([self.numbers.get(word, -1) for word in words]):
                for size, known in self.passages.items():
                    for at in range(len(run) - size + 1):
                        source = known.get(run[at : at + size])
                        if source is not None:
                            passage = " ".join(words[start + at : start + at + size])
                            raise Refused("contaminated", f"holds {passage!r} of {source}", stage="decontaminate")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _known_runs(numbers: list[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each run of known words that may hold a passage, and where it starts."""
    start = 0
    for at, number in enumerate([*numbers, -1]):
        if number < 0:
            if at - start >= SHORTEST:
                yield tuple(numbers[start:at]), start
            start = at + 1


def strings_in(value: Any) -> Iterator[str]:
    """Every string among the values of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_in(inner)
