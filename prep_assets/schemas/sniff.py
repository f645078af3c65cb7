"""Which schema fits some rows: every registered schema is tried on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import Refused
from prep_assets.schemas.registry import Schema, apply, convert_with, schemas


@dataclass(frozen=True, slots=True)
class Fit:
    """How one schema, with its default options, takes some rows.

    Attributes:
        schema: its name.
        fitting: how many of the rows it converts.
        rows: how many rows there were.
        unread: fields of the converted rows that it never looked at, in the order of their first appearance.
        refusal: the first refusal as ``reason: detail``; ``""`` where every row fits.
    """

    schema: str
    fitting: int
    rows: int
    unread: tuple[str, ...]
    refusal: str


def sniff(payloads: Sequence[Mapping[str, Any]]) -> list[Fit]:
    """How each registered schema fits `payloads`, best first.

    Best is what converts most rows, then what leaves fewest fields unread, then a plain schema before one for a special purpose, then the
    name.
    """
    fits = [_fit(found, payloads) for found in schemas().values()]
    return sorted(fits, key=lambda fit: (-fit.fitting, len(fit.unread), _specialty(fit.schema), fit.schema))


def _fit(found: Schema, payloads: Sequence[Mapping[str, Any]]) -> Fit:
    convert = convert_with(found.name)
    fitting, refusal, unread = 0, "", dict[str, None]()
    for payload in payloads:
        row = _Watched(payload)
        try:
            apply(convert, row)
        except Refused as refused:
            refusal = refusal or str(refused)
        else:
            fitting += 1
            unread.update((key, None) for key in payload if key not in row.read)
    return Fit(found.name, fitting, len(payloads), tuple(unread), refusal)


def _specialty(name: str) -> int:
    """1: another project's name for a schema, or one that does something particular to rows which a plain schema reads as well; 2: one that
    makes pretraining text of rows that are something else."""
    if name.endswith("PretrainHandler"):
        return 2
    return int("_hook" in name or name.endswith("Handler") or name in ("common_words_mask", "sections"))


class _Watched(Mapping[str, Any]):
    """A row that remembers which of its fields were read."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        value = self._row[key]
        self.read.add(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)
