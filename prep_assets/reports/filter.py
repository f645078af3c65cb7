"""Which rows of whole stores somebody wants to see: by domain, by text, by record id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prep_assets.reports.chunks import Shown
from prep_assets.reports.rows import Row, Stream

BLOCK = 512


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows with a document of `domain`, whose text or record ids hold `find`; what is empty asks for nothing. Case does not matter."""

    find: str = ""
    where: str = "text"
    domain: str = ""

    def __bool__(self) -> bool:
        return bool(self.find or self.domain)


def matching(
    streams: Sequence[Stream],
    wanted: Filter,
    most: int,
    named: Callable[[int, Iterable[Row]], Iterator[Shown]],
    text: Callable[[Sequence[int]], str],
) -> Iterator[Shown]:
    """The first `most` rows of all streams that fit.

    Args:
        named: rows of the stream with this number, with the names of their records.
        text: ids as text.
    """
    needle, found = wanted.find.casefold(), 0
    for number, stream in enumerate(streams):
        for low in range(0, len(stream.lengths), BLOCK):
            for shown in named(number, stream.rows(range(low, min(low + BLOCK, len(stream.lengths))))):
                row = shown.row
                if wanted.domain and all(piece.origin.domain != wanted.domain for piece in row.pieces):
                    continue
                if needle:
                    held = "\n".join(shown.names) if wanted.where == "id" else row.text or text(row.ids)
                    if needle not in held.casefold():
                        continue
                yield shown
                found += 1
                if found == most:
                    return
