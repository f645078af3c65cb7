"""Lines of a JSONL store against their sources: each says what its row says, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.disk.strict_json import dumps
from prep_assets.proofs.plain_reading import as_text
from prep_assets.proofs.verdict import Verdict, Worst


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        id: of the row that it says it comes from.
        stored: the object on the line.
        made: what the row gives when it is converted again; `None` where it gives nothing.
        plain: what the row says by a second reading, text by text; `None` where it takes the schema to say.
    """

    id: str
    stored: Mapping[str, Any]
    made: Mapping[str, Any] | None
    plain: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Alike:
    """Lines that were compared with their rows, all at once, and are those; `twice`: whether by a second reading as well."""

    count: int
    twice: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found of the lines of a file: figures, and the first line that fails."""

    numbers: Mapping[str, int]
    worst: Worst | None


def check_lines(lines: Iterable[Line | Alike], *, stored: int) -> Verdict:
    """Compare every line.

    Args:
        stored: how many lines there are; as many must have a row.
    """
    return lines_verdict([compared(lines)], stored=stored)


def compared(lines: Iterable[Line | Alike]) -> Compared:
    """Compare the lines of a file."""
    numbers = {"lines_checked": 0, "lines_failed": 0, "lines_read_twice": 0}
    worst: Worst | None = None
    for line in lines:
        if isinstance(line, Alike):
            numbers["lines_checked"] += line.count
            numbers["lines_read_twice"] += line.count * line.twice
            continue
        fault = _fault(line)
        numbers["lines_checked"] += 1
        numbers["lines_read_twice"] += line.plain is not None
        if fault is not None:
            numbers["lines_failed"] += 1
            worst = worst or Worst(line.id, fault)
    return Compared(numbers, worst)


def lines_verdict(files: Sequence[Compared], *, stored: int) -> Verdict:
    """The verdict on several files; `stored` as in `check_lines`."""
    numbers = {key: sum(file.numbers[key] for file in files) for key in ("lines_checked", "lines_failed", "lines_read_twice")}
    worst = next((file.worst for file in files if file.worst is not None), None)
    if numbers["lines_checked"] != stored:
        what = f"{stored:,} lines are stored, {numbers['lines_checked']:,} rows of the sources are theirs"
        return Verdict(False, what, numbers, worst or Worst("index", what))
    if worst is not None:
        summary = f"{numbers['lines_failed']:,} of {stored:,} lines differ from their rows; first {worst.where}: {worst.note}"
        return Verdict(False, summary, numbers, worst)
    return Verdict(True, f"{stored:,} lines are those of their rows, {numbers['lines_read_twice']:,} also by a second reading", numbers)


def _fault(line: Line) -> str | None:
    if line.made is None:
        return "its row gives no line"
    if line.stored != line.made or _types(line.stored) != _types(line.made):
        key = next(
            (key for key in {**line.made, **line.stored} if _written(line.stored, key) != _written(line.made, key)), "order of fields"
        )
        return f"{key} is {_written(line.stored, key)[:200]}, its row gives {_written(line.made, key)[:200]}"
    for key, text in (line.plain or {}).items():
        if as_text(line.stored[key]) != text:
            return f"{key} is {_written(line.stored, key)[:200]}, by a second reading its row says {text[:200]!r}"
    return None


def _types(row: Mapping[str, Any]) -> list[type]:
    """1, 1.0 and true are equal to Python, and three things to a trainer."""
    return [type(value) for value in row.values()]


def _written(row: Mapping[str, Any], key: str) -> str:
    return dumps(row[key]) if key in row else "missing"
