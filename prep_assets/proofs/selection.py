"""Selection: which rows a store must hold, on which side of the split, worked out from the sources."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.second_reading import MessageRows, Rows, canonical_json, digest, fingerprint, sorted_json
from prep_assets.stores.arrays import together
from prep_assets.stores.files import Digests

# `where` and `domain_key`, evaluated a second time.

_NOTHING = object()
_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def belongs(row: Mapping[str, Any], key: str | None, value: str) -> bool:
    """Whether a row of a shared source is of the domain that takes `value`."""
    return key is None or ("(missing)" if row.get(key) is None else str(row[key])) == value


def matches(row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a row satisfies every condition; an order between values of different types holds for none."""
    return all(
        _holds(_found(row, field), word, value)
        for field, test in where.items()
        for word, value in (test.items() if isinstance(test, Mapping) else [("==", test)])
    )


def _found(row: Mapping[str, Any], field: str) -> Any:
    if field in row:
        return row[field]
    value: Any = row
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _NOTHING
        value = value[part]
    return value


def _type(value: Any) -> type:
    """Types as JSON has them: true is not 1, 1 and 1.0 are both numbers."""
    return float if type(value) is int else type(value)


def _holds(found: Any, word: str, value: Any) -> bool:
    alike = _type(found) == _type(value)
    if word == "exists":
        return (found is not _NOTHING) is bool(value)
    if word in ("==", "!="):
        return (alike and bool(found == value)) == (word == "==")
    if word in ("in", "not_in"):
        return any(_type(found) == _type(one) and found == one for one in value) == (word == "in")
    if not alike:
        return False
    return bool(_ORDER[word](found, value))


# Whether a row holds a passage of a benchmark, found a second time: passages are strings here, looked up as they stand.

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


# Selection: which rows of its sources a store must hold, and on which side of the split, worked out from the sources alone.
#
# A row of a domain is unreadable, missed by `where`, a duplicate, contaminated, or none of these. Rows of the first four fates must be refused for that very
# reason. All others must be stored, or refused for another reason, which must be found again when the row is looked at alone.

GOOD, UNREADABLE, FILTERED, DUPLICATE, CONTAMINATED = "good", "unreadable", "filtered", "duplicate", "contaminated"
_FILTERS = ("records/filtered_by_where", "records/where_wrong_type", "records/forgotten")
DUPLICATES = "deduplicate/duplicate"
"""What a store refuses duplicates for."""
_FATES = {DUPLICATES: DUPLICATE, "decontaminate/contaminated": CONTAMINATED}
SAYS = {
    GOOD: "is readable, wanted and new",
    UNREADABLE: "cannot be read",
    FILTERED: "misses `where`, or is forgotten",
    DUPLICATE: "equals an earlier row in every field",
    CONTAMINATED: "holds a passage of a benchmark",
}
BLOCK, MOST = 512, 1 << 22
"""Rows of a block, and about how many bytes of JSON."""

Again = Callable[[int, Sequence[int], Sequence[Mapping[str, Any]]], Sequence[str]]
"""File, numbers and fields of rows that were refused → ``stage/reason`` that each is refused for when it is looked at alone; ``""`` for none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says about the rows of a domain.

    Attributes:
        key, value: the field that tells domains of one source apart (`None` for none), and what it holds in this domain's rows.
        where: conditions.
        limit: most rows that are used of the training files.
        deduplicate: whether a row that equals an earlier one is refused.
        passages: what no row may hold; `None` where no benchmark is configured.
        forgotten: sha256 of rows, as JSON with sorted keys, that are left out for ever.
    """

    key: str | None = None
    value: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    deduplicate: bool = True
    passages: Passages | None = None
    forgotten: frozenset[str] = frozenset()

    @property
    def every(self) -> bool:
        """Whether only what equals an earlier row is left out."""
        return self.key is None and not self.where and self.limit is None and self.passages is None and not self.forgotten


@dataclass(frozen=True, slots=True)
class Selected:
    """Consecutive rows of one file that a domain reads: their numbers, fates, and fields (`None` where they cannot be read)."""

    file: int
    rows: Sequence[int]
    fates: Sequence[str]
    payloads: Sequence[Mapping[str, Any] | None]


First = Callable[[int, int, bytes], bool]
"""Is given file, row and digest of each row that may equal another, in order: whether none before has this digest."""


class Believed:
    """What rows of a part of a domain came before, there or elsewhere, as a store says that refuses them. Whether that is so shows when all parts are
    put together, see `beliefs_hold`.

    Attributes:
        digests: of all rows that may equal another.
        came: of each, whether it is believed to have come before.
    """

    def __init__(self, refused: Set[int]) -> None:
        """`refused`: the places of those that the store refuses as duplicates, see `places`."""
        self._refused = refused
        self.digests, self.came = bytearray(), bytearray()

    def __call__(self, file: int, row: int, digest: bytes) -> bool:
        came = file << 40 | row in self._refused
        self.digests += digest
        self.came.append(came)
        return not came


def beliefs_hold(digests: npt.NDArray[np.uint64], came: npt.NDArray[np.bool_]) -> bool:
    """Whether exactly those rows came before that were believed to.

    Args:
        digests: uint64[n, 2], those of all rows in order.
        came: bool[n], what was believed.
    """
    high, low = digests[:, 0], digests[:, 1]
    for at in together(high):
        ordered = at[np.lexsort((low[at], high[at]))]  # stable, so that of equal ones the first stays first
        again = np.append(False, (digests[ordered[1:]] == digests[ordered[:-1]]).all(axis=1))
        if not np.array_equal(again, came[ordered]):
            return False
    return True


def select(files: Iterable[tuple[int, bool, Rows]], rules: Rules, first: First | None = None) -> Iterator[Selected]:
    """The rows that a domain reads, in the order of its files: each a number, whether it is held out, and its rows."""
    seen = _first() if first is None else first
    taken = 0
    for number, test, rows in files:
        if test or rules.limit is None or taken < rules.limit:
            for block in _file(number, rows, rules, seen, None if test or rules.limit is None else rules.limit - taken):
                taken += sum(fate != FILTERED for fate in block.fates) if not test else 0
                yield block


def _first() -> First:
    seen = Digests()
    return lambda file, row, digest: seen.add(digest)


def _file(number: int, rows: Rows, rules: Rules, seen: First, left: int | None) -> Iterator[Selected]:
    found: list[tuple[int, str, Mapping[str, Any] | None]] = []
    size = 0

    def block() -> Iterator[Selected]:
        nonlocal size
        if found:
            numbers, fates, payloads = zip(*found, strict=True)
            found.clear()
            size = 0
            yield Selected(number, numbers, fates, payloads)

    for some in rows:
        if isinstance(some, MessageRows):
            yield from block()
            is_first = (seen(number, row, fingerprint(payload)) for row, payload in zip(some.numbers, some, strict=True))
            fates = [GOOD if first else DUPLICATE for first in is_first] if rules.deduplicate else [GOOD] * len(some)
            yield Selected(number, some.numbers, fates, some)
            continue
        row, payload = some
        if payload is not None and not belongs(payload, rules.key, rules.value):
            continue
        written = sorted_json(payload)
        fate = _fate(payload, written, rules, partial(seen, number, row))
        size += len(written)
        del written  # it may be large
        found.append((row, fate, payload))
        if left is not None and fate != FILTERED:
            left -= 1
            if not left:
                break
        if len(found) == BLOCK or size >= MOST:
            yield from block()
    yield from block()


def _fate(payload: Mapping[str, Any] | None, written: bytes, rules: Rules, is_first: Callable[[bytes], bool]) -> str:
    if payload is None:
        return UNREADABLE
    if rules.forgotten and sha256(canonical_json(payload)).hexdigest() in rules.forgotten:
        return FILTERED
    if rules.where and not matches(payload, rules.where):
        return FILTERED
    if rules.deduplicate and not is_first(digest(written)):
        return DUPLICATE
    return CONTAMINATED if rules.passages is not None and rules.passages.holds(payload) else GOOD


def reason_fault(fate: str, reason: str) -> str | None:
    """What is wrong with a row of this fate being refused for `reason` (``stage/reason``); `None` where nothing is, or only `Again` can tell."""
    kind = FILTERED if reason in _FILTERS else _FATES.get(reason, UNREADABLE if reason.startswith("records/") else GOOD)
    if kind == fate:
        return None
    return f"is refused for {reason}, but by a second reading it {SAYS[fate]}"
