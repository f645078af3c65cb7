"""Which schema fits some rows: every registered schema is tried on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import Refused
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import Schema, convert_with, schemas


@dataclass(frozen=True, slots=True)
class Fit:
    """How one schema, with its default options, takes some rows.

    Attributes:
        schema: its name.
        fitting: how many of the rows it converts.
        rows: how many rows there were.
        unread: fields of the converted rows that it does not read and that are not known to be safe to ignore, in the order of their first
            appearance.
        passed_over: fields that it does not read, and whose names say that nothing is lost without them.
        refusal: the first refusal as ``reason: detail``; ``""`` where every row fits.
    """

    schema: str
    fitting: int
    rows: int
    unread: tuple[str, ...]
    passed_over: tuple[str, ...]
    refusal: str


def sniff(payloads: Sequence[Mapping[str, Any]]) -> list[Fit]:
    """How each registered schema fits `payloads`, best first.

    Best is what converts most rows, then what leaves fewest fields unread, then a plain schema before one for a special purpose, then the
    name.
    """
    fits = [_fit(found, payloads) for found in schemas().values()]
    return sorted(fits, key=lambda fit: (-fit.fitting, len(fit.unread) + len(fit.passed_over), _specialty(fit.schema), fit.schema))


def _fit(found: Schema, payloads: Sequence[Mapping[str, Any]]) -> Fit:
    account = Account()
    reader = Reader(convert_with(found.name), account)
    fitting, refusal = 0, ""
    for payload in payloads:
        try:
            apply(reader, payload)
        except Refused as refused:
            refusal = refusal or str(refused)
        else:
            fitting += 1
    return Fit(found.name, fitting, len(payloads), tuple(account.unknown), tuple(account.counts), refusal)


def _specialty(name: str) -> int:
    """1: another project's name for a schema, or one that does something particular to rows which a plain schema reads as well; 2: one that
    makes pretraining text of rows that are something else."""
    if name.endswith("PretrainHandler"):
        return 2
    return int("_hook" in name or name.endswith("Handler") or name in ("common_words_mask", "sections"))
