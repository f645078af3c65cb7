"""Proofs of lines against their rows, of what several say of one prompt, and of merged tables against their parts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.proofs.second_reading import Seen, fingerprint
from prep_assets.proofs.tables import BLOCK, column_of, first_difference, gather, spans_of
from prep_assets.proofs.verdict import Numbers, Rule, Verdict, Worst, added, fails, holds, some_fail
from prep_assets.samples import ASSISTANT, COMPLETION
from prep_assets.stores.arrays import batches, stretches
from prep_assets.stores.files import dumps
from prep_assets.stores.table import MARGIN, Ragged, Table

# Lines of a JSONL store against their source rows, field by field.


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        id: record id of its row.
        stored: the object on the line.
        made: the line of the row, converted again; `None` where it gives none.
        by_columns: whether it is also the line that the columns of the row give.
    """

    id: str
    stored: Mapping[str, Any]
    made: Mapping[str, Any] | None
    by_columns: bool = False


def _line_fault(line: Line, numbers: Counter[str]) -> str | None:
    numbers["lines_checked"] += 1
    numbers["lines_read_twice"] += line.by_columns
    if line.made is None:
        return "its row gives no line"
    if line.stored != line.made or _types(line.stored) != _types(line.made):
        key = next(
            (key for key in {**line.made, **line.stored} if _written(line.stored, key) != _written(line.made, key)), "order of fields"
        )
        return f"{key} is {_written(line.stored, key)[:200]}, its row gives {_written(line.made, key)[:200]}"
    columns = [line.stored.get(name) for name in ("prompt", "chosen", "rejected", "completion")]
    for message in (each for column in columns if isinstance(column, list) for each in column):
        if empty := [key for key, value in message.items() if key != "content" and value in (None, "", [], {})]:
            return f"a message of the role {message.get('role')!r} has an empty {empty[0]}"
        if "loss_weight" in message and (message["role"] not in (ASSISTANT, COMPLETION) or message["loss_weight"] == 1):
            return f"a message of the role {message['role']!r} has a loss weight of {message['loss_weight']:g}, which says nothing"
    return None


LINES_DIFFER = "lines differ from their rows"


def lines_verdict(files: Sequence[Verdict], *, stored: int) -> Verdict:
    """Return the verdict on several files; `stored`: number of lines, all of which must have a row."""
    numbers, worst = (
        dict.fromkeys(check_lines.figures, 0) | added(files),
        next((file.worst for file in files if file.worst is not None), None),
    )
    if numbers["lines_checked"] != stored:
        what = f"{stored:,} lines are stored, {numbers['lines_checked']:,} rows of the sources are theirs"
        return Verdict(False, what, numbers, worst or Worst("index", what))
    if worst is not None:
        return some_fail(int(numbers["lines_failed"]), stored, LINES_DIFFER, worst, numbers)
    return holds(check_lines.say, numbers)


def _lines_hold(numbers: Numbers) -> str:
    also = f", {numbers['lines_read_twice']:,} also by a second reading" if numbers["lines_read_twice"] else ""
    return f"{numbers['lines_checked']:,} lines are those of their rows{also}"


check_lines = Rule(_line_fault, ("lines_checked", "lines_failed", "lines_read_twice"), _lines_hold, ("lines_failed", LINES_DIFFER))


def _types(row: Mapping[str, Any]) -> list[type]:
    """Types of the values: 1, 1.0 and true are equal in Python, but not to a trainer."""
    return [type(value) for value in row.values()]


def _written(row: Mapping[str, Any], key: str) -> str:
    return dumps(row[key]) if key in row else "missing"


# Files whose lines are checked one by one, such as preference pairs and labelled answers. The key that decides the split is never in
# files of both sides.

Rows = Iterable[Mapping[str, Any]]
ON_BOTH_SIDES = "its {} is in the training file as well"


def judged(
    files: Mapping[str, Rows], key: str, fault_of: Callable[[str, Mapping[str, Any]], str | None]
) -> Iterator[tuple[str, str, Mapping[str, Any], str | None]]:
    """Yield for each row of the files: file, location, row, and its fault or `None`.

    Args:
        files: rows by file name; names that end with ``test`` are held out.
        key: the field whose value must not be in both a training and a held-out file.
        fault_of: file and row → any other fault.
    """
    seen = Seen()
    for name, rows in files.items():
        for number, row in enumerate(rows, 1):
            fault, digest = fault_of(name, row), fingerprint(row.get(key))
            if not name.endswith("test"):
                seen.add(digest)
            elif fault is None and digest in seen:
                fault = ON_BOTH_SIDES.format(key)
            yield name, f"{name} line {number:,}", row, fault


def contradicted(said: tuple[str, str] | None, known: Seen) -> bool:
    """Whether one of the lines before, whose digests are `known`, says otherwise of the same; adds what this one says."""
    if said is None:
        return False
    about, whole = fingerprint(said[0]), fingerprint(said)
    other = about in known and whole not in known
    known.add(about)
    known.add(whole)
    return other


def about(row: Mapping[str, Any], *claims: str) -> str:
    """Return what a line is about: all but the columns in which it says something of it."""
    return json.dumps({key: row[key] for key in row.keys() - {*claims}}, sort_keys=True)


def fits_strings(line: Mapping[str, Any]) -> bool:
    """Whether a line of messages says no more than strings would: one message a column, of a user or an assistant, with nothing but a text."""
    if not {"tools", "chat_template_kwargs"}.isdisjoint(line):
        return False
    columns = [line[name] for name in ("prompt", "chosen", "rejected", "completion") if name in line] + line.get("responses", [])
    return all(
        len(messages) == 1
        and messages[0].keys() == {"role", "content"}
        and messages[0]["role"] in ("user", "assistant")
        and isinstance(messages[0]["content"], str)
        for messages in columns
    )


# Merged tables: the records of other tables, in an order.


class Copies(Struct, frozen=True):
    """The records that a merged table must hold, in order: int64[n] each.

    Attributes:
        part, record: number of the table that has it, and of the record there.
        file, row: of the record in the index of the merged table; `domain`: of each, `None` where the index does not say it.
    """

    part: Ints
    record: Ints
    file: Ints
    row: Ints
    domain: Ints | None = None


def check_copies(name: str, table: Table, parts: Sequence[Table], copies: Copies) -> Verdict:
    """Compare every record of a table with the one that it must be, column by column.

    Args:
        name: of the stream or file.
        parts: the tables that it was made from.
    """
    noun, first, of_lines = "record", next(iter(table.columns.values())), bool(table.has("json"))
    numbers = {"records_checked": len(table), "tokens_checked": int(first.ends[-1]) if len(table) else 0}
    if of_lines:
        noun, numbers = "line", {"lines_checked": len(table)}
    if len(table) != len(copies.record):
        return fails(name, f"it has {len(table):,} {noun}s, and must have {len(copies.record):,}", numbers)
    fault = next(filter(None, (_origin_fault(table, copies, column) for column in ("domain", "file", "row"))), None)
    keys = sorted({*table.columns} - {MARGIN})
    if fault is None and any(sorted({*part.columns} - {MARGIN}) != keys for part in parts):
        return fails(name, f"it has {keys}, its parts have {[sorted(part.columns) for part in parts]}", numbers)
    if any(MARGIN in each.columns for each in (table, *parts)):
        keys.append(MARGIN)
    columns = {key: (column_of(table, key), [column_of(part, key) for part in parts]) for key in keys}
    for records in batches(first.ends, BLOCK) if fault is None else ():
        faults = (_copy_fault(key, *columns[key], records, copies) for key in keys)
        if fault := min(filter(None, faults), key=lambda fault: fault[0], default=None):
            break
    if fault is not None:
        return fails(f"{name} {noun} {fault[0] + of_lines:,}", fault[1], numbers)
    return Verdict(True, f"{len(table):,} {noun}s of {name} are those of their domains{', in their order' if of_lines else ''}", numbers)


def _origin_fault(table: Table, copies: Copies, column: str) -> tuple[int, str] | None:
    """The first record whose index says another domain, file or row."""
    stored, needed = getattr(table.origins, column), getattr(copies, column)
    for part in stretches(len(table)) if needed is not None else ():
        wrong = np.flatnonzero(np.asarray(stored[part]) != needed[part])
        if len(wrong):
            at = part.start + int(wrong[0])
            return at, f"has the {column} {int(stored[at]):,}, and must have {int(needed[at]):,}"
    return None


def _copy_fault(key: str, column: Ragged, parts: Sequence[Ragged], records: slice, copies: Copies) -> tuple[int, str] | None:
    """The first of some records that has other values of a column than its part."""
    number, starts, ends = copies.part[records], column.starts_of(records), column.ends[records]
    begins, stops = spans_of(parts, number, copies.record[records])
    unequal = np.flatnonzero(ends - starts != stops - begins)
    count = int(unequal[0]) if len(unequal) else len(number)
    stored = gather([column.values], np.zeros_like(number[:count]), starts[:count], ends[:count])
    expected = gather([part.values for part in parts], number[:count], begins[:count], stops[:count])
    if (place := first_difference(stored, expected)) is not None:
        at = int(np.searchsorted(ends[:count] - starts[0], place, "right"))
        if key == "line":
            return records.start + at, f"is not as its domain has it: {_bytes(column, records.start + at)!r}"
        within = place - int(starts[at] - starts[0])
        return records.start + at, f"{key} differs from its part at place {within:,}: {stored[place]}, there {expected[place]}"
    if count == len(number):
        return None
    what = f"has {int(ends[count] - starts[count]):,} {key}, its part has {int(stops[count] - begins[count]):,}"
    if key == "line":
        what = f"is not as its domain has it: {_bytes(column, records.start + count)!r}"
    return records.start + count, what


def _bytes(column: Ragged, line: int) -> bytes:
    return column.arrays(line)[0].tobytes()[:200]
