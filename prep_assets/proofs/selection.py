"""Selection: which rows a store must hold, on which side of the split, worked out from the sources."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from prep_assets import plugins
from prep_assets.proofs.second_reading import Rows, Seen, canonical_json, digest, sorted_json
from prep_assets.stores.arrays import sorted_groups

# Second evaluation of `where` and `domain_key`.

_NOTHING = object()
_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def belongs(row: Mapping[str, Any], key: str | None, value: str) -> bool:
    """Whether a row of a shared source belongs to the domain with this key value."""
    return key is None or ("(missing)" if row.get(key) is None else str(row[key])) == value


def matches(row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a row satisfies every condition; values of different types have no order."""
    return all(
        _holds(_field_value(row, field), word, value)
        for field, test in where.items()
        for word, value in (test.items() if isinstance(test, Mapping) else [("==", test)])
    )


def _field_value(row: Mapping[str, Any], field: str) -> Any:
    if field in row:
        return row[field]
    value: Any = row
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _NOTHING
        value = value[part]
    return value


def _type(value: Any) -> type:
    """Return the JSON type: true is not 1; 1 and 1.0 are both numbers."""
    return float if type(value) is int else type(value)


def _holds(actual: Any, word: str, value: Any) -> bool:
    alike = _type(actual) == _type(value)
    if word == "exists":
        return (actual is not _NOTHING) is bool(value)
    if word in ("==", "!="):
        return (alike and bool(actual == value)) == (word == "==")
    if word in ("in", "not_in"):
        return any(_type(actual) == _type(option) and actual == option for option in value) == (word == "in")
    if not alike:
        return False
    return bool(_ORDER[word](actual, value))


# Second search for benchmark passages in rows: passages are strings here, looked up directly.

FEWEST = 8
"""Words of the shortest passage."""


class Passages(Struct):
    """Passages of benchmarks by length in words, joined by spaces."""

    words: int
    known: dict[int, set[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Any], words: int) -> Passages:
        """Return the passages of every text in `rows`; a text of fewer than `words` words is one passage."""
        passages = cls(words)
        for text in texts(rows):
            size = min(words, len(text))
            if size >= FEWEST:
                passages.known.setdefault(size, set()).update(_passages(text, size))
        return passages

    def holds(self, row: Any) -> bool:
        """Whether any text of a row holds a passage."""
        return any(not known.isdisjoint(_passages(text, size)) for text in texts(row) for size, known in self.known.items())


def texts(value: Any) -> Iterator[list[str]]:
    """Yield the words of every string in a value."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield [word for word in re.split(r"\W+", node.casefold()) if word]
        elif isinstance(node, Mapping):
            stack.extend(node.values())
        elif isinstance(node, Iterable):
            stack.extend(node)


def _passages(words: list[str], size: int) -> Iterator[str]:
    return (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))


# Selection: which rows of its sources a store must hold, and on which side of the split, computed from the sources alone.
#
# A row of a domain is unreadable, filtered by `where`, a duplicate, contaminated, or none of these. Rows of the first four fates must be rejected for that
# reason. All others must be stored, or rejected for another reason, which must come out again when the row is judged alone.

GOOD, UNREADABLE, FILTERED, DUPLICATE, CONTAMINATED, DROPPED = "good", "unreadable", "filtered", "duplicate", "contaminated", "dropped"
FILTERS = ("records/filtered_by_where", "records/where_wrong_type", "records/forgotten")
"""Reasons for which filters reject rows."""
DUPLICATES = "deduplicate/duplicate"
"""The reason for rejecting duplicates."""
_FATES = {DUPLICATES: DUPLICATE, "decontaminate/contaminated": CONTAMINATED}
SAYS = {
    GOOD: "is readable, wanted and new",
    UNREADABLE: "cannot be read",
    FILTERED: "misses `where`, or is forgotten",
    DUPLICATE: "equals an earlier row in every field",
    CONTAMINATED: "holds a passage of a benchmark",
    DROPPED: "is dropped by its verdict",
}
BLOCK, MOST = 512, 1 << 22
"""Most rows of a block, and about how many bytes of JSON."""

Again = Callable[[Sequence[int], Sequence[int], Sequence[Mapping[str, Any]]], Sequence[str]]
"""Files, numbers and fields of rejected rows → ``stage/reason: detail`` of each when it is judged alone, or ``stage/reason``; ``""`` for none."""


class Rules(Struct, frozen=True):
    """The selection rules of a domain, from its configuration.

    Attributes:
        key, value: the field that separates domains of one source (`None` for none), and its value in this domain's rows.
        where: conditions.
        limit: most rows that are used from the training files.
        deduplicate: whether a row that equals an earlier one is rejected.
        passages: passages that no row may hold; `None` without benchmarks.
        dropped: file and row of those that verdicts drop.
        forgotten: sha256 of rows, as JSON with sorted keys, that are removed for good.
    """

    key: str | None = None
    value: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    deduplicate: bool = True
    passages: Passages | None = None
    dropped: Set[tuple[int, int]] = frozenset()
    forgotten: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Selected:
    """Consecutive rows that a domain reads: their files, numbers, fates, and fields (`None` for unreadable rows)."""

    files: Sequence[int]
    rows: Sequence[int]
    fates: Sequence[str]
    payloads: Sequence[Mapping[str, Any] | None]


First = Callable[[int, int, bytes], bool]
"""File, row and digest of each candidate row, in order → whether no earlier row has this digest."""


class Believed:
    """Takes the duplicates of a part of a domain from the quarantine: an equal earlier row may be in another part. `beliefs_hold` verifies it when parts are
    merged.

    Attributes:
        digests: digests of all candidate rows.
        came: for each, whether it is believed to be a duplicate.
    """

    def __init__(self, refused: Set[int]) -> None:
        """`refused`: the places of rows that the store rejects as duplicates, see `places`."""
        self._refused = refused
        self.digests, self.came = bytearray(), bytearray()

    def __call__(self, file: int, row: int, digest: bytes) -> bool:
        is_duplicate = file << 40 | row in self._refused
        self.digests += digest
        self.came.append(is_duplicate)
        return not is_duplicate


def beliefs_hold(digests: npt.NDArray[np.uint64], came: npt.NDArray[np.bool_]) -> bool:
    """Whether exactly the believed duplicates are duplicates.

    Args:
        digests: uint64[n, 2], of all rows in order.
        came: bool[n], believed duplicates.
    """
    high, low = digests[:, 0], digests[:, 1]
    for at in sorted_groups(high):
        ordered = at[np.lexsort((low[at], high[at]))]  # stable, so that of equal ones the first stays first
        is_repeat = np.append(False, (digests[ordered[1:]] == digests[ordered[:-1]]).all(axis=1))
        if not np.array_equal(is_repeat, came[ordered]):
            return False
    return True


def select(files: Iterable[tuple[int, bool, Rows]], rules: Rules, first: First | None = None) -> Iterator[Selected]:
    """Yield the rows that a domain reads, in the order of its files; `files`: number, whether it is held out, rows."""
    seen = _new_digests() if first is None else first
    pending, size, taken = list[tuple[int, int, str, Mapping[str, Any] | None]](), 0, 0

    def block() -> Selected:
        found = Selected(*zip(*pending, strict=True))
        pending.clear()
        return found

    for number, test, rows in files:
        for row, payload in rows if test or taken != rules.limit else ():
            if rules.key is not None and payload is not None and not belongs(payload, rules.key, rules.value):
                continue
            written = sorted_json(payload)
            fate = _fate(payload, written, rules, seen, number, row)
            if rules.dropped and fate == GOOD and (number, row) in rules.dropped:
                fate = DROPPED
            size += len(written)
            del written  # it may be large
            pending.append((number, row, fate, payload))
            taken += not test and fate != FILTERED
            if len(pending) == BLOCK or size >= MOST:
                size = 0
                yield block()
            if not test and taken == rules.limit:
                break
    if pending:
        yield block()


def _new_digests() -> First:
    seen = Seen()
    return lambda file, row, digest: seen.add(digest)


def _fate(payload: Mapping[str, Any] | None, written: bytes, rules: Rules, is_first: First, file: int, row: int) -> str:
    if payload is None:
        return UNREADABLE
    if rules.forgotten and sha256(canonical_json(payload)).hexdigest() in rules.forgotten:
        return FILTERED
    if rules.where and not matches(payload, rules.where):
        return FILTERED
    if rules.deduplicate and not is_first(file, row, digest(written)):
        return DUPLICATE
    return CONTAMINATED if rules.passages is not None and rules.passages.holds(payload) else GOOD


@cache
def _of_verdicts() -> frozenset[str]:
    return frozenset(plugins.entries("verdicts"))


def reason_fault(fate: str, reason: str) -> str | None:
    """Return why a row of this fate cannot be rejected for `reason` (``stage/reason``); `None` where it can, or only `Again` can tell."""
    stage = reason.partition("/")[0]
    of_stage = UNREADABLE if stage == "records" else DROPPED if stage in _of_verdicts() else GOOD
    kind = FILTERED if reason in FILTERS else _FATES.get(reason, of_stage)
    if kind == fate:
        return None
    return f"is refused for {reason}, but by a second reading it {SAYS[fate]}"
