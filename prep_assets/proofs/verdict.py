"""Verdicts of checks: on a store, one of its streams, or a part of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any, Generic, TypeVar

from prep_assets.stores.files import dumps
from prep_assets.stores.manifest import Ruled
from prep_assets.stores.manifest import Worst as Worst

_SHOWN = 400


def shown(row: Mapping[str, Any]) -> str:
    """Return a row as JSON, shortened where it is long."""
    return dumps(row)[:_SHOWN]


Numbers = Mapping[str, float]
AS_FLOAT32: Mapping[str, Any] = {"rtol": 2.0**-24, "atol": 2.0**-150}
"""A number that is stored as float32 is off by half of its last bit at most, and of its smallest step near 0."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check.

    Attributes:
        passed: whether the check holds on everything it covers.
        summary: one sentence with numbers.
        numbers: figures that are plotted over time, e.g. ``rows_checked``.
        worst: the row to show where it fails.
        warns: whether people should look at it, though it holds.
        ruled: the rules of the configuration that judged it, and what it was without them; `None` without rules.
        say: figures → summary, for merging the verdicts on parts of a store; `None` where they cannot be merged.
    """

    passed: bool
    summary: str
    numbers: Numbers = field(default_factory=dict)
    worst: Worst | None = None
    warns: bool = False
    ruled: Ruled | None = None
    say: Callable[[Numbers], str] | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        mark = "⚠" if self.passed and self.warns else "✓" if self.passed else "✗"
        numbers = "".join(f"<tr><th>{escape(name)}</th><td>{value:,}</td></tr>" for name, value in self.numbers.items())
        return f"<p><b>{mark}</b> {escape(self.summary)}</p><table>{numbers}</table>"


def holds(say: Callable[[Numbers], str], numbers: Numbers) -> Verdict:
    """Return a passing verdict, with the summary that `say` makes of its figures."""
    return Verdict(True, say(numbers), numbers, say=say)


def fails(where: str, what: str, numbers: Numbers, ids: Any = (), weights: Any = (), at: int = -1) -> Verdict:
    """Return a failing verdict: the row, and what is wrong with it. For `ids`, `weights` and `at` see `Worst`."""
    worst = Worst(where, what, tuple(map(int, ids)), tuple(map(float, weights)), at)
    return Verdict(False, f"{where}: {what}", numbers, worst)


def some_fail(failed: int, count: int, what: str, worst: Worst, numbers: Numbers) -> Verdict:
    """Return a failing verdict on several rows: how many of all, what is wrong, and the first."""
    return Verdict(False, f"{failed:,} of {count:,} {what}; first {worst.where}: {worst.note}", numbers, worst)


def wrong_claim(amounts: Numbers, claimed: Numbers) -> str:
    """Return the first number that a manifest does not say, or says wrongly; ``""`` for none. A share may be off by 1e-9."""
    for name, number in amounts.items():
        if name not in claimed:
            return f"{name} is {number:,}, and the manifest does not say it"
        if not abs(claimed[name] - number) <= 1e-9:
            return f"{name} is {number:,}, the manifest says {claimed[name]:,}"
    return ""


def merged(parts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a whole whose parts all hold, with the sum of their figures."""
    say = parts[0].say
    assert say is not None
    return holds(say, added(parts))


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several streams or files: the first failing one, with the sum of all figures; else all summaries."""
    all_verdicts = list(verdicts)
    failed = next((verdict for verdict in all_verdicts if not verdict.passed), None)
    if failed is not None:
        return Verdict(False, failed.summary, added(all_verdicts), failed.worst)
    return Verdict(True, "; ".join(verdict.summary for verdict in all_verdicts), added(all_verdicts))


def added(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Return the sum of the figures of several verdicts."""
    numbers: dict[str, float] = {}
    for verdict in verdicts:
        for key, value in verdict.numbers.items():
            numbers[key] = numbers.get(key, 0) + value
    return numbers


T = TypeVar("T", bound=Any)


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """What must hold of each of many items, which have an `id`.

        check_margins = Rule(_margin_fault, ("pairs_checked", "margins_checked"), say)
        check_margins(pairs)  # the verdict on all of them

    Attributes:
        judge: an item, and the figures so far, to which it adds → what is wrong with the item; nothing where it holds.
        figures: their names; they begin at 0, and the first counts the items.
        say: figures → summary.
        failing: the figure that counts what fails, ``""`` for none, and what is said of it: all items are judged. Without it the first that fails is the
            last.
        whole: figures → what is wrong with all items together.
        nothing: the summary where there is no item.
    """

    judge: Callable[[T, Counter[str]], str | Worst | None]
    figures: tuple[str, ...]
    say: Callable[[Numbers], str]
    failing: tuple[str, str] | None = None
    whole: Callable[[Numbers], str] | None = None
    nothing: str = ""

    def __call__(self, items: Iterable[T]) -> Verdict:
        """Judge all items."""
        tally = Tally(self)
        tally.add(items)
        return tally.verdict()


class Tally(Generic[T]):
    """A rule applied to items as they come: their figures, how many fail, and the first of these."""

    def __init__(self, rule: Rule[T]) -> None:
        self._rule, self.numbers, self._failed = rule, Counter(dict.fromkeys(rule.figures, 0)), 0
        self._worst: Worst | None = None

    def add(self, items: Iterable[T]) -> None:
        """Judge more items."""
        stops = self._rule.failing is None
        for item in () if stops and self._worst else items:
            if fault := self._rule.judge(item, self.numbers):
                self._worst, self._failed = self._worst or (fault if isinstance(fault, Worst) else Worst(item.id, fault)), self._failed + 1
                if stops:
                    return

    def verdict(self) -> Verdict:
        """The verdict on all items so far."""
        rule, numbers, worst = self._rule, dict(self.numbers), self._worst
        if rule.failing is not None:
            numbers |= {rule.failing[0]: self._failed} if rule.failing[0] else {}
        if worst is None:
            fault = rule.whole(numbers) if rule.whole else ""
            return fails("all records", fault, numbers) if fault else holds(partial(_say, rule.figures[0], rule.say, rule.nothing), numbers)
        if rule.failing is None:
            return Verdict(False, f"{worst.where}: {worst.note}", numbers, worst)
        return some_fail(self._failed, numbers[rule.figures[0]], rule.failing[1], worst, numbers)


def _say(first: str, say: Callable[[Numbers], str], nothing: str, numbers: Numbers) -> str:
    return say(numbers) if numbers[first] or not nothing else nothing
