"""Trials of the selftest: a mutation, and how often the check that is there for it noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.tokens import TokenStore

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


def trials_of(
    subject: Any,
    count: int,
    mutations: Iterable[Mutation],
    checks: Mapping[str, Callable[[Any], Verdict]],
    *more: Any,
    what: str = "every check",
) -> list[Trial]:
    """Every check passes a subject as it is, and notices every mutation that is done to some of what it holds.

    Args:
        count: how many there are to corrupt; none of nothing.
        checks: by the names that mutations are caught by.
        more: what mutations are given beside the subject and a number.
        what: the clean subject.
    """
    found = [clean(what, [check(subject) for check in checks.values()])] if count else []
    for mutation in mutations if count else ():
        corrupted = [changed for at in chosen(count) if (changed := mutation.change(subject, at, *more)) is not None]
        found.append(tried(mutation.name, mutation.caught_by, [checks[mutation.caught_by](each) for each in corrupted]))
    return found


def tried(name: str, check: str, verdicts: Sequence[Verdict]) -> Trial:
    """The trial of a mutation that was done to several rows."""
    shown = verdicts[0].summary if verdicts else ""
    return Trial(name, check, len(verdicts), sum(not verdict.passed for verdict in verdicts), shown)


def clean(what: str, verdicts: Sequence[Verdict]) -> Trial:
    """The trial of rows that nothing was done to."""
    failed = "; ".join(verdict.summary for verdict in verdicts if not verdict.passed)
    return Trial("", what, len(verdicts), sum(verdict.passed for verdict in verdicts), failed)


def chosen(count: int) -> range:
    """Which of so many rows mutations are done to."""
    return range(0, count, max(1, count // TRIES))


def stream_of(tokens: Sequence[Any], **arrays: Any) -> TokenStore:
    """Rows of token ids as a stream in memory, with what else it has."""
    ends = np.cumsum([len(ids) for ids in tokens])
    found = {"tokens": np.concatenate(list(tokens)), **arrays}
    return TokenStore(found, ends, np.zeros(len(tokens), np.int32), np.arange(len(tokens)))
