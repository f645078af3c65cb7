"""Accounting: what was read, kept and rejected; and the ledger of every row of a domain."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.data.quarantine import Refusal
from prep_assets.proofs.sampled import FILE, Sampled, numbers_of
from prep_assets.proofs.second_reading import is_held_out
from prep_assets.proofs.selection import DUPLICATE, DUPLICATES, FILTERS, GOOD, SAYS, Again, Selected, reason_fault
from prep_assets.proofs.verdict import Numbers, Verdict, Worst, holds, wrong_claim
from prep_assets.stores.arrays import Spool, argsort, compress, equals_previous, fill_column, take

# Accounting: every record that was read is kept, or rejected with a recorded reason; the counts of a manifest are recounted.

SAMPLED = 64
REFUSED_TOGETHER = 64
"""So many rejected rows are judged at a time, since tokenizers have a cost for each call."""

_ALWAYS = ("read", "kept", "refused", "fields_passed_over")


def unknown_counts(counts: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the fault of counts that no build writes; none where all are known."""
    unknown = sorted({*counts} - {*known})
    return [f"the manifest counts what nothing counts again: {', '.join(unknown)}"] if unknown else []


def account(
    counts: Mapping[str, Any],
    refusals: Iterable[Refusal],
    *,
    stored: int,
    available: int | None,
    neutral: Collection[str] = (),
    ignored: Collection[str] = (),
    recounted: Mapping[str, int] | None = None,
    uncounted: Collection[str] = (),
    metrics: tuple[Numbers, Numbers] = ({}, {}),
) -> Verdict:
    """Check the counts of a manifest against the contents of the store.

    Args:
        counts: from the manifest: ``read``, ``kept`` and ``refused`` by ``stage/reason``; ``fields_passed_over`` by domain and field.
        refusals: the quarantine file.
        stored: number of records in the store.
        available: records that the previous stage offers; `None` where a limit in the configuration leaves some unread.
        neutral: names of fields that may always be passed over.
        ignored: ``domain/field`` of the fields that the configuration lists under `ignore`.
        recounted: further counts, recomputed from the store.
        uncounted: names of counts that no store gives again. There are no others.
        metrics: what the manifest says, and what follows from its counts.
    """
    listed = Counter(f"{refusal.stage}/{refusal.reason}" for refusal in refusals)
    claimed, refused = dict(counts.get("refused", {})), sum(listed.values())
    faults = []
    if dict(listed) != claimed:
        faults.append(f"the quarantine file lists {dict(sorted(listed.items()))}, the manifest says {claimed}")
    if sentences := [reason for reason in listed if " " in reason]:
        faults.append(f"{sentences[0]!r} is no name of a reason")
    if stored != counts["kept"]:
        faults.append(f"{stored:,} records are stored, the manifest says {counts['kept']:,}")
    if counts["read"] != stored + refused:
        faults.append(f"{counts['read']:,} read, but {stored:,} kept + {refused:,} refused = {stored + refused:,}")
    if available is not None and counts["read"] != available:
        faults.append(f"{counts['read']:,} read, the stage before offers {available:,}")
    for name, number in (recounted or {}).items():
        if (claimed_number := counts.get(name, 0)) != number:
            faults.append(f"{name}: {number:,} in the store, the manifest says {claimed_number:,}")
    faults += [f"{name} is {counts[name]:,}" for name in uncounted if isinstance(counts.get(name), int) and counts[name] < 0]
    faults += unknown_counts(counts, (*_ALWAYS, *(recounted or {}), *uncounted))
    claimed_metrics, metrics_again = metrics
    if fault := wrong_claim(metrics_again, claimed_metrics):
        faults.append(fault)
    if extra := claimed_metrics.keys() - metrics_again.keys():
        faults.append(f"the manifest has metrics that nothing gives: {', '.join(sorted(extra))}")
    fields = {f"{domain}/{field}": rows for domain, paths in counts.get("fields_passed_over", {}).items() for field, rows in paths.items()}
    unlisted = [field for field in fields if field not in ignored and re.split(r"[./]", field)[-1].lower() not in neutral]
    if unlisted:
        faults.append(f"unlisted fields were ignored: {', '.join(unlisted)}")
    if wrong := [f"{field} in {rows:,}" for field, rows in fields.items() if not 0 < rows <= counts["read"]]:
        faults.append(f"fields were passed over in more rows than were read: {', '.join(wrong)}")
    numbers = {
        "read": counts["read"],
        "kept": stored,
        "refused": refused,
        **{f"passed over: {field}": rows for field, rows in fields.items()},
    }
    summary = f"{counts['read']:,} read = {stored:,} kept + {refused:,} refused"
    if fields:
        summary += f"; fields left unread: {', '.join(f'{field} in {rows:,}' for field, rows in fields.items())}"
    summary_of_faults = "; ".join(faults)
    return Verdict(False, summary_of_faults, numbers, Worst("manifest", summary_of_faults)) if faults else Verdict(True, summary, numbers)


@dataclass
class Fields:
    """Counts the rows of a domain in which fields were passed over.

    Rows that hold something there are counted without any schema. Where fewer were passed over, as of a field that is read in some rows, all rows are
    converted once more, each alone, and so are the first row and one in `SAMPLED` in any case, by its number, so that parts of a domain look at those that
    the whole does: to find a field that the manifest does not name.

    Attributes:
        domain: its name.
        claimed: passed-over rows by path, from the manifest.
        ignored: the paths that the configuration lists under `ignore`.
        passed_over: row → paths of the fields that its schema passes over.
        every: whether all rows are converted once more.
        found: rows that hold a value, by path.
        unnamed: paths that are passed over in sampled rows, and not in `claimed`.
    """

    domain: str
    claimed: Mapping[str, int]
    ignored: Collection[str]
    passed_over: Callable[[Mapping[str, Any]], Set[str]]
    found: Counter[str] = field(default_factory=Counter)
    unnamed: set[str] = field(default_factory=set)
    every: bool = False
    _begun: bool = False

    def add(self, numbers: Sequence[int], rows: Sequence[Mapping[str, Any] | None], read: Sequence[int]) -> None:
        """Count rows; `numbers`: their row numbers, `read`: indices of the rows that reached their schema."""
        paths = [(path, path.split(".")) for path in {*self.claimed, *self.ignored}]
        for at in read:
            sampled = self.every or not self._begun or numbers[at] % SAMPLED == 0
            self._begun = True
            if not paths and not sampled:
                continue
            row = rows[at]
            assert row is not None
            self.found.update(path for path, parts in paths if _holds(row, parts))
            if sampled:
                self.unnamed |= self.passed_over(row) - self.claimed.keys()

    def faults(self, rows: Callable[[], Iterable[Mapping[str, Any]]]) -> list[str]:
        """Return what is wrong with the counts of the manifest.

        Args:
            rows: yields all rows of the domain that reached the schema, a second time.
        """
        numbers = self.found
        if any(self.found[path] > self.claimed.get(path, 0) for path in {*self.claimed, *self.ignored}):
            numbers = Counter(path for row in rows() for path in self.passed_over(row))
        says = "of domain {} {!r} is passed over in {:,} rows by a second reading, in {:,} as the manifest says"
        wrong = [path for path in {*self.claimed, *numbers} if numbers[path] != self.claimed.get(path, 0)]
        unnamed = [f"of domain {self.domain} {path!r} is passed over, which the manifest does not name" for path in sorted(self.unnamed)]
        return unnamed or [says.format(self.domain, path, numbers[path], self.claimed.get(path, 0)) for path in sorted(wrong)]


def _holds(value: Any, parts: Sequence[str]) -> bool:
    """Whether a path leads to a value; indices of arrays are not part of it, and ``*`` is any name."""
    if isinstance(value, list | tuple):
        return any(_holds(inner, parts) for inner in value) if value and parts else bool(value)
    if not parts:
        return value is not None and value != "" and value != {}
    if not isinstance(value, Mapping):
        return False
    if parts[0] == "*":
        return any(_holds(inner, parts[1:]) for inner in value.values())
    heads = accumulate(parts, "{}.{}".format)
    return any(_holds(value[head], parts[count:]) for count, head in enumerate(heads, 1) if head in value)


# The ledger: every row that a domain reads is stored once, on its side of the split, or rejected once, for a reason that holds.

_REFUSED = np.dtype([("name", np.int32), ("reason", np.int32), ("row", np.int64), ("payload", np.uint64), ("detail", np.uint64)])
_SHOWN = 2000
"""Most characters of a payload in a quarantine file."""
_AT_ONCE = 1024
COUNTED = ("rows_read_again", "rows_stored", "rows_refused", "duplicates", "rows_held_out", "faults", "rejections_repeated")
Proves = Callable[[str, Mapping[str, Any]], str | None]
"""``stage/reason`` and fields of a rejected row → ``""`` where another derivation rejects it too, `None` where none can tell, else why it is right."""


def places(file: npt.ArrayLike, row: npt.ArrayLike) -> Ints:
    """Return file and row as one number, which sorts in the order of the domain."""
    return (np.asarray(file, np.int64) << FILE) | np.asarray(row, np.int64)


def payload_print(text: str, length: int = 0) -> int:
    """Return a hash of a payload and the length that its line says, or of a detail."""
    return int.from_bytes(blake2b(f"{length}:{text}".encode(), digest_size=8).digest(), "big")


class Refusals:
    """The lines of a quarantine file in columns.

    Attributes:
        files: names of the files of the domain, by number.
        place: places of the rejected rows, sorted; only the first of two lines about one row counts.
        which: the line number of each place.
    """

    def __init__(self, refused: Iterable[tuple[str, str] | tuple[str, str, int, int]], files: Sequence[str]) -> None:
        """`refused`: id and ``stage/reason`` of each line, and the `payload_print` of its payload and of its detail; 0 where it is not compared."""
        lines = iter(refused)
        self.files = files
        self._names, self._reasons = dict[str, int](), dict[str, int]()
        table = Spool(_REFUSED)
        while batch := list(islice(lines, _AT_ONCE)):
            table.append(np.array([self._entry(*line) for line in batch], _REFUSED))
        self._name, self._row, self._reason, self._payload, self._detail = (
            table.array()[field] for field in ("name", "row", "reason", "payload", "detail")
        )
        numbers = {name: number for number, name in enumerate(files)}
        number = np.array([numbers.get(name, -1) for name in self._names])
        known = compress(fill_column(len(self), lambda part: number[self._name[part]] >= 0, bool))
        place = fill_column(len(known), lambda part: places(number[self._name[known[part]]], self._row[known[part]]))
        ordered = argsort(place)
        place = take(place, ordered)
        first = compress(~equals_previous(place))
        self.place, self.which = take(place, first), take(known, take(ordered, first))
        self._open = np.ones(len(self), bool)

    def _entry(self, identity: str, why: str, payload: int = 0, detail: int = 0) -> tuple[int, int, int, int, int]:
        file, _, number = identity.rpartition(":")
        return (
            self._names.setdefault(file, len(self._names)),
            self._reasons.setdefault(why, len(self._reasons)),
            int(number) - 1,
            payload,
            detail,
        )

    def __len__(self) -> int:
        return len(self._row)

    def within(self, begin: int, end: int) -> Refusals:
        """Return the lines about rows between two places."""
        part, inside = copy(self), slice(*np.searchsorted(self.place, [begin, end]))
        part.place, part.which = self.place[inside], self.which[inside]
        part._open = np.zeros(len(self), bool)
        part._open[part.which] = True
        return part

    def duplicates(self) -> set[int]:
        """Return the places of rows that are rejected as duplicates."""
        return set(self.place[self._reason[self.which] == self._reasons.get(DUPLICATES, -1)].tolist())

    def claim(self, which: Ints) -> None:
        """Mark lines as claimed by a row."""
        self._open[which] = False

    def reason(self, which: int) -> str:
        """Return ``stage/reason`` of a line."""
        return list(self._reasons)[int(self._reason[which])]

    def shows(self, which: int, row: Mapping[str, Any]) -> bool:
        """Whether the payload of a line is the start of its row, read again; nothing where a filter rejects it."""
        text = "" if self.reason(which) in FILTERS else json.dumps(row, ensure_ascii=False, default=str)
        return int(self._payload[which]) in (0, payload_print(text[:_SHOWN].encode(errors="backslashreplace").decode(), len(text)))

    def says(self, which: int, detail: str) -> bool:
        """Whether a line has this detail."""
        return int(self._detail[which]) in (0, payload_print(detail.encode(errors="backslashreplace").decode()))

    def left(self) -> list[str]:
        """Return the record ids of unclaimed lines."""
        names = list(self._names)
        return [f"{names[self._name[at]]}:{self._row[at] + 1}" for at in np.flatnonzero(self._open)]


class Stored(Struct, frozen=True):
    """The records of one domain that a store holds.

    Attributes:
        place: sorted, see `places`.
        held_out: whether each record is on the held-out side.
        belongs: 1 where the record's own text puts it on the held-out side, 0 where it does not, -1 where only its source can say.
    """

    place: Ints
    held_out: npt.NDArray[np.bool_]
    belongs: npt.NDArray[np.int8]

    @classmethod
    def of(cls, place: Ints, held_out: npt.NDArray[np.bool_], belongs: npt.NDArray[np.int8]) -> Stored:
        """Sort the records by place."""
        ordered = argsort(place)
        return cls(take(place, ordered), take(held_out, ordered), take(belongs, ordered))


@dataclass(slots=True)
class Ledger:
    """Judges the rows of a domain, block by block.

    Attributes:
        held_out_files: for each file, whether all of it is held out.
        content: fields of a row → the bytes that decide whether it is held out.
        again: see `Again`.
        fraction: the share of the training files that is held out.
        seen: called with the `numbers_of` the rows of each block, their fields, and the indices of the rows that reached their schema.
        proves: what derives rejections again; without it they are only repeated.
        takes: fields of a row that its schema takes → why it must be rejected, if anything says so.
        sampled: which of these rows are judged.
        worst: the first fault.
    """

    refusals: Refusals
    stored: Stored
    held_out_files: Sequence[bool]
    content: Callable[[Mapping[str, Any]], bytes]
    again: Again
    fraction: float = 0.0
    seen: Callable[[Sequence[int], Sequence[Mapping[str, Any] | None], Sequence[int]], None] | None = None
    proves: Proves = lambda why, row: None
    takes: Callable[[Mapping[str, Any]], str] | None = None
    sampled: Sampled = field(default_factory=lambda: Sampled(every=True))
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    worst: Worst | None = None
    _unsure: list[tuple[int, int, Mapping[str, Any], int, str]] = field(default_factory=list)

    def add(self, block: Selected) -> None:
        """Judge the next block of rows."""
        refusals, place, fates = self.refusals, places(block.files, block.rows), np.array(block.fates)
        record, kept = find_places(self.stored.place, place)
        line, refused = find_places(refusals.place, place)
        refused &= ~kept
        for i in np.flatnonzero(~kept & ~refused).tolist():
            self._fault(block, i, "is neither stored nor refused")
        self._judge_stored(block, np.flatnonzero(kept), record[kept], fates[kept] == GOOD)
        lines = {i: int(refusals.which[line[i]]) for i in np.flatnonzero(refused).tolist()}
        reasons = {i: refusals.reason(which) for i, which in lines.items()}
        refusals.claim(np.array(list(lines.values()), np.int64))
        for i, which in lines.items():
            if (row := block.payloads[i]) is not None and not refusals.shows(which, row):
                self._fault(block, i, "is in quarantine with a payload that is not its row")
        self._judge_refused(block, lines, reasons)
        counted = (len(place), kept.sum(), refused.sum(), (fates == DUPLICATE).sum(), self.stored.held_out[record[kept]].sum())
        for name, number in zip(COUNTED, counted, strict=False):
            self.numbers[name] += int(number)
        if self.seen is not None or self.takes is not None:
            unread = {i for i, reason in reasons.items() if reason.startswith("schema/")}
            read = [i for i in np.flatnonzero(fates == GOOD).tolist() if i not in unread]
            numbers = numbers_of(place).tolist()
            if self.seen is not None:
                self.seen(numbers, block.payloads, read)
            if self.takes is not None:
                self._judge_taken(block, read, numbers, self.takes)

    def _judge_stored(self, block: Selected, kept: Ints, record: Ints, good: npt.NDArray[np.bool_]) -> None:
        """Judge stored rows that look wrong, or whose side of the split only their fields decide."""
        held_out, says = self.stored.held_out[record], self.stored.belongs[record]
        belongs = (says == 1) | np.array(self.held_out_files)[np.array(block.files)[kept]]
        open_ = ~belongs & (says < 0) & (self.fraction > 0)
        for k in np.flatnonzero(~good | (belongs != held_out) | open_).tolist():
            i, is_held_out_stored, belongs_held_out = int(kept[k]), bool(held_out[k]), bool(belongs[k])
            if not good[k]:
                self._fault(block, i, f"is stored, though it {SAYS[block.fates[i]]}")
                continue
            if open_[k] and (payload := block.payloads[i]) is not None:
                belongs_held_out = is_held_out(self.content(payload), self.fraction)
            if belongs_held_out != is_held_out_stored:
                parts = ("to train on", "held out")
                self._fault(block, i, f"is stored {parts[is_held_out_stored]}, and belongs to what is {parts[belongs_held_out]}")

    def _judge_refused(self, block: Selected, lines: Mapping[int, int], reasons: Mapping[int, str]) -> None:
        """Judge the rejected rows of a block, or keep them until there are enough; `lines`, `reasons`: index in the block → line of the quarantine, reason."""
        for i, reason in reasons.items():
            if fault := reason_fault(block.fates[i], reason):
                self._fault(block, i, fault)
            elif block.fates[i] == GOOD and (payload := block.payloads[i]) is not None:
                self._unsure.append((block.files[i], block.rows[i], payload, lines[i], reason))
        if len(self._unsure) >= REFUSED_TOGETHER:
            self._judge_unsure()

    def _judge_unsure(self) -> None:
        """Judge the rejected rows whose reason only their fields can tell."""
        if not self._unsure:
            return
        files, rows, payloads, lines, reasons = zip(*self._unsure, strict=True)
        self._unsure = []
        for i, fresh in enumerate(self.again(files, rows, payloads)):
            (why, _, detail), fault = fresh.partition(": "), ""
            if why != reasons[i]:
                fresh_outcome = f"it is refused for {why}" if why else "nothing is wrong with it"
                fault = f"is refused for {reasons[i]}; looked at alone, {fresh_outcome}"
            else:
                if detail and not self.refusals.says(lines[i], detail):
                    fault = f"is in quarantine with another detail than {detail[:200]!r}"
                ruling = self.proves(why, payloads[i])
                self.numbers["rejections_repeated"] += ruling is None
                if ruling:
                    fault = f"is refused for {why}, which does not hold: {ruling}"
            if fault:
                self._note(self._name(files[i], rows[i]), fault)

    def _judge_taken(self, block: Selected, read: Sequence[int], numbers: Sequence[int], takes: Callable[[Mapping[str, Any]], str]) -> None:
        """Judge the rows of a block that their schema takes, by their indices; `numbers`: those by which rows are chosen."""
        for i in read:
            payload = block.payloads[i]
            if payload is not None and self.sampled.takes(numbers[i], payload) and (fault := takes(payload)):
                self._fault(block, i, f"is taken by its schema, but {fault}")

    def _fault(self, block: Selected, i: int, what: str) -> None:
        self._note(self._name(block.files[i], block.rows[i]), what)

    def _name(self, file: int, row: int) -> str:
        files = self.refusals.files
        return f"{files[file] if file < len(files) else f'file {file + 1}'}:{row + 1}"

    def _note(self, where: str, what: str) -> None:
        self.numbers["faults"] += 1
        self.worst = self.worst or Worst(where, what)

    def verdict(self) -> Verdict:
        """Return the verdict, after all rows."""
        self._judge_unsure()
        place, numbers = self.stored.place, self.numbers
        twice = compress(equals_previous(place))
        if len(twice):
            numbers["faults"] += 1
            self.worst = Worst(self._name(*divmod(int(place[twice[0]]), 1 << FILE)), "is stored twice")
        if (beyond := len(place) - numbers["rows_stored"]) > len(twice):
            self._note("the store", f"holds {beyond:,} records that its sources do not offer, or that are beyond a limit")
        if unclaimed := self.refusals.left():
            self._note(unclaimed[0], f"is refused (and {len(unclaimed) - 1:,} more are), though it is stored, or no row that is read")
        if self.worst is not None:
            return Verdict(False, f"{numbers['faults']:,} faults; first {self.worst.where} {self.worst.note}", numbers, self.worst)
        return holds(balanced, numbers)


def balanced(numbers: Numbers) -> str:
    """Return the summary without faults."""
    return (
        f"{numbers['rows_read_again']:,} rows, read again, are where they belong: {numbers['rows_stored']:,} stored, "
        f"{numbers['rows_held_out']:,} of them held out, {numbers['rows_refused']:,} refused, {numbers['duplicates']:,} of them duplicates"
        + (f"; {numbers['rejections_repeated']:,} rejections repeated by the same code" if numbers["rejections_repeated"] else "")
    )


def find_places(sorted_places: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the index of each wanted place, the first of equal ones, and whether it is there."""
    if not len(sorted_places):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(sorted_places, wanted), len(sorted_places) - 1)
    return at, sorted_places[at] == wanted
