"""AstrAI's directory layout, written shard by shard.

    bin, shards   <domain>/shard_0000/{meta.json, <key>.bin}     see `prep_assets.stores.shards`
    bin, flat     <domain>/{meta.json, <key>.bin}                the layout of AstrAI's first days: one shard a domain
    h5            <domain>/data_0000.h5                          /<key>/data_0

Values wait in one file a key below ``.raw`` until their shard is full, so that memory holds some blocks of tokens, not shards.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.columns import Cells, Row
from prep_assets.astrai.task import SEQUENCE, Column, Task
from prep_assets.errors import ConfigError
from prep_assets.packing import PackPlan, gather_rows, pack, position_ids
from prep_assets.packing.pieces import within
from prep_assets.stores.shards import BinShard, Borders, write_h5_shard

Layout = Literal["shards", "flat"]
FLUSH_TOKENS = 1 << 21
"""Tokens that are held in memory before they go to the waiting files."""
RAW = ".raw"
BLOCK = 1 << 22
"""Elements written at a time."""
Array = npt.NDArray[Any]


@dataclass(slots=True)
class _Pending:
    """What a domain's next shard will hold.

    Attributes:
        tokens: of the primary output.
        records: lengths of each record's cells, by key.
        elements: lengths of the elements of lists, by key.
        held: values that are not in the waiting files yet, by key.
    """

    tokens: int = 0
    records: dict[str, list[int]] = field(default_factory=dict)
    elements: dict[str, list[int]] = field(default_factory=dict)
    held: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)

    def borders(self) -> Borders:
        """Where records, and elements of lists, begin and end."""
        found = {key: {"offsets": _cumulative(lengths)} for key, lengths in self.records.items()}
        for key, lengths in self.elements.items():
            found[key]["element_offsets"] = _cumulative(lengths)
        return found


@dataclass(slots=True)
class Totals:
    """What is on disk.

    Attributes:
        shards: records, tokens and keys of each shard, by its path.
        cut_by_packing, cut_records: tokens that ``max_packed_len`` cut off, and of how many outputs of records.
        padding: places of bins that hold no token.
    """

    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    cut_by_packing: int = 0
    cut_records: int = 0
    padding: int = 0


def _cumulative(lengths: list[int]) -> list[int]:
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]


class ShardWriter:
    """Writes rows into one folder a domain. A shard holds whole records and at most ``max_tokens_per_shard`` tokens, or one longer record.

    Raises:
        ConfigError: ids, or positions, that the configured dtype does not hold; a second shard in the flat layout.
    """

    def __init__(self, root: Path, task: Task, *, pad_id: int, layout: Layout = "shards") -> None:
        if layout == "flat" and task.pipeline.output.storage_format != "bin":
            raise ConfigError("--layout flat is a layout of bin files; h5 has none. Leave it out")
        self._root, self._task, self._pad_id, self._layout = root, task, pad_id, layout
        self._open: dict[str, _Pending] = {}
        self._written: dict[str, int] = {}
        self._held = 0
        self.totals = Totals()

    def append(self, folder: str, row: Row) -> None:
        """Add a record to a domain."""
        cells = {key: self._packed(key, cell) for key, cell in row.cells.items()}
        size = len(cells[self._task.primary].values)
        pending = self._open.setdefault(folder, _Pending())
        if pending.tokens and pending.tokens + size > self._task.pipeline.output.max_tokens_per_shard:
            self._finish(folder)
            pending = self._open.setdefault(folder, _Pending())
        pending.tokens += size
        for key, cell in cells.items():
            values = _fitted(cell.values, self._task.columns[key], key)
            pending.held.setdefault(key, []).append(values)
            pending.records.setdefault(key, []).append(len(values))
            if cell.lengths is not None:
                pending.elements.setdefault(key, []).extend(cell.lengths)
            self._held += len(values)
        if self._held >= FLUSH_TOKENS:
            self._flush()

    def close(self) -> None:
        """Write the last shards. Nothing is left in `.raw`."""
        for folder in list(self._open):
            self._finish(folder)
        shutil.rmtree(self._root / RAW, ignore_errors=True)

    def _packed(self, key: str, cell: Cells) -> Cells:
        """``simple`` packing: each sequence cut to ``max_packed_len``. Bins are cut when the shard is arranged."""
        steps = self._task.pipeline.preprocessing
        limit = steps.max_packed_len
        if self._task.is_binned or self._task.columns[key].kind == "values" or max(cell.lengths or (len(cell.values),)) <= limit:
            return cell
        keep = slice(-limit, None) if steps.truncation_mode == "keep_end" else slice(0, limit)
        parts = np.split(cell.values, np.cumsum(cell.lengths)[:-1]) if cell.lengths else [cell.values]
        kept = [part[keep] for part in parts]
        if key in self._task.sources:
            self.totals.cut_records += 1
            self.totals.cut_by_packing += len(cell.values) - sum(map(len, kept))
        return Cells(np.concatenate(kept), tuple(map(len, kept)) if cell.lengths else None)

    def _raw(self, folder: str, key: str) -> Path:
        return self._root / RAW / folder / key

    def _flush(self) -> None:
        for folder, pending in self._open.items():
            for key, values in pending.held.items():
                path = self._raw(folder, key)
                path.parent.mkdir(parents=True, exist_ok=True)
                joined = np.concatenate(values)
                with path.open("ab") as file:
                    joined.astype(joined.dtype.newbyteorder("<"), copy=False).tofile(file)
            pending.held.clear()
        self._held = 0

    def _raw_values(self, folder: str, key: str, count: int) -> npt.NDArray[Any]:
        dtype = np.dtype(self._task.columns[key].dtype).newbyteorder("<")
        if not count:
            return np.zeros(0, dtype)
        return np.memmap(self._raw(folder, key), dtype, "r", shape=(count,))

    def _finish(self, folder: str) -> None:
        self._flush()
        pending = self._open.pop(folder)
        number = self._written.get(folder, 0)
        self._written[folder] = number + 1
        raw = {key: self._raw_values(folder, key, sum(lengths)) for key, lengths in pending.records.items()}
        lengths = np.array(pending.records[SEQUENCE] if self._task.single else [], np.int64)
        arranged = arrange(self._task, raw, lengths, self._pad_id)
        name = self._write(folder, number, arranged, {} if self._task.single else pending.borders())
        counts = {"records": len(pending.records[self._task.primary]), "tokens": pending.tokens}
        if arranged.bins is not None:
            self.totals.cut_by_packing += arranged.left_out
            if arranged.left_out:
                self.totals.cut_records += int((lengths > self._task.pipeline.preprocessing.max_packed_len).sum())
            counts = {**counts, "bins": arranged.bins, "tokens": pending.tokens - arranged.left_out}
            self.totals.padding += arranged.sizes[SEQUENCE] - counts["tokens"]
        keys = {key: {"shape": [arranged.sizes[key]], "dtype": column.dtype} for key, column in self._task.columns.items()}
        self.totals.shards[name] = {**counts, "keys": keys}
        del raw, arranged
        shutil.rmtree(self._root / RAW / folder)

    def _write(self, folder: str, number: int, arranged: Arranged, borders: Borders) -> str:
        columns = self._task.columns
        dtypes = {key: column.dtype for key, column in columns.items()}

        def blocks(key: str) -> Iterator[npt.NDArray[Any]]:
            return (_fitted(block, columns[key], key) for block in arranged.blocks(key))

        if self._task.pipeline.output.storage_format == "h5":
            name = f"{folder}/data_{number:04d}.h5"
            write_h5_shard(self._root / name, dtypes, arranged.sizes, blocks, borders)
            return name
        if self._layout == "flat" and number:
            raise ConfigError(f"domain {folder}: --layout flat has one shard a domain, and max_tokens_per_shard is reached. Raise it")
        name = folder if self._layout == "flat" else f"{folder}/shard_{number:04d}"
        with BinShard(self._root / name, dtypes) as shard:
            for key in columns:
                for block in blocks(key):
                    shard.append(key, block)
            shard.borders = borders
        return name


def _fitted(values: npt.NDArray[Any], column: Column, key: str) -> npt.NDArray[Any]:
    """`values` in the column's type. A reward or position that it does not hold stops the run instead of becoming infinite or negative."""
    dtype = np.dtype(column.dtype)
    with np.errstate(over="ignore"):
        found = values.astype(dtype, copy=False)
    reach = np.abs(values).max(initial=0) if column.kind in ("values", "positions") else 0
    lost = not np.isfinite(found).all() if dtype.kind == "f" else dtype.kind in "iu" and reach > np.iinfo(dtype).max
    if lost:
        reached, held = (f"{reach:g}", f"{np.finfo(dtype).max:g}") if dtype.kind == "f" else (f"{reach:,}", f"{np.iinfo(dtype).max:,}")
        raise ConfigError(f"{key} reach {reached}, {dtype} holds {held}. Set output.dtype.{key} to a wider type")
    return found


@dataclass(frozen=True, slots=True)
class Arranged:
    """A shard, ready to be written.

    Attributes:
        sizes: number of elements of each key.
        blocks: the elements of a key, in blocks.
        bins: how many bins of `max_packed_len` it has; `None` where records are not packed.
        left_out: tokens of records longer than a bin that are in none.
    """

    sizes: Mapping[str, int]
    blocks: Callable[[str], Iterator[Array]]
    bins: int | None = None
    left_out: int = 0


def arrange(task: Task, raw: Mapping[str, Array], lengths: npt.NDArray[np.int64], pad_id: int) -> Arranged:
    """The shard of records whose values stand one after another in `raw`.

    Args:
        raw: values of each key except position ids.
        lengths: int64[n], tokens of each record of a single-output task; unused with several outputs.
        pad_id: the token that fills the bins; it is never trained.
    """
    if not task.is_binned:
        total = int(lengths.sum())
        sizes = {key: total if column.kind == "positions" else len(raw[key]) for key, column in task.columns.items()}
        return Arranged(sizes, lambda key: _flat(task, key, raw, lengths))
    plan = bin_plan(task, lengths)
    starts = np.cumsum(lengths) - lengths
    sizes = dict.fromkeys(task.columns, plan.rows * plan.row_len)
    left_out = int(plan.dropped[:, 2].sum())
    return Arranged(sizes, lambda key: _binned(task, key, raw, plan, starts, pad_id), plan.rows, left_out)


def bin_plan(task: Task, lengths: npt.NDArray[np.int64]) -> PackPlan:
    """Bins of ``max_packed_len``: best fit, longest first, ties to the earliest record and bin, as AstrAI's ``bfd`` and ``bfd_split``."""
    steps = task.pipeline.preprocessing
    if steps.packing_strategy == "bfd_split":
        return pack(lengths, steps.max_packed_len, "bfd_split")
    plan = pack(lengths, steps.max_packed_len, "bfd", overlong="truncate")
    if steps.truncation_mode == "keep_start":
        return plan
    # the same pieces, taken from the other end of the documents that are too long
    dropped = plan.dropped.copy()
    dropped[:, 1] = 0
    return replace(plan, start=lengths[plan.record] - plan.length, dropped=dropped)


def _flat(task: Task, key: str, raw: Mapping[str, Array], lengths: npt.NDArray[np.int64]) -> Iterator[Array]:
    if task.columns[key].kind != "positions":
        yield from (raw[key][at : at + BLOCK] for at in range(0, len(raw[key]), BLOCK))
        return
    ends = np.cumsum(lengths)
    first = begin = 0
    while first < len(lengths):
        stop = max(first + 1, int(np.searchsorted(ends, begin + BLOCK, "right")))
        continuous = task.pipeline.output.position_ids_mode == "continuous"
        yield np.arange(begin, ends[stop - 1]) if continuous else within(lengths[first:stop])
        first, begin = stop, int(ends[stop - 1])


def _binned(task: Task, key: str, raw: Mapping[str, Array], plan: PackPlan, starts: npt.NDArray[np.int64], pad_id: int) -> Iterator[Array]:
    column: Column = task.columns[key]
    step = max(1, BLOCK // plan.row_len)
    for first in range(0, plan.rows, step):
        rows = slice(first, min(first + step, plan.rows))
        if column.kind != "positions":
            yield gather_rows(raw[key], starts, plan, rows, fill=pad_id if column.kind == "ids" else 0).ravel()
        elif task.pipeline.output.position_ids_mode == "doc_reset":
            yield position_ids(plan, rows, "doc_reset").ravel()
        else:
            yield np.arange(first * plan.row_len, rows.stop * plan.row_len)
