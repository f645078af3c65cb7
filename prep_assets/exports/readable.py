"""Sources of exports, and one form in which the rows of all formats are read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.stores.groups import STREAMS, GroupStore, open_groups
from prep_assets.stores.guards import Guards
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens
from prep_assets.stores.version_folders import Published

# Sources of exports, and opening a store's folder as one.

SIDES = ("chosen", "rejected")
BLOCK = 1 << 24
REMEDIES = {"megatron": "Set the option layout: instruction"}


class Pairs(Struct, frozen=True):
    """Tokenized preference pairs: record i of `chosen` and of `rejected` answer one prompt."""

    chosen: TokenStore
    rejected: TokenStore

    def __post_init__(self) -> None:
        if (
            not np.array_equal(self.chosen.row, self.rejected.row)
            or "loss_mask" not in self.chosen.arrays
            or "loss_mask" not in self.rejected.arrays
        ):
            raise StoreError(
                f"these are not pairs: {len(self.chosen):,} chosen and {len(self.rejected):,} rejected records, which must be of the same rows "
                "and have a loss_mask. Build the store again"
            )

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def margins(self) -> npt.NDArray[np.float32] | None:
        """float32[n], the margin of each pair, NaN where it has none; `None` where none has one."""
        return self.chosen.margins


Source = PackedStore | TokenStore | Pairs | GroupStore | Lines


def open_source(store: Published | Path | str, stream: str | None = None, guards: Guards | None = None) -> Source:
    """Open the packed table, token stream, pairs of streams, scored groups or lines in a store's folder.

    Args:
        store: the folder that has the payload, e.g. ``stores/sft_packed/current``.
        stream: which stream, if the folder has several; for pairs and groups, the folder of the held-out ones.
        guards: how data is compared with the manifest; by default each block when it is first read.

    Raises:
        StoreError: the folder has no stream, or several and `stream` is not given.
    """
    folder = store.directory if isinstance(store, Published) else Path(store)
    tables, streams = _stems(folder, "documents"), _stems(folder, "index")
    names = sorted({*tables, *streams})
    if stream is None and set(names) == set(SIDES):
        return Pairs(*(open_tokens(folder, side, guards) for side in SIDES))
    if stream is not None and (folder / stream / f"{SIDES[0]}.index").is_dir():
        return Pairs(*(open_tokens(folder / stream, side, guards) for side in SIDES))
    if stream is None and set(names) == set(STREAMS):
        return open_groups(folder, guards)
    if stream is not None and (folder / stream / f"{STREAMS[0]}.index").is_dir():
        return open_groups(folder / stream, guards)
    if stream is None and len(names) != 1:
        problem = f"several: {', '.join(names)}. Say which with stream=…" if names else "none of ours. Give the folder that has the payload"
        raise StoreError(f"{folder}: one token stream, table or JSONL file is exported at a time, found {problem}")
    name = names[0] if stream is None else stream
    if name in tables:
        return open_packed(folder, name, guards)
    if name not in streams:
        raise StoreError(f"{folder} has no stream {name!r}{nearest(name, names) or '.'} It has: {', '.join(names) or 'none'}")
    return open_lines(folder, name, guards) if (folder / f"{name}.jsonl").is_file() else open_tokens(folder, name, guards)


def has_unattended(source: Source) -> bool:
    """Whether a source has an attention mask."""
    if isinstance(source, PackedStore):
        return source.attention_mask is not None
    return isinstance(source, TokenStore) and ATTENTION in source.arrays


def _stems(folder: Path, suffix: str) -> list[str]:
    return sorted(path.stem for path in folder.glob(f"*.{suffix}") if path.is_dir())


def lost_mask_error(format: str, subject: str) -> ConfigError:
    """Return the error for an export that would drop the loss mask of `subject`."""
    remedy = REMEDIES.get(format, "Export a packed table, or to another format")
    return ConfigError(f"{format} would lose the loss mask of {subject}, and every token would be trained. {remedy}")


def check_mask(source: TokenStore, format: str) -> None:
    """Raises:
    ConfigError: the stream has untrained tokens.
    """
    if "loss_mask" not in source.arrays:
        return
    mask = source.arrays["loss_mask"]
    untrained = sum(int(np.count_nonzero(np.asarray(mask[start : start + BLOCK]) == 0)) for start in range(0, source.tokens, BLOCK))
    if untrained:
        raise lost_mask_error(format, f"this stream, in which {untrained:,} of {source.tokens:,} tokens are not trained")


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


def is_masked(source: Source) -> bool:
    """Return whether a store of tokens says which are trained."""
    return isinstance(source, PackedStore) or (isinstance(source, TokenStore) and "loss_mask" in source.arrays)


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


def ends_of(source: TokenStore | PackedStore) -> Ints:
    """int64[n], ends of the rows in a format that stores them end to end, padding included."""
    return np.arange(1, len(source) + 1) * source.row_len if isinstance(source, PackedStore) else source.ends


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


def require_filled(filled: Sequence[int], limit: int, sizes: Ints | None = None) -> None:
    """Raise for files that do not hold whole rows, each as many as `limit` allows.

    Args:
        filled: what each file holds: rows, or tokens or bytes of them.
        limit: the most of these that a file may hold; a larger row is alone in its file.
        sizes: of each row, in tokens or bytes.

    Raises:
        StoreError: a file holds more or less, or ends inside a row.
    """
    used, first = np.asarray(filled, np.int64), np.ones(len(filled), np.int64)
    if sizes is not None:
        sums, ends = np.cumsum(np.append(0, sizes[sizes > 0])), np.cumsum(np.append(0, used))
        at = np.searchsorted(sums, ends)
        if sums[-1] != ends[-1] or (sums[at] != ends).any():
            raise StoreError(f"files with {filled[:20]} do not end where rows do")
        first = np.diff(sums)[at[:-1]]
    if ((used > limit) & (used != first)).any() or (used[:-1] + first[1:] <= limit).any():
        raise StoreError(f"files hold {filled[:20]}; each should hold as many rows as {limit:,} allows")


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
