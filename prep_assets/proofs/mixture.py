"""Which records of which domains a packed table must hold, and in which order: worked out from the options alone.

A domain's random numbers are raw outputs of PCG64, seeded by the sha256 of ``seed/name``: one draw to choose records, one for each pass over
them, one for their places among those of other domains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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
        tokens = {name: np.concatenate([[0], np.cumsum(lengths[name][records[name]])]) for name in names}
        shares = {name: Fraction(packing["weights"][name]) for name in names}
        total = min(Fraction(int(tokens[name][-1])) / shares[name] for name in names if shares[name])
        records = {name: records[name][: _nearest(tokens[name], shares[name] * total)] for name in names}
    source = np.concatenate([np.full(len(records[name]), number) for number, name in enumerate(names)] or [np.zeros(0, np.int64)])
    record = np.concatenate([*records.values(), np.zeros(0, np.int64)]).astype(np.int64)
    length = np.concatenate([*(lengths[name][records[name]] for name in names), np.zeros(0, np.int64)]).astype(np.int64)
    if shuffle and len(record):
        rank = np.concatenate([draws[name].random_raw(len(records[name])) for name in names])
        order = np.argsort(rank, kind="stable")
        source, record, length = source[order], record[order], length[order]
    return Order(source.astype(np.int64), record, length)


def _records(count: int, name: str, packing: Mapping[str, Any], draw: np.random.PCG64 | None) -> Ints:
    """What a domain offers, pass after pass."""
    most = (packing.get("max_items") or {}).get(name, count)
    pool = np.arange(count) if draw is None else np.argsort(draw.random_raw(count), kind="stable")
    pool = pool[:most]
    left, passes = int(len(pool) * (packing.get("epochs") or {}).get(name, 1.0) + 0.5), [np.zeros(0, np.int64)]
    while left > 0:
        one = pool if draw is None else pool[np.argsort(draw.random_raw(len(pool)), kind="stable")]
        passes.append(one[:left])
        left -= len(pool)
    return np.concatenate(passes).astype(np.int64)


def _nearest(ends: Ints, target: Fraction) -> int:
    """How many records have, together, nearest to `target` tokens; fewer on a tie."""
    near = int(np.searchsorted(ends, int(target)))
    around = range(max(0, near - 1), min(len(ends), near + 2))
    return min(around, key=lambda count: (abs(int(ends[count]) - target), count))
