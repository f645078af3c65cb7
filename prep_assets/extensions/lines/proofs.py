"""Proofs of lines: against their rows, and of what several say of one prompt."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.proofs.second_reading import fingerprint
from prep_assets.proofs.verdict import Numbers, Rule, Verdict, Worst, added, holds, some_fail
from prep_assets.samples import ASSISTANT, COMPLETION
from prep_assets.stores.files import Digests, dumps

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
    seen = Digests()
    for name, rows in files.items():
        for number, row in enumerate(rows, 1):
            fault, digest = fault_of(name, row), fingerprint(row.get(key))
            if not name.endswith("test"):
                seen.add(digest)
            elif fault is None and digest in seen:
                fault = ON_BOTH_SIDES.format(key)
            yield name, f"{name} line {number:,}", row, fault


def contradicted(said: tuple[str, str] | None, known: Digests) -> bool:
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
