"""The ledger: every row that a domain reads is stored once, on its side of the split, or refused once, for a reason that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.arrays import Spool
from prep_assets.disk.columns import at, before, made, order, repeats, stretches, where
from prep_assets.proofs.held_out import is_held_out
from prep_assets.proofs.selection import DUPLICATE, DUPLICATES, GOOD, SAYS, Again, Selected, reason_fault
from prep_assets.proofs.verdict import Verdict, Worst

Ints = npt.NDArray[np.int64]
_REFUSED = np.dtype([("name", np.int32), ("reason", np.int32), ("row", np.int64)])
_AT_ONCE = 1024


def places(file: npt.ArrayLike, row: npt.ArrayLike) -> Ints:
    """File and row as one number, which sorts as they do in a domain."""
    return (np.asarray(file, np.int64) << 40) | np.asarray(row, np.int64)


class Refusals:
    """The lines of a quarantine file, as columns: file name, row, ``stage/reason``."""

    def __init__(self, refused: Iterable[tuple[str, str]]) -> None:
        """`refused`: id and ``stage/reason`` of each."""
        lines = iter(refused)
        self._names: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        table = Spool(_REFUSED)
        while some := list(islice(lines, _AT_ONCE)):
            table.append(np.array([self._entry(*line) for line in some], _REFUSED))
        self._name, self._row, self._reason = (table.array()[field] for field in ("name", "row", "reason"))
        self._used = np.zeros(len(table), bool)

    def _entry(self, identity: str, why: str) -> tuple[int, int, int]:
        file, _, number = identity.rpartition(":")
        return self._names.setdefault(file, len(self._names)), self.reasons.setdefault(why, len(self.reasons)), int(number)

    def of(self, files: Sequence[str]) -> _Claims:
        """Those that no domain before has claimed, of files of these names, for a domain that numbers them so."""
        own = {file: which for which, file in enumerate(files)}
        number = np.array([own.get(name, -1) for name in self._names])
        free = where(made(len(self._name), lambda part: ~self._used[part] & (number[self._name[part]] >= 0), bool))
        place = made(len(free), lambda part: places(number[self._name[free[part]]], self._row[free[part]]))
        ordered = order(place)
        place = at(place, ordered)
        # of two that are alike, which two domains may have whose files have one name, the first is the earlier domain's
        first = where(~repeats(place))
        return _Claims(at(place, first), at(free, at(ordered, first)))

    def __len__(self) -> int:
        return len(self._row)

    def within(self, files: Sequence[str], begin: int, end: int) -> Refusals:
        """Those of a stretch of a domain with files of these names, given by the place where it begins and the one where it ends."""
        own = self.of(files)
        inside = own.which[slice(*np.searchsorted(own.place, [begin, end]))]
        found = copy(self)
        found._name, found._row, found._reason = (at(column, inside) for column in (self._name, self._row, self._reason))
        found._used = np.zeros(len(inside), bool)
        return found

    def duplicates(self, files: Sequence[str]) -> set[int]:
        """The places of those that are refused as duplicates, of files of these names."""
        own = self.of(files)
        return set(own.place[self._reason[own.which] == self.reasons.get(DUPLICATES, -1)].tolist())

    def claim(self, which: Ints) -> None:
        """Take these out of what is left."""
        self._used[which] = True

    def reason(self, which: int) -> str:
        """``stage/reason`` of one."""
        return list(self.reasons)[int(self._reason[which])]

    def left(self) -> list[str]:
        """Ids of those that no row of any domain accounts for."""
        names = list(self._names)
        return [f"{names[self._name[at]]}:{self._row[at]}" for at in np.flatnonzero(~self._used)]


@dataclass(frozen=True, slots=True)
class _Claims:
    place: Ints
    which: Ints


@dataclass(frozen=True, slots=True)
class Stored:
    """The records of one domain that a store holds.

    Attributes:
        place: sorted, see `places`.
        held_out: whether each stands on the held-out side.
        belongs: 1 where the text of the record itself says that it belongs there, 0 where it does not, -1 where only its source can say.
    """

    place: Ints
    held_out: npt.NDArray[np.bool_]
    belongs: npt.NDArray[np.int8]

    @classmethod
    def of(cls, place: Ints, held_out: npt.NDArray[np.bool_], belongs: npt.NDArray[np.int8] | None = None) -> Stored:
        """Put them in order."""
        says = np.full(len(place), -1, np.int8) if belongs is None else belongs
        if all((place[part] >= before(place, part, 0)).all() for part in stretches(len(place))):
            return cls(place, held_out, says)
        ordered = order(place)
        return cls(at(place, ordered), at(held_out, ordered), at(says, ordered))


@dataclass(slots=True)
class Ledger:
    """Goes through the domains of a store, one after the other.

    Attributes:
        fraction: share of the training files that is held out.
        faults: where and what, at most `MOST_FAULTS`.
    """

    refusals: Refusals
    fraction: float
    numbers: dict[str, int] = field(
        default_factory=lambda: {
            "rows_read_again": 0,
            "rows_stored": 0,
            "rows_refused": 0,
            "duplicates": 0,
            "rows_held_out": 0,
            "faults": 0,
        }
    )
    worst: Worst | None = None

    def judged(
        self,
        blocks: Iterable[Selected],
        stored: Stored,
        names: Sequence[str],
        held_out_files: Sequence[bool],
        content: Callable[[Mapping[str, Any]], bytes],
        again: Again,
        seen: Callable[[Sequence[int], Sequence[Mapping[str, Any] | None], Sequence[int]], None] | None = None,
    ) -> Iterator[Selected]:
        """The rows of one domain for others to look at as well, each block once it has been judged.

        Args:
            names, held_out_files: of its files; the second whether all of a file is held out.
            content: fields of a row → what decides whether it is held out.
            again: see `Again`.
            seen: told the numbers and the rows of each block, and the places of those that their schema has read.
        """
        claims, matched = self.refusals.of(names), 0
        twice = where(repeats(stored.place))
        if len(twice):
            self._fault(_identity(names, int(stored.place[twice[0]])), "is stored twice")
        for block in blocks:
            place = places(block.file, block.rows)
            at, kept = _find(stored.place, place)
            found, refused = _find(claims.place, place)
            refused &= ~kept
            matched += int(kept.sum())
            self.refusals.claim(claims.which[found[refused]])
            self._count(block, kept, refused)
            for i in np.flatnonzero(~kept & ~refused).tolist():
                self._fault(f"{names[block.file]}:{block.rows[i]}", "is neither stored nor refused")
            self.numbers["rows_held_out"] += int(np.count_nonzero(stored.held_out[at[kept]]))
            for i in self._doubtful(block, kept, stored, at, held_out_files[block.file]).tolist():
                self._stored(block, i, stored, int(at[i]), names, held_out_files[block.file], content)
            reasons = {i: self.refusals.reason(int(claims.which[found[i]])) for i in np.flatnonzero(refused).tolist()}
            self._refused(block, reasons, names, again)
            if seen is not None:
                seen(block.rows, block.payloads, _read(block, reasons))
            yield block
        if matched != len(stored.place) - len(twice):
            self._fault(
                "the store", f"holds {len(stored.place) - matched:,} records that its sources do not offer, or that are beyond a limit"
            )

    def _count(self, block: Selected, kept: npt.NDArray[np.bool_], refused: npt.NDArray[np.bool_]) -> None:
        self.numbers["rows_read_again"] += len(block.rows)
        self.numbers["rows_stored"] += int(kept.sum())
        self.numbers["rows_refused"] += int(refused.sum())
        self.numbers["duplicates"] += sum(fate == DUPLICATE for fate in block.fates)

    def _doubtful(self, block: Selected, kept: npt.NDArray[np.bool_], stored: Stored, at: Ints, held_out_file: bool) -> Ints:
        """Places of the stored rows of which something is wrong, or only their fields say on which side they belong."""
        places = np.flatnonzero(kept)
        held_out, says = stored.held_out[at[places]], stored.belongs[at[places]]
        belongs = (says == 1) | held_out_file
        good = np.array([fate == GOOD for fate in block.fates], bool)[places]
        doubtful: Ints = places[~good | (belongs != held_out) | (~belongs & (says < 0) & (self.fraction > 0))]
        return doubtful

    def _stored(
        self,
        block: Selected,
        i: int,
        stored: Stored,
        at: int,
        names: Sequence[str],
        held_out_file: bool,
        content: Callable[[Mapping[str, Any]], bytes],
    ) -> None:
        identity, held_out = f"{names[block.file]}:{block.rows[i]}", bool(stored.held_out[at])
        if block.fates[i] != GOOD:
            self._fault(identity, f"is stored, though it {SAYS[block.fates[i]]}")
            return
        belongs = held_out_file or bool(stored.belongs[at] == 1)
        if not belongs and stored.belongs[at] < 0 and self.fraction and (payload := block.payloads[i]) is not None:
            belongs = is_held_out(content(payload), self.fraction)
        if belongs != held_out:
            sides = ("to train on", "held out")
            self._fault(identity, f"is stored {sides[held_out]}, and belongs to what is {sides[belongs]}")

    def _refused(self, block: Selected, reasons: Mapping[int, str], names: Sequence[str], again: Again) -> None:
        """Judge the rows of a block that are refused; `reasons` has each."""
        faults = {i: reason_fault(block.fates[i], reason) for i, reason in reasons.items()}
        open_ = [i for i, fault in faults.items() if fault is None and block.fates[i] == GOOD]
        unsure = {i: payload for i in open_ if (payload := block.payloads[i]) is not None}
        found = again(block.file, [block.rows[i] for i in unsure], list(unsure.values())) if unsure else ()
        for i, why in zip(unsure, found, strict=True):
            if why != reasons[i]:
                said = f"it is refused for {why}" if why else "nothing is wrong with it"
                faults[i] = f"is refused for {reasons[i]}; looked at alone, {said}"
        for i, fault in faults.items():
            if fault is not None:
                self._fault(f"{names[block.file]}:{block.rows[i]}", fault)

    def _fault(self, where: str, what: str) -> None:
        self.numbers["faults"] += 1
        self.worst = self.worst or Worst(where, what)

    def verdict(self) -> Verdict:
        """What came of it, once every domain has been gone through."""
        left = self.refusals.left()
        if left:
            self._fault(left[0], f"is refused (and {len(left) - 1:,} more are), though it is stored, or no row that is read")
        numbers = self.numbers
        if self.worst is not None:
            return Verdict(False, f"{numbers['faults']:,} faults; first {self.worst.where} {self.worst.note}", numbers, self.worst)
        return balanced(numbers)


def balanced(numbers: Mapping[str, float]) -> Verdict:
    """The verdict where there are no faults."""
    return Verdict(
        True,
        f"{numbers['rows_read_again']:,} rows, read again, are where they belong: {numbers['rows_stored']:,} stored, "
        f"{numbers['rows_held_out']:,} of them held out, {numbers['rows_refused']:,} refused, {numbers['duplicates']:,} of them duplicates",
        numbers,
    )


def _find(sorted_places: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where each stands, and whether it is there at all."""
    if not len(sorted_places):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(sorted_places, wanted), len(sorted_places) - 1)
    return at, sorted_places[at] == wanted


def _identity(names: Sequence[str], place: int) -> str:
    file, row = place >> 40, place & ((1 << 40) - 1)
    return f"{names[file] if file < len(names) else f'file {file}'}:{row}"


def _read(block: Selected, reasons: Mapping[int, str]) -> list[int]:
    """Places of the rows that are sound, and that their schema did not refuse."""
    refused = {i for i, reason in reasons.items() if reason.startswith("schema/")}
    return [i for i, fate in enumerate(block.fates) if fate == GOOD and i not in refused]
