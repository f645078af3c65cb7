"""AstrAI's directory layout, written shard by shard.

    bin, shards   <domain>/shard_0000/{meta.json, <key>.bin}     raw little-endian elements; meta.json is written last
    bin, flat     <domain>/{meta.json, <key>.bin}                the layout of AstrAI's first days: one shard a domain
    h5            <domain>/data_0000.h5                          /<key>/data_0, contiguous and uncompressed

``meta.json`` is ``{"<key>": {"shape": [n], "dtype": "int32"}, …}``. Where records have several outputs, each entry also has ``offsets``,
where each record begins and the last one ends; lists within a record (the responses of a group) have ``element_offsets`` besides. HDF5
files have these in ``data_0000.offsets.json``, because readers take everything inside a key's group for data.

Values wait in one file a key below ``.raw`` until their shard is full, so that memory holds some blocks of tokens, not shards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.arrange import Arranged, arrange
from prep_assets.astrai.columns import Cells, Row
from prep_assets.astrai.task import SEQUENCE, Column, Task
from prep_assets.errors import ConfigError

Layout = Literal["shards", "flat"]
FLUSH_TOKENS = 1 << 21
"""Tokens that are held in memory before they go to the waiting files."""
RAW = ".raw"


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
            values = _held(cell.values, self._task.columns[key], key)
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

    # -- waiting files ------------------------------------------------------------------------------------------------------------------

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

    # -- shards -------------------------------------------------------------------------------------------------------------------------

    def _finish(self, folder: str) -> None:
        self._flush()
        pending = self._open.pop(folder)
        number = self._written.get(folder, 0)
        self._written[folder] = number + 1
        raw = {key: self._raw_values(folder, key, sum(lengths)) for key, lengths in pending.records.items()}
        lengths = np.array(pending.records[SEQUENCE] if self._task.single else [], np.int64)
        arranged = arrange(self._task, raw, lengths, self._pad_id)
        name = self._write(folder, number, arranged, pending)
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

    def _write(self, folder: str, number: int, arranged: Arranged, pending: _Pending) -> str:
        if self._task.pipeline.output.storage_format == "h5":
            return self._write_h5(folder, number, arranged, pending)
        if self._layout == "flat" and number:
            raise ConfigError(f"domain {folder}: --layout flat has one shard a domain, and max_tokens_per_shard is reached. Raise it")
        name = folder if self._layout == "flat" else f"{folder}/shard_{number:04d}"
        shard = self._root / name
        shard.mkdir(parents=True)
        for key, column in self._task.columns.items():
            with (shard / f"{key}.bin").open("wb") as file:
                for block in arranged.blocks(key):
                    _typed(block, column, key).tofile(file)
        meta = {
            key: {"shape": [arranged.sizes[key]], "dtype": column.dtype, **self._offsets(key, pending)}
            for key, column in self._task.columns.items()
        }
        (shard / "meta.json").write_text(json.dumps(meta), "utf-8")
        return name

    def _write_h5(self, folder: str, number: int, arranged: Arranged, pending: _Pending) -> str:
        import h5py

        name = f"{folder}/data_{number:04d}.h5"
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            for key, column in self._task.columns.items():
                dataset = file.create_group(key).create_dataset("data_0", (arranged.sizes[key],), column.dtype, track_times=False)
                at = 0
                for block in arranged.blocks(key):
                    dataset[at : at + len(block)] = _typed(block, column, key)
                    at += len(block)
        if not self._task.single:
            offsets = {key: self._offsets(key, pending) for key in self._task.columns}
            path.with_name(f"data_{number:04d}.offsets.json").write_text(json.dumps(offsets), "utf-8")
        return name

    def _offsets(self, key: str, pending: _Pending) -> Mapping[str, list[int]]:
        if self._task.single:
            return {}
        found = {"offsets": _cumulative(pending.records[key])}
        if key in pending.elements:
            found["element_offsets"] = _cumulative(pending.elements[key])
        return found


def _cumulative(lengths: list[int]) -> list[int]:
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]


def _held(values: npt.NDArray[Any], column: Column, key: str) -> npt.NDArray[Any]:
    """`values` in the column's type. A reward that it does not hold stops the run instead of becoming infinite."""
    with np.errstate(over="ignore"):
        found = values.astype(column.dtype)
    if column.kind == "values" and not np.isfinite(found).all():
        raise ConfigError(
            f"{key} reach {float(np.abs(values).max()):g}, {column.dtype} holds {float(np.finfo(column.dtype).max):g}. "
            f"Set output.dtype.{key} to a wider type"
        )
    return found


def _typed(block: npt.NDArray[Any], column: Column, key: str) -> npt.NDArray[Any]:
    """`block` in the column's type, little-endian; a number that it does not hold stops the build instead of wrapping around."""
    dtype = np.dtype(column.dtype)
    if column.kind == "positions" and len(block) and int(block.max()) > np.iinfo(dtype).max:
        raise ConfigError(
            f"{key} reach {int(block.max()):,}, {dtype} holds {np.iinfo(dtype).max:,}. Set output.dtype.{key} to a wider type"
        )
    return np.ascontiguousarray(block, dtype.newbyteorder("<"))
