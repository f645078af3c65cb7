"""`pack`: lengths of records to a pack plan, by one of five strategies. Two of them keep the order of the records."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import made, order, sums, zeros
from prep_assets.errors import ConfigError, nearest
from prep_assets.packing.decreasing import BestFit, FirstFit, place
from prep_assets.packing.pieces import Overlong, Pieces, checked_lengths, concatenated, cut_to_rows
from prep_assets.packing.plan import Ints, PackPlan

Strategy = Literal["concat", "simple", "ffd", "bfd", "bfd_split"]
Tail = Literal["pad", "drop"]


def pack(lengths: npt.ArrayLike, row_len: int, strategy: Strategy, *, tail: Tail = "pad", overlong: Overlong = "raise") -> PackPlan:
    """Plan rows of `row_len` tokens for records of the given lengths.

    Records of 5, 2 and 4 tokens in rows of 6 (``.`` is padding)::

        concat     aaaaab bcccc.    one stream, cut every 6 tokens: documents straddle rows
        simple     aaaaa. bbcccc    order kept, no document straddles
        ffd, bfd   aaaaa. ccccbb    longest first, into the first row / the tightest row that has space
        bfd_split                   as bfd, after cutting documents longer than a row at multiples of 6

    The same lengths always give the same plan: equal lengths keep the order of the records, equal spaces take the earliest row.

    Args:
        lengths: int[N], tokens per record, each at least 1.
        row_len: tokens per row.
        strategy: see above.
        tail: whether ``concat`` pads its last, short row or drops it (as train-llm-from-scratch does).
        overlong: what ``simple``, ``ffd`` and ``bfd`` do with documents longer than a row: ``"raise"``; ``"truncate"`` to the first
            `row_len` tokens; ``"drop"``; ``"split"`` at multiples of `row_len`. The other two strategies cut such documents anyway.

    Raises:
        ConfigError: an unknown word, a `row_len` below 1, or an option that means nothing to the strategy.
        PrepAssetsError: a record without tokens, or documents that are too long under ``"raise"``.
    """
    _check_options(row_len, strategy, tail, overlong)
    checked = checked_lengths(lengths)
    if strategy == "concat":
        return _concat(checked, row_len, tail)
    pieces = cut_to_rows(checked, row_len, "split" if strategy == "bfd_split" else overlong)
    if strategy == "simple":
        return pieces.plan(row_len, next_fit(pieces.length, row_len))
    return _decreasing(row_len, pieces, first_fit=strategy == "ffd")


def _concat(lengths: Ints, row_len: int, tail: Tail) -> PackPlan:
    pieces, row = concatenated(lengths, row_len)
    if tail == "pad":
        return pieces.plan(row_len, row)
    full = int(np.searchsorted(row, int(lengths.sum()) // row_len))
    cut = pieces.at(np.arange(full, row.size))
    dropped = np.stack([cut.record, cut.start, cut.length], axis=1)
    kept = Pieces(pieces.record[:full], pieces.start[:full], pieces.length[:full], pieces.size[:full], dropped)
    return kept.plan(row_len, row[:full])


def _decreasing(row_len: int, pieces: Pieces, *, first_fit: bool) -> PackPlan:
    most = int(pieces.size.max(initial=0))
    longest_first = pieces.at(order(made(pieces.size.size, lambda part: most - pieces.size[part])))
    rows = FirstFit(_most_rows(pieces.length, row_len)) if first_fit else BestFit(row_len)
    return longest_first.plan(row_len, place(longest_first.length, row_len, rows))


def _most_rows(lengths: Ints, row_len: int) -> int:
    """First fit never needs more: of two rows at most half full, the later one's pieces would have gone into the earlier."""
    return min(lengths.size, 2 * int(lengths.sum()) // row_len + 1)


def _check_options(row_len: int, strategy: str, tail: str, overlong: str) -> None:
    for name, word, allowed in (("strategy", strategy, Strategy), ("tail", tail, Tail), ("overlong", overlong, Overlong)):
        words = get_args(allowed)
        if word not in words:
            raise ConfigError(f"packing {name} {word!r} is not one of {', '.join(words)}{nearest(str(word), words)}")
    if row_len < 1:
        raise ConfigError(f"a row must have at least 1 token, got row_len {row_len}")
    if tail == "drop" and strategy != "concat":
        raise ConfigError(f"tail='drop' drops the last, short row of 'concat'; every row of {strategy!r} may be short. Use tail='pad'")
    if overlong in ("truncate", "drop") and strategy in ("concat", "bfd_split"):
        raise ConfigError(
            f"overlong={overlong!r} means nothing to {strategy!r}, which cuts documents that are longer than a row and keeps every part. "
            "Leave overlong out, or choose 'simple', 'ffd' or 'bfd'"
        )


def next_fit(lengths: Ints, row_len: int) -> Ints:
    """int64[P], the row of each piece: a piece that does not fit into the current row opens the next.

    Where a row ends depends only on where it begins, so the ends for all possible beginnings are found at once, and then followed.
    """
    ends = sums(lengths)
    stops = made(lengths.size, lambda part: np.searchsorted(ends, ends[part] - lengths[part] + row_len, side="right")).data
    opens = zeros(lengths.size, np.uint8)
    begin = 0
    while begin < lengths.size:
        opens[begin] = 1
        begin = stops[begin]
    rows = sums(opens)
    rows -= 1
    return rows
