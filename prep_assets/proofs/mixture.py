"""Which records of which domains a packed table must hold, and in which order: worked out from the options alone.

A domain's random numbers are raw outputs of PCG64, seeded by the sha256 of ``seed/name``: one draw to choose records, one for each pass over
them, one for their places among those of other domains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import at, joined, made, order, sums

Ints = npt.NDArray[np.int64]
START: Ints = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Order:
    """Records in the order in which they are packed: int64[n] each; `source` numbers the domains, which are sorted."""

    source: Ints
    record: Ints
    length: Ints


def expected_order(lengths: Mapping[str, Ints], packing: Mapping[str, Any]) -> Order:
    """The records of a table.

    Args:
        lengths: tokens of each record, by domain.
        packing: ``weights``, ``epochs``, ``max_items``, ``seed`` and ``shuffle`` of the options.
    """
    names, shuffle = sorted(lengths), bool(packing["shuffle"])
    draws = {name: np.random.PCG64(int(hashlib.sha256(f"{packing['seed']}/{name}".encode()).hexdigest(), 16)) for name in names}
    records = {name: _records(len(lengths[name]), name, packing, draws[name] if shuffle else None) for name in names}
    if packing.get("weights"):
        ends = {name: joined([START, sums(at(lengths[name], records[name]))]) for name in names}
        shares = {name: Fraction(packing["weights"][name]) for name in names}
        total = min(Fraction(int(ends[name][-1])) / shares[name] for name in names if shares[name])
        records = {name: records[name][: _nearest(ends[name], shares[name] * total)] for name in names}
    found = Order(
        joined([np.broadcast_to(number, len(records[name])) for number, name in enumerate(names)]),
        joined(list(records.values())),
        joined([at(lengths[name], records[name]) for name in names]),
    )
    if not shuffle:
        return found
    shuffled = order(joined([_ranks(draws[name], len(records[name])) for name in names], np.uint64))
    return Order(*(at(column, shuffled) for column in (found.source, found.record, found.length)))


def _records(count: int, name: str, packing: Mapping[str, Any], draw: np.random.PCG64 | None) -> Ints:
    """What a domain offers, pass after pass."""
    most = (packing.get("max_items") or {}).get(name)
    pool = made(count, lambda part: np.arange(part.start, part.stop)) if draw is None else order(_ranks(draw, count))
    pool = pool[:most]
    left, passes = int(len(pool) * (packing.get("epochs") or {}).get(name, 1.0) + 0.5), list[Ints]()
    while left > 0:
        one = pool if draw is None else at(pool, order(_ranks(draw, len(pool))))
        passes.append(one[:left])
        left -= len(pool)
    return joined(passes)


def _ranks(draw: np.random.PCG64, count: int) -> npt.NDArray[np.uint64]:
    return made(count, lambda part: draw.random_raw(part.stop - part.start), np.uint64)


def _nearest(ends: Ints, target: Fraction) -> int:
    """How many records have, together, nearest to `target` tokens; fewer on a tie."""
    near = int(np.searchsorted(ends, ceil(target)))
    return min((max(0, near - 1), near), key=lambda count: (abs(int(ends[count]) - target), count))
