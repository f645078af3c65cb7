"""One form in which the rows of all formats are read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, StoreError
from prep_assets.proofs.tables import require_filled
from prep_assets.stores.table import Table

# What a format that has no masks loses.

REMEDIES = {"megatron": "Set the option layout: instruction"}


def lost_mask_error(format: str, subject: str) -> ConfigError:
    """Return the error for an export that would drop the loss mask of `subject`."""
    remedy = REMEDIES.get(format, "Export a packed table, or to another format")
    return ConfigError(f"{format} would lose the loss mask of {subject}, and every token would be trained. {remedy}")


def check_mask(source: Table, format: str) -> None:
    """Raises:
    ConfigError: the stream has untrained tokens.
    """
    tokens = int(source.lengths.sum())
    if source.trained is not None and (untrained := tokens - int(source.trained.sum())):
        raise lost_mask_error(format, f"this stream, in which {untrained:,} of {tokens:,} tokens are not trained")


# Rows of exports, in one form for all formats. The functions registered with `reads` give them.

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """One row of an export.

    Attributes:
        tokens: int64[T], possibly right-padded; or the rewards of a group, float32[G].
        trained: bool[T], unshifted loss mask; `None` if the format has none.
        starts: starts of the documents in the row; `None` if the format does not store them. Padding may count as documents.
        attended: int8[T], 1 attended, 0 not attended, -1 not stored for this token; `None` if the format has no attention mask.
        images: path and token positions of each image, positions `None` if the format does not store them; `None` without images.
    """

    tokens: npt.NDArray[Any]
    trained: npt.NDArray[np.bool_] | None = None
    starts: Ints | None = None
    images: tuple[tuple[str, tuple[int, ...] | None], ...] | None = None
    attended: npt.NDArray[Any] | None = None


def without_nulls(value: Any) -> Any:
    """A JSON value without the null keys of its objects: columns store a missing key as null."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def gold_again(gold: Any) -> Any:
    """The text of a gold as trainers compare it: whole numbers without a fraction; null stays null."""
    return f"{gold:.0f}" if isinstance(gold, int | float) and gold == round(gold) else None if gold is None else str(gold)


def _unchanged(line: dict[str, Any], number: int) -> Any:
    return line


class Readable(Struct, frozen=True, eq=False):
    """An opened export.

    Attributes:
        count: number of its rows.
        row: returns row i: `Tokens` of one sequence, of both sides of a pair, or of a group's prompt, responses and rewards; of lines,
            anything comparable with `expected`.
        documents: whether the rows are the documents of a packed table.
        width: tokens of each sequence, padding included; `None` if the format has no padding.
        expected: maps a line of the source and its number to the row that this format has for it.
    """

    count: int
    row: Callable[[int], Any]
    documents: bool = False
    expected: Callable[[dict[str, Any], int], Any] = _unchanged
    width: int | None = None


def labelled(tokens: Any, label_ids: Any, starts: Ints | None = None) -> Tokens:
    """Return a row from its unshifted labels: the token itself where trained, -100 elsewhere."""
    ids, labels = np.asarray(tokens, np.int64), np.asarray(label_ids, np.int64)
    trained = labels != -100
    if len(ids) != len(labels) or (ids != labels)[trained].any():
        raise StoreError(f"{len(labels):,} labels of {len(ids):,} tokens are neither the token at their place nor -100")
    return Tokens(ids, trained, starts)


def starts_of(position_ids: Any) -> Ints:
    """Return where documents start, by positions that count from 0 in each; each token of the padding, at 0, is a start too.

    Raises:
        StoreError: positions count otherwise.
    """
    positions = np.asarray(position_ids, np.int64)
    starts = np.flatnonzero(positions == 0)
    counted = np.arange(len(positions))
    if len(positions) and (positions[0] or (positions != counted - np.repeat(starts, np.diff(starts, append=len(positions)))).any()):
        raise StoreError(f"position_ids {positions[:20].tolist()} … do not count from 0 in each document")
    return starts


def row_slicer(tokens: Any, mask: Any, ends: Any, positions: Any = None) -> Callable[[int], tuple[Tokens]]:
    """Return a reader of rows that are stored end to end; row i stops at ``ends[i]``."""

    def row(number: int) -> tuple[Tokens]:
        part = slice(int(ends[number - 1]) if number else 0, int(ends[number]))
        starts = None if positions is None else starts_of(positions[part])
        return (Tokens(np.asarray(tokens[part], np.int64), None if mask is None else np.asarray(mask[part]) != 0, starts),)

    return row


def locate_row(ends: Ints, number: int) -> tuple[int, int]:
    """The part that holds a row, and the row's number in it; `ends` are the cumulative row counts of the parts."""
    part = int(np.searchsorted(ends, number, "right"))
    return part, number - (int(ends[part - 1]) if part else 0)


def require_rows_per_file(files: Sequence[Path], rows_per_file: int, row_group: int) -> None:
    """Raise unless Parquet files, and row groups in them, have as many rows as they may."""
    import pyarrow.parquet as pq

    known = list(map(pq.read_metadata, files))
    require_filled([about.num_rows for about in known], rows_per_file)
    for about in known:
        require_filled([about.row_group(at).num_rows for at in range(about.num_row_groups)], row_group)


def parquet_table(files: list[Path]) -> Any:
    """Read Parquet files as one `pyarrow.Table`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])
