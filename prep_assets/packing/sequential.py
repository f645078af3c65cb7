"""The two strategies that keep the order of the records: both answer with a row for each piece."""

from __future__ import annotations

import numpy as np

from prep_assets.packing.pieces import Pieces, nothing_dropped, within
from prep_assets.packing.plan import Ints


def concatenated(lengths: Ints, row_len: int) -> tuple[Pieces, Ints]:
    """The pieces and rows of the one long stream of all documents, cut every `row_len` tokens.

    A document has one piece in each row it touches. The same stream as ``pack_examples`` of train-llm-from-scratch, before its tail
    is dropped.
    """
    ends = np.cumsum(lengths)
    begins = ends - lengths
    first_row, last_row = begins // row_len, (ends - 1) // row_len
    parts = last_row - first_row + 1
    record = np.repeat(np.arange(lengths.size), parts)
    row = first_row[record] + within(parts)
    begin = np.maximum(begins[record], row * row_len)
    length = np.minimum(ends[record], (row + 1) * row_len) - begin
    return Pieces(record, begin - begins[record], length, length, nothing_dropped()), row


def next_fit(lengths: Ints, row_len: int) -> Ints:
    """int64[P], the row of each piece: a piece that does not fit into the current row opens the next.

    Where a row ends depends only on where it begins, so the ends for all possible beginnings are found at once, and then followed.
    """
    ends = np.cumsum(lengths)
    stops = np.searchsorted(ends, ends - lengths + row_len, side="right").tolist()
    opens = np.zeros(lengths.size, dtype=np.int64)
    begin = 0
    begins = []
    while begin < lengths.size:
        begins.append(begin)
        begin = stops[begin]
    opens[begins] = 1
    return np.cumsum(opens) - 1
