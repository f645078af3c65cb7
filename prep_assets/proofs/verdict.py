"""What a check says."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check.

    Attributes:
        passed: whether it holds on everything that was looked at.
        summary: one sentence with numbers.
        numbers: figures that are plotted over time, e.g. ``rows_checked``.
        worst: the row to look at where it does not hold.
    """

    passed: bool
    summary: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    worst: Worst | None = None
