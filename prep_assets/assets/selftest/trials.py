"""Trials of the selftest: a mutation, and how often the check that is there for it noticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prep_assets.proofs.verdict import Verdict

ROWS = 64
"""Rows that are copied from a stream."""
TRIES = 8
"""Rows that each mutation is done to."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one mutation came to.

    Attributes:
        mutation: what was done; ``""`` for the clean rows.
        check: the check that must fail (for the clean rows: none may).
        tried, caught: on how many rows it was tried, and how often the check failed. None lends itself to it where it was tried on 0 rows.
        shown: what the check said the first time.
    """

    mutation: str
    check: str
    tried: int
    caught: int
    shown: str

    @property
    def passed(self) -> bool:
        """Whether every corruption was caught, or every clean row passed."""
        return self.caught == self.tried


def tried(name: str, check: str, verdicts: Iterable[Verdict]) -> Trial:
    """The trial of a mutation that was done to several rows."""
    every = list(verdicts)
    return Trial(name, check, len(every), sum(not verdict.passed for verdict in every), every[0].summary if every else "")


def clean(what: str, verdicts: Iterable[Verdict]) -> Trial:
    """The trial of rows that nothing was done to."""
    every = list(verdicts)
    failed = "; ".join(verdict.summary for verdict in every if not verdict.passed)
    return Trial("", what, len(every), sum(verdict.passed for verdict in every), failed)


def chosen(rows: Sequence[object]) -> range:
    """Which rows mutations are done to."""
    return range(0, len(rows), max(1, len(rows) // TRIES))


def each_once(checks: Mapping[tuple[str, str], Verdict]) -> list[Trial]:
    """Trials of mutations that are done to a whole table: name and check → what the check says."""
    return [tried(name, check, [verdict]) for (name, check), verdict in checks.items()]
