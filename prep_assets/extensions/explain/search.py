"""Find rows in whole stores: by domain, length, trained share, record id, or text.

A text is looked for among ids, so that ten million rows take less than a second: of every row that holds it, some token covers its rarest character. One
scan finds the tokens that can; only the text around them is decoded.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Bools, Ints
from prep_assets.caches import bounded_cache
from prep_assets.extensions.explain.rows import Row, line_texts, read
from prep_assets.stores.table import Block, Table
from prep_assets.text.vocabulary import Vocabulary

ALSO_FOLDED = frozenset("afhijklnstwy")
"""ASCII characters that `str.casefold` makes of others too: of the Kelvin sign, of ligatures."""
MOST_CHARACTERS = 32
"""So many characters of a text choose the tokens to look at; all of them decide."""
FAR = 8
"""Most characters between the two that are looked for."""
SAMPLE = 1 << 20
"""Tokens that say which characters are rare."""
READ_AT_ONCE = 512
APART = "\ufffd"
"""Stands for bytes that are no text, and for tokens that are not searched."""


class Filter(Struct, frozen=True):
    """Rows with a document of `domain` whose text or record ids contain `find`, ignoring case; empty fields match everything.

    Attributes:
        where: what contains `find`: all text, trained or masked text alone, or the ids of records.
        length: least and most tokens of a row, or what the stream counts.
        trained: least and most percent of its tokens that are trained.
        reason: of rejected records: ``stage/reason``, or a part of it.
    """

    find: str = ""
    where: Literal["text", "trained", "masked", "id"] = "text"
    domain: str = ""
    length: tuple[int | None, int | None] = (None, None)
    trained: tuple[int | None, int | None] = (None, None)
    reason: str = ""

    @property
    def of_rows(self) -> bool:
        """Whether it leaves out rows."""
        return self != Filter(where=self.where, reason=self.reason)


def matching(stream: Table, wanted: Filter, vocabulary: Vocabulary | None, names: Callable[[Row], list[str]]) -> Iterator[int]:
    """The numbers of the rows that match, ascending; `names` gives the ids of the records in a row."""
    fit = _between(stream.lengths, wanted.length)
    if wanted.domain:
        fit &= stream.of_domain(wanted.domain)
    if wanted.trained != (None, None):
        counts = stream.trained
        fit &= False if counts is None else _between(100 * counts / np.maximum(stream.lengths, 1), wanted.trained)
    needle = wanted.find.casefold()
    if not needle:
        return iter(np.flatnonzero(fit).tolist())
    if (
        wanted.where != "id"
        and vocabulary is not None
        and vocabulary.token_bytes
        and {APART, "\0"}.isdisjoint(needle)
        and (blocks := stream.blocks())
    ):
        return _search_ids(blocks, fit, needle, wanted.where, vocabulary)

    def holds(row: Row) -> bool:
        if wanted.where == "id":
            return any(needle in name.casefold() for name in names(row))
        return any(needle in text.casefold() for text in _texts(row, wanted.where, vocabulary))

    numbers = np.flatnonzero(fit).tolist()
    parts = (numbers[first : first + READ_AT_ONCE] for first in range(0, len(numbers), READ_AT_ONCE))
    return (row.number for part in parts for row in read(stream, part, sys.maxsize) if holds(row))


def _between(values: Ints | npt.NDArray[np.float64], bounds: tuple[int | None, int | None]) -> Bools:
    least, most = bounds
    fit = np.ones(len(values), bool)
    if least is not None:
        fit &= values >= least
    if most is not None:
        fit &= values <= most
    return fit


def _texts(row: Row, where: str, vocabulary: Vocabulary | None) -> Iterator[str]:
    """The texts of a row that are searched, each by itself."""
    if row.line is not None and where == "text":
        yield "\n".join(text for texts in line_texts(row.line).values() for _, text in texts)
    elif row.line is None and vocabulary is not None:
        weights = row.weights if row.weights is not None and where != "text" else [1.0] * len(row.ids)
        for trained, stretch in groupby(zip(weights, row.ids, strict=True), key=lambda each: each[0] > 0):
            if where == "text" or trained == (where == "trained"):
                yield vocabulary.decode([token for _, token in stretch if 0 <= token < vocabulary.size])


def _search_ids(blocks: Iterable[Block], fit: Bools, needle: str, where: str, vocabulary: Vocabulary) -> Iterator[int]:
    covering, texts, chosen = _covering(needle[:MOST_CHARACTERS], vocabulary), vocabulary.token_bytes or (), None
    reach = 4 * len(needle) + 8  # tokens: a character comes from at most four bytes, and few tokens have none
    for block in blocks:
        chosen = chosen or _two_rarest(covering, np.bincount(block.ids[:SAMPLE], minlength=vocabulary.size))
        rarest, other, distance = chosen
        hits = np.flatnonzero(rarest.take(block.ids, mode="clip"))
        rows = np.searchsorted(block.starts, hits, "right") - 1
        inside = fit[block.first + rows] & (hits < block.ends[rows])
        hits, rows = hits[inside], rows[inside]
        near = np.zeros(len(hits), bool)
        for step in range(-distance, distance + 1):
            near |= other.take(block.ids.take(hits + step, mode="clip"), mode="clip")
        last = -1
        for hit, row in zip(hits[near].tolist(), rows[near].tolist(), strict=True):
            if row == last:
                continue
            span = slice(max(int(block.starts[row]), hit - reach), min(int(block.ends[row]), hit + reach + 1))
            parts = [texts[token] if token < len(texts) else APART.encode() for token in block.ids[span].tolist()]
            if where != "text":
                is_trained = block.weights(span) > 0
                parts = [part if kept else APART.encode() for part, kept in zip(parts, is_trained == (where == "trained"), strict=True)]
            if needle in b"".join(parts).decode("utf-8", "replace").casefold():
                last = row
                yield block.first + row


def _two_rarest(covering: Sequence[Ints], counts: Ints) -> tuple[Bools, Bools, int]:
    """bool[ids]: what can cover the rarest character, and another near it; and how many tokens apart the two are at most."""
    frequency = [int(counts[ids].sum()) for ids in covering]
    rarest = min(range(len(covering)), key=frequency.__getitem__)
    near = [place for place in range(len(covering)) if abs(place - rarest) <= FAR]
    other = min(near, key=lambda place: (place == rarest, frequency[place]))
    tables = np.zeros((2, len(counts)), bool)
    tables[0, covering[rarest]] = tables[1, covering[other]] = True
    return tables[0], tables[1], 4 * abs(other - rarest)


def _covering(needle: str, vocabulary: Vocabulary) -> list[Ints]:
    """For each character of `needle`, the ids of the tokens that can cover it where the text has `needle`."""
    joined, starts, ids_of, broken = _folded(vocabulary)
    size, covering = len(needle), [set[int]() for _ in needle]

    def cover(first: int, stop: int, ids: Iterable[int]) -> None:
        for place in range(first, stop):
            covering[place].update(ids)

    def found(text: str, after: int) -> list[int]:
        return [bisect_right(starts, match.start() + after) - 1 for match in re.finditer(re.escape(text), joined)]

    for first in range(size):
        for stop in range(first + 1, size + 1):
            cover(first, stop, ids_of.get(needle[first:stop], ()))
        cover(first, size, found("\0" + needle[first:], 1))  # a token that goes on after it
        cover(0, first + 1, found(needle[: first + 1] + "\0", 0))  # one that begins before it
    cover(0, size, found(needle, 0))
    for place, character in enumerate(needle):
        is_split = character in ALSO_FOLDED or not character.isascii()
        covering[place].update(token for token, text in broken.items() if is_split or character in text)
    return [np.array(sorted(ids), np.int64) for ids in covering]


@bounded_cache("folded vocabularies", 2, key=lambda vocabulary: vocabulary.hash)
def _folded(vocabulary: Vocabulary) -> tuple[str, list[int], dict[str, list[int]], dict[int, str]]:
    """The texts of all tokens without case: joined, each after a zero, with where each begins; the ids of each text; and those with parts of characters."""
    texts = [part.decode("utf-8", "replace").casefold() for part in vocabulary.token_bytes or ()]
    ids_of = defaultdict[str, list[int]](list)
    for token, text in enumerate(texts):
        ids_of[text].append(token)
    starts = list(accumulate((len(text) + 1 for text in texts), initial=1))[:-1]
    return "\0" + "\0".join(texts) + "\0", starts, dict(ids_of), {token: text for token, text in enumerate(texts) if APART in text}
