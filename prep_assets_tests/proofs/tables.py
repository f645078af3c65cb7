"""Small tables, whose places can be counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from prep_assets.stores.images import NO_IMAGES, Images
from prep_assets.stores.table import LINES, TOKENS, Origins, Pieces, Ragged, Table, packed_table

EOS, PAD, SIZE = 0, 3, 10


def store(
    *records: list[int],
    masks: list[list[float]] | None = None,
    rows: Sequence[int] | None = None,
    file: int = 0,
    images: Images = NO_IMAGES,
) -> Table:
    """A table of these records, of successive rows of a file."""
    ends, count = np.cumsum([len(record) for record in records], dtype=np.int64), len(records)
    arrays: dict[str, Any] = {"tokens": np.array([*chain(*records)], np.int32)}
    if masks is not None:
        arrays["loss_mask"] = np.array([*chain(*masks)], np.float32)
    origins = Origins(("",), np.zeros(count, int), np.full(count, file), np.arange(count) if rows is None else np.array(rows))
    columns = {key: Ragged(array, ends) for key, array in arrays.items()}
    return Table("", TOKENS, count, origins, columns, images=images)


def with_column(table: Table, name: str, values: Any) -> Table:
    """With another column of its tokens, or other values in one."""
    column = Ragged(np.asarray(values).reshape(-1), table.columns["tokens"].ends, table.columns["tokens"].starts)
    return replace(table, columns={**table.columns, name: column})


def lines(texts: Sequence[bytes], origin: Any) -> Table:
    """A table of lines, with domain, file and row of each."""
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    column = Ragged(np.frombuffer(b"".join(texts), np.uint8), ends)
    return Table("", LINES, len(texts), Origins((), *np.asarray(origin).reshape(-1, 3).T), {"line": column})


RECORDS = [[5, 6, 7], [8, 9], [5, 5, 5, 5]]
MASKS = [[0.0, 1.0, 1.0], [0.0, 1.0], [1.0, 0.0, 0.0, 1.0]]


def packed(values: Mapping[str, Any], pieces: Mapping[str, Any], domains: Sequence[str] = ("a",), images: Images = NO_IMAGES) -> Table:
    """A table of packed rows, column by column (rows, width), and its pieces."""
    arrays = {key: np.array(rows) for key, rows in values.items()}
    rows, width = arrays["tokens"].shape
    fields = {field: np.array(numbers, np.int64) for field, numbers in pieces.items()}
    return packed_table("", {key: array.reshape(-1) for key, array in arrays.items()}, Pieces(domains, fields), rows, width, images)


def table(**changes: list[Any]) -> Table:
    """Rows of 5: records 0 and 1 in the first, record 2 and one place of padding in the second."""
    rows = {"tokens": [[5, 6, 7, 8, 9], [5, 5, 5, 5, PAD]], "loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 1, 0]]}
    pieces = {"row": [0, 0, 1], "row_offset": [0, 3, 0], "length": [3, 2, 4], "source": [0, 0, 0], "record": [0, 1, 2], "start": [0, 0, 0]}
    columns = {key: changes.get(key, rows.get(key)) for key in {**rows, **changes} if key not in pieces}
    return packed(columns, {key: changes.get(key, value) for key, value in pieces.items()})
