"""Merged stores against the stores of their domains: all lines or records, once each, unchanged, in the configured order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.proofs.verdict import Verdict, fails
from prep_assets.stores.arrays import Spool, fill_column
from prep_assets.stores.arrays import numbers as each_of
from prep_assets.stores.tokens import TokenStore

_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Lines, and the origin of each: int64[n, 3], domain, file and row."""

    origin: Ints
    lines: Iterable[bytes]


class Asked(Struct, frozen=True):
    """The records that a merged stream must hold, in order: int64[n] each.

    Attributes:
        part, record: number of the source store, and of the record in it.
        file, row: file and row of the record in the index of the merged stream.
    """

    part: Ints
    record: Ints
    file: Ints
    row: Ints


def check_merged_lines(name: str, merged: MergedRows, parts: MergedRows, seed: int | None) -> Verdict:
    """Compare every line of a merged file.

    Args:
        name: name of the file.
        parts: the lines of all domains, end to end.
        seed: seed of the shuffle; `None` for no shuffle.
    """
    count, numbers = len(parts.origin), {"lines_checked": len(merged.origin)}
    if len(merged.origin) != count:
        return fails(name, f"it has {len(merged.origin):,} lines, its domains have {count:,}", numbers)
    order = _order(count, seed)
    for first in range(0, count, _AT_ONCE):
        stored, expected = merged.origin[first : first + _AT_ONCE], parts.origin[order[first : first + _AT_ONCE]]
        wrong = np.flatnonzero((stored != expected).any(axis=1))
        if len(wrong):
            stored_origin, expected_origin = (tuple(origins[wrong[0]].tolist()) for origins in (stored, expected))
            where = f"{name} line {first + int(wrong[0]) + 1:,}"
            return fails(where, f"is of (domain, file, row) {stored_origin}, and must be of {expected_origin}", numbers)
    digests = _digests(parts.lines)
    for at, line in enumerate(merged.lines):
        if blake2b(line, digest_size=16).digest() != digests[order[at]].tobytes():
            return fails(f"{name} line {at + 1:,}", f"is not as its domain has it: {line[:200]!r}", numbers)
    return Verdict(True, f"{count:,} lines of {name} are those of their domains, in their order", numbers)


def _order(count: int, seed: int | None) -> Ints:
    """int64[n]: the line of the domains that each merged line is."""
    order = fill_column(count, lambda part: np.arange(part.start, part.stop))
    if seed is not None:
        random.Random(seed).shuffle(memoryview(order))  # type: ignore[arg-type]
    return order


def _digests(lines: Iterable[bytes]) -> npt.NDArray[np.uint8]:
    """uint8[n, 16]: the digest of each line."""
    spool, remaining = Spool(np.uint8), iter(lines)
    while batch := b"".join(blake2b(line, digest_size=16).digest() for line in islice(remaining, _AT_ONCE)):
        spool.append(np.frombuffer(batch, np.uint8))
    flat = spool.array()
    return flat.reshape(len(flat) // 16, 16)


def check_merged_records(
    name: str, merged: TokenStore, parts: Sequence[TokenStore], asked: Asked, source: npt.NDArray[np.int32] | None = None
) -> Verdict:
    """Compare every record of a merged stream, value by value.

    Args:
        name: name of the stream.
        parts: the streams that it was made from.
        source: part number of each record in the index of the merged store; `None` where it has none.
    """
    numbers = {"records_checked": len(merged), "tokens_checked": merged.tokens}
    if len(merged) != len(asked.record):
        return fails(name, f"it has {len(merged):,} records, and must have {len(asked.record):,}", numbers)
    columns: list[tuple[str, npt.NDArray[Any], Ints]] = [
        ("file", merged.file, asked.file),
        ("row", merged.row, asked.row),
        ("domain", asked.part if source is None else source, asked.part),
    ]
    for column, values, needed in columns:
        wrong = np.flatnonzero(np.asarray(values) != needed)
        if len(wrong):
            at = int(wrong[0])
            return fails(f"{name} record {at:,}", f"has the {column} {int(values[at]):,}, and must have {int(needed[at]):,}", numbers)
    if (fault := _margin_fault(merged, parts, asked)) is not None:
        return fails(f"{name} record {fault[0]:,}", fault[1], numbers)
    keys = sorted(merged.arrays)
    if any(sorted(part.arrays) != keys for part in parts):
        return fails(name, f"it has {keys}, its parts have {[sorted(part.arrays) for part in parts]}", numbers)
    for at, (part, record) in enumerate(zip(each_of(asked.part), each_of(asked.record), strict=True)):
        for key in keys:
            stored, original = merged.record(at, key), parts[part].record(record, key)
            if np.array_equal(stored, original):
                continue
            what = f"has {len(stored):,} {key}, its part has {len(original):,}"
            if len(stored) == len(original):
                place = int((stored != original).argmax())
                what = f"{key} differs from its part at place {place:,}: {stored[place]}, there {original[place]}"
            return fails(f"{name} record {at:,}", what, numbers)
    return Verdict(True, f"{len(merged):,} records of {name} are those of their domains", numbers)


def _margin_fault(merged: TokenStore, parts: Sequence[TokenStore], asked: Asked) -> tuple[int, str] | None:
    """The first record with another margin than in its part, or with one in one place only."""
    for first in range(0, len(merged), _AT_ONCE):
        part, record = asked.part[first : first + _AT_ONCE], asked.record[first : first + _AT_ONCE]
        expected = np.full(len(part), np.nan)
        for number, stream in enumerate(parts):
            members = np.flatnonzero(part == number)
            expected[members] = np.nan if stream.margins is None else stream.margins[record[members]]
        stored = np.full(len(part), np.nan) if merged.margins is None else merged.margins[first : first + len(part)]
        wrong = np.flatnonzero((stored != expected) & ~(np.isnan(stored) & np.isnan(expected)))
        if len(wrong):
            at = int(wrong[0])
            return first + at, f"has the margin {stored[at]:g}, its part has {expected[at]:g}"
    return None
