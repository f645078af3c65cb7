"""Verdicts of checks: on a store, one of its streams, or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from prep_assets.stores.files import dumps
from prep_assets.stores.manifest import Ruled
from prep_assets.stores.manifest import Worst as Worst

_SHOWN = 400


def shown(row: Mapping[str, Any]) -> str:
    """Return a row as JSON, shortened where it is long."""
    return dumps(row)[:_SHOWN]


Numbers = Mapping[str, float]


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
