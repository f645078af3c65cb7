"""What a check says: of a store, of one of its streams, or of a part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prep_assets.stores.files import dumps

_SHOWN = 400


def shown(row: Mapping[str, Any]) -> str:
    """A row as JSON, its beginning where it is long."""
    return dumps(row)[:_SHOWN]


@dataclass(frozen=True, slots=True)
class Worst:
    """The row that fails most plainly, to be shown with its wrong tokens.

    Attributes:
        where: record id or row number.
        note: what is wrong with it: expected and found.
        ids: its token ids; empty where it has none.
        weights: their loss weights.
        at: the first of its tokens that is wrong; -1 where that is not known.
        derivations: both derivations, stretch by stretch: what is stored, and what the source says.
    """

    where: str
    note: str
    ids: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    at: int = -1
    derivations: tuple[tuple[str, str], ...] = ()


Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check.

    Attributes:
        passed: whether it holds on everything that was looked at.
        summary: one sentence with numbers.
        numbers: figures that are plotted over time, e.g. ``rows_checked``.
        worst: the row to look at where it does not hold.
        say: makes the sentence of the figures where it holds, so that the verdicts on parts of a store can be merged; `None` where they cannot.
    """

    passed: bool
    summary: str
    numbers: Numbers = field(default_factory=dict)
    worst: Worst | None = None
    say: Callable[[Numbers], str] | None = field(default=None, compare=False, repr=False)


def holds(say: Callable[[Numbers], str], numbers: Numbers) -> Verdict:
    """A check that holds, with the sentence that `say` makes of its figures."""
    return Verdict(True, say(numbers), numbers, say=say)


def fails(where: str, what: str, numbers: Numbers, ids: Any = (), weights: Any = (), at: int = -1) -> Verdict:
    """A check that fails: at which row, and what is wrong with it. For `ids`, `weights` and `at` see `Worst`."""
    worst = Worst(where, what, tuple(map(int, ids)), tuple(map(float, weights)), at)
    return Verdict(False, f"{where}: {what}", numbers, worst)


def some_fail(failed: int, count: int, what: str, worst: Worst, numbers: Numbers) -> Verdict:
    """A check that fails on some rows: how many of all, what is wrong with them, and the first of them."""
    return Verdict(False, f"{failed:,} of {count:,} {what}; first {worst.where}: {worst.note}", numbers, worst)


def merged(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a stream of which every part holds: the figures added up, in the sentence of one."""
    say = parts[0].say
    assert say is not None
    return holds(say, added(parts))


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several streams or files: the first that fails, with the figures of all; else all sentences."""
    found = list(verdicts)
    failed = next((verdict for verdict in found if not verdict.passed), None)
    if failed is not None:
        return Verdict(False, failed.summary, added(found), failed.worst)
    return Verdict(True, "; ".join(verdict.summary for verdict in found), added(found))


def added(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """The figures of several verdicts, added up."""
    numbers: dict[str, float] = {}
    for verdict in verdicts:
        for key, value in verdict.numbers.items():
            numbers[key] = numbers.get(key, 0) + value
    return numbers
