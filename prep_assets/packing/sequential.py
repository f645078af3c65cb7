"""The two strategies that keep the order of the records: both answer with a row for each piece."""

from __future__ import annotations

import numpy as np

from prep_assets.disk.columns import made, sums, zeros
from prep_assets.packing.pieces import Pieces, cut
from prep_assets.packing.plan import Ints


def concatenated(lengths: Ints, row_len: int) -> tuple[Pieces, Ints]:
    """The pieces and rows of the one long stream of all documents, cut every `row_len` tokens.

    A document has one piece in each row it touches. The same stream as ``pack_examples`` of train-llm-from-scratch, before its tail
    is dropped.
    """
    ends = sums(lengths)
    shift = made(lengths.size, lambda part: (ends[part] - lengths[part]) % row_len)
    pieces = cut(lengths, row_len, made(lengths.size, lambda part: -(-(shift[part] + lengths[part]) // row_len)), shift)
    placed = sums(pieces.length)
    return pieces, made(placed.size, lambda part: (placed[part] - 1) // row_len)


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
