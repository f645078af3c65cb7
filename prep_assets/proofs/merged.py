"""A merged store against the stores that it was made from: all their lines or records, once each, as they are there, in the order that is asked for."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.verdict import Verdict, fails
from prep_assets.stores.arrays import Spool, made
from prep_assets.stores.arrays import numbers as each_of
from prep_assets.stores.tokens import TokenStore

Ints = npt.NDArray[np.int64]
_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Lines and where each comes from: int64[n, 3], its domain, file and row."""

    origin: Ints
    lines: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """The records that a merged stream must hold, in order: int64[n] each.

    Attributes:
        part, record: number of a store, and of a record in it.
        file, row: what the index of the merged stream must say of it.
    """

    part: Ints
    record: Ints
    file: Ints
    row: Ints


def check_merged_lines(name: str, merged: MergedRows, parts: MergedRows, seed: int | None) -> Verdict:
    """Compare every line of a merged file.

    Args:
        name: of the file.
        parts: the lines of all domains, end to end.
        seed: of the shuffle; `None` where there is none.
    """
    count, numbers = len(parts.origin), {"lines_checked": len(merged.origin)}
    if len(merged.origin) != count:
        return fails(name, f"it has {len(merged.origin):,} lines, its domains have {count:,}", numbers)
    order = _order(count, seed)
    for first in range(0, count, _AT_ONCE):
        here, expected = merged.origin[first : first + _AT_ONCE], parts.origin[order[first : first + _AT_ONCE]]
        wrong = np.flatnonzero((here != expected).any(axis=1))
        if len(wrong):
            found, needed = (tuple(each[wrong[0]].tolist()) for each in (here, expected))
            where = f"{name} line {first + int(wrong[0]) + 1:,}"
            return fails(where, f"is of (domain, file, row) {found}, and must be of {needed}", numbers)
    digests = _digests(parts.lines)
    for at, line in enumerate(merged.lines):
        if blake2b(line, digest_size=16).digest() != digests[order[at]].tobytes():
            return fails(f"{name} line {at + 1:,}", f"is not as its domain has it: {line[:200]!r}", numbers)
    return Verdict(True, f"{count:,} lines of {name} are those of their domains, in their order", numbers)


def _order(count: int, seed: int | None) -> Ints:
    """Which line of the domains each merged line is."""
    order = made(count, lambda part: np.arange(part.start, part.stop))
    if seed is not None:
        random.Random(seed).shuffle(memoryview(order))  # type: ignore[arg-type]
    return order


def _digests(lines: Iterable[bytes]) -> npt.NDArray[np.uint8]:
    """uint8[n, 16]."""
    spool, each = Spool(np.uint8), iter(lines)
    while some := b"".join(blake2b(line, digest_size=16).digest() for line in islice(each, _AT_ONCE)):
        spool.append(np.frombuffer(some, np.uint8))
    found = spool.array()
    return found.reshape(len(found) // 16, 16)


def check_merged_records(
    name: str, merged: TokenStore, parts: Sequence[TokenStore], asked: Asked, source: npt.NDArray[np.int32] | None = None
) -> Verdict:
    """Compare every record of a merged stream, value by value.

    Args:
        name: of the stream.
        parts: the streams that it was made from.
        source: the number of the part that the merged store says each record is of; `None` where it says nothing.
    """
    numbers = {"records_checked": len(merged), "tokens_checked": merged.tokens}
    if len(merged) != len(asked.record):
        return fails(name, f"it has {len(merged):,} records, and must have {len(asked.record):,}", numbers)
    said: list[tuple[str, npt.NDArray[Any], Ints]] = [
        ("file", merged.file, asked.file),
        ("row", merged.row, asked.row),
        ("domain", asked.part if source is None else source, asked.part),
    ]
    for column, found, needed in said:
        wrong = np.flatnonzero(np.asarray(found) != needed)
        if len(wrong):
            at = int(wrong[0])
            return fails(f"{name} record {at:,}", f"has the {column} {int(found[at]):,}, and must have {int(needed[at]):,}", numbers)
    keys = sorted(merged.arrays)
    if any(sorted(part.arrays) != keys for part in parts):
        return fails(name, f"it has {keys}, its parts have {[sorted(part.arrays) for part in parts]}", numbers)
    for at, (part, record) in enumerate(zip(each_of(asked.part), each_of(asked.record), strict=True)):
        for key in keys:
            here, there = merged.record(at, key), parts[part].record(record, key)
            if np.array_equal(here, there):
                continue
            what = f"has {len(here):,} {key}, its part has {len(there):,}"
            if len(here) == len(there):
                place = int((here != there).argmax())
                what = f"{key} differs from its part at place {place:,}: {here[place]}, there {there[place]}"
            return fails(f"{name} record {at:,}", what, numbers)
    return Verdict(True, f"{len(merged):,} records of {name} are those of their domains", numbers)
