"""`prep-assets preprocess` of an AstrAI pipeline: reads source files, writes AstrAI's layout."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Array
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, find_files, record_id
from prep_assets.data.quarantine import Quarantine, read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, StoreError
from prep_assets.extensions.preprocess.astrai import SEQUENCE, AnyPipeline, Column, PositionIds, Task, task_of
from prep_assets.extensions.preprocess.astrai_columns import Batch, Job, Row, batches_by_workers
from prep_assets.packing import PackPlan, gather_rows, pack, position_ids
from prep_assets.packing.strategies import within
from prep_assets.pipeline.asset import all_refused
from prep_assets.pipeline.examples import Deduplicator
from prep_assets.pipeline.sources import Pinned
from prep_assets.samples import Record
from prep_assets.schemas.reader import Account
from prep_assets.stores.arrays import batches
from prep_assets.stores.h5 import FixedH5
from prep_assets.stores.shards import BinShard, Borders
from prep_assets.stores.verification import whole_folder, write_json, write_text
from prep_assets.text.tokenizer_files import DEFAULT as DEFAULT_TEMPLATE
from prep_assets.text.tokenizer_files import NAMES, chat_templates, read_object, templates_by_name
from prep_assets.text.vocabulary import Vocabulary, from_file
from prep_assets.workers.pool import Pool, Workers, worker_count

# AstrAI's directory layout, written shard by shard.
#
#     bin, shards   <domain>/shard_0000/{meta.json, <key>.bin}     see `prep_assets.stores.shards`
#     bin, flat     <domain>/{meta.json, <key>.bin}                the layout of early AstrAI: one shard per domain
#     h5            <domain>/data_0000.h5                          /<key>/data_0
#
# Until a shard is full, its values are in one file per key below ``.raw``, so that memory holds some blocks of tokens, not shards.

Layout = Literal["shards", "flat"]
FLUSH_TOKENS = 1 << 21
"""Tokens buffered in memory before they are flushed to the raw files."""
RAW = ".raw"
BLOCK = 1 << 22
"""Elements written at a time."""


def write_h5_shard(
    path: Path,
    dtypes: Mapping[str, str],
    sizes: Mapping[str, int],
    blocks: Callable[[str], Iterable[Array]],
    borders: Borders,
) -> None:
    """Write ``/<key>/data_0``, contiguous and uncompressed.

    Borders go into a separate ``<name>.offsets.json``, because readers take everything in the group of a key for data.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FixedH5(path, {f"{key}/data_0": ((sizes[key],), dtype) for key, dtype in dtypes.items()}, in_turn=True) as file:
        for key in dtypes:
            at = 0
            for block in blocks(key):
                file.write(f"{key}/data_0", at, block)
                at += len(block)
    if borders:
        write_text(path.with_name(f"{path.stem}.offsets.json"), json.dumps(borders))


@dataclass(slots=True)
class _Pending:
    """The open shard of a domain.

    Attributes:
        tokens: of the primary output.
        lengths: key → lengths of the parts of each record.
        buffered: key → values that are not in the raw files yet.
    """

    tokens: int = 0
    lengths: dict[str, list[list[int]]] = field(default_factory=dict)
    buffered: dict[str, list[Array]] = field(default_factory=dict)


@dataclass(slots=True)
class Totals:
    """Statistics of the written shards.

    Attributes:
        shards: path → records, tokens and keys of the shard.
        cut_by_packing, cut_records: tokens that ``max_packed_len`` cut off, and the number of outputs of records that lost some.
        padding: padding tokens of bins.
    """

    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    cut_by_packing: int = 0
    cut_records: int = 0
    padding: int = 0


class ShardWriter:
    """Writes rows into one folder per domain. A shard holds whole records and at most ``max_tokens_per_shard`` tokens, or one longer record.

    Raises:
        ConfigError: ids or positions that overflow the configured dtype; a second shard in the flat layout.
    """

    def __init__(self, root: Path, task: Task, *, pad_id: int, layout: Layout = "shards") -> None:
        if layout == "flat" and task.pipeline.output.storage_format != "bin":
            raise ConfigError("--layout flat is a layout of bin files; h5 has none. Leave it out")
        self._root, self._task, self._pad_id, self._layout = root, task, pad_id, layout
        self._open: dict[str, _Pending] = {}
        self._written: dict[str, int] = {}
        self._buffered = 0
        self.totals = Totals()

    def append(self, folder: str, row: Row) -> None:
        """Append a record to a domain."""
        cells = {key: self._truncate(key, parts) for key, parts in row.cells.items()}
        size = sum(map(len, cells[self._task.primary]))
        pending = self._open.setdefault(folder, _Pending())
        if pending.tokens and pending.tokens + size > self._task.pipeline.output.max_tokens_per_shard:
            self._finish_shard(folder)
            pending = self._open.setdefault(folder, _Pending())
        pending.tokens += size
        for key, parts in cells.items():
            values = _cast(np.concatenate(parts), self._task.columns[key], key)
            pending.buffered.setdefault(key, []).append(values)
            pending.lengths.setdefault(key, []).append([len(part) for part in parts])
            self._buffered += len(values)
        if self._buffered >= FLUSH_TOKENS:
            self._flush()

    def close(self) -> None:
        """Write the last shards and remove `.raw`."""
        for folder in list(self._open):
            self._finish_shard(folder)
        shutil.rmtree(self._root / RAW, ignore_errors=True)

    def _truncate(self, key: str, parts: list[Array]) -> list[Array]:
        """Cut each sequence to ``max_packed_len`` in ``simple`` packing. Bins are cut when the shard is written."""
        steps = self._task.pipeline.preprocessing
        limit = steps.max_packed_len
        if self._task.is_binned or self._task.columns[key].kind == "values" or max(map(len, parts)) <= limit:
            return parts
        keep = slice(-limit, None) if steps.truncation_mode == "keep_end" else slice(0, limit)
        truncated = [part[keep] for part in parts]
        if key in self._task.sources:
            self.totals.cut_records += 1
            self.totals.cut_by_packing += sum(map(len, parts)) - sum(map(len, truncated))
        return truncated

    def _raw_path(self, folder: str, key: str) -> Path:
        return self._root / RAW / folder / key

    def _flush(self) -> None:
        for folder, pending in self._open.items():
            for key, values in pending.buffered.items():
                path = self._raw_path(folder, key)
                path.parent.mkdir(parents=True, exist_ok=True)
                joined = np.concatenate(values)
                with path.open("ab") as file:
                    joined.astype(joined.dtype.newbyteorder("<"), copy=False).tofile(file)
            pending.buffered.clear()
        self._buffered = 0

    def _finish_shard(self, folder: str) -> None:
        self._flush()
        pending, task, totals = self._open.pop(folder), self._task, self.totals
        records = {key: np.array([sum(parts) for parts in lengths], np.int64) for key, lengths in pending.lengths.items()}
        raw: dict[str, Array] = {}
        for key, lengths in records.items():
            dtype, count = np.dtype(task.columns[key].dtype).newbyteorder("<"), int(lengths.sum())
            raw[key] = np.memmap(self._raw_path(folder, key), dtype, "r", shape=(count,)) if count else np.zeros(0, dtype)
        counts = {"records": len(records[task.primary]), "tokens": pending.tokens}
        plan = bin_plan(task, records[SEQUENCE]) if task.is_binned else None
        if plan is not None:
            sizes = dict.fromkeys(task.columns, plan.rows * plan.row_len)
            left_out = int(plan.dropped[:, 2].sum())
            totals.cut_by_packing += left_out
            totals.cut_records += int((records[SEQUENCE] > plan.row_len).sum()) if left_out else 0
            counts = {**counts, "bins": plan.rows, "tokens": pending.tokens - left_out}
            totals.padding += sizes[SEQUENCE] - counts["tokens"]
        else:
            sizes = {key: int(records.get(key, records[task.primary]).sum()) for key in task.columns}

        def blocks(key: str) -> Iterator[Array]:
            column = task.columns[key]
            return (_cast(block, column, key) for block in shard_blocks(task, key, raw, records.get(SEQUENCE), plan, self._pad_id))

        name = self._write_shard(folder, sizes, blocks, {} if task.single else self._borders(pending, records))
        keys = {key: {"shape": [sizes[key]], "dtype": column.dtype} for key, column in task.columns.items()}
        totals.shards[name] = {**counts, "keys": keys}
        shutil.rmtree(self._root / RAW / folder)

    def _borders(self, pending: _Pending, records: Mapping[str, Array]) -> Borders:
        """The offsets of records, and of list elements."""
        lists = [key for key, source in self._task.sources.items() if source.list_field]
        borders = {key: {"offsets": _cumulative(lengths)} for key, lengths in records.items()}
        for key in (nested for name in lists for nested in (name, self._task.mask_key(name)) if nested in borders):
            borders[key]["element_offsets"] = _cumulative([length for parts in pending.lengths[key] for length in parts])
        return borders

    def _write_shard(self, folder: str, sizes: Mapping[str, int], blocks: Callable[[str], Iterator[Array]], borders: Borders) -> str:
        """Write a shard and return its name."""
        number = self._written.get(folder, 0)
        self._written[folder] = number + 1
        dtypes = {key: column.dtype for key, column in self._task.columns.items()}
        if self._task.pipeline.output.storage_format == "h5":
            name = f"{folder}/data_{number:04d}.h5"
            write_h5_shard(self._root / name, dtypes, sizes, blocks, borders)
            return name
        if self._layout == "flat" and number:
            raise ConfigError(f"domain {folder}: --layout flat has one shard a domain, and max_tokens_per_shard is reached. Raise it")
        name = folder if self._layout == "flat" else f"{folder}/shard_{number:04d}"
        with BinShard(self._root / name, dtypes) as shard:
            for key in dtypes:
                for block in blocks(key):
                    shard.append(key, block)
            shard.borders = borders
        return name


def _cumulative(lengths: Sequence[int] | Array) -> list[int]:
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]


def _cast(values: Array, column: Column, key: str) -> Array:
    """Cast `values` to the column's dtype. Rewards and positions that overflow raise instead of becoming infinite or negative."""
    dtype = np.dtype(column.dtype)
    with np.errstate(over="ignore"):
        cast = values.astype(dtype, copy=False)
    peak = np.abs(values).max(initial=0) if column.kind in ("values", "positions") else 0
    overflows = not np.isfinite(cast).all() if dtype.kind == "f" else dtype.kind in "iu" and peak > np.iinfo(dtype).max
    if overflows:
        largest, limit = (f"{peak:g}", f"{np.finfo(dtype).max:g}") if dtype.kind == "f" else (f"{peak:,}", f"{np.iinfo(dtype).max:,}")
        raise ConfigError(f"{key} reach {largest}, {dtype} holds {limit}. Set output.dtype.{key} to a wider type")
    return cast


def bin_plan(task: Task, lengths: npt.NDArray[np.int64]) -> PackPlan:
    """Pack into bins of ``max_packed_len``: best fit decreasing, ties to the earliest record and bin, as AstrAI's ``bfd`` and ``bfd_split``."""
    steps = task.pipeline.preprocessing
    if steps.packing_strategy == "bfd_split":
        return pack(lengths, steps.max_packed_len, "bfd_split")
    plan = pack(lengths, steps.max_packed_len, "bfd", overlong="truncate")
    if steps.truncation_mode == "keep_start":
        return plan
    # the same pieces, from the end of overlong documents instead of the start
    dropped = plan.dropped.copy()
    dropped[:, 1] = 0
    return replace(plan, start=lengths[plan.record] - plan.length, dropped=dropped)


def shard_blocks(
    task: Task, key: str, raw: Mapping[str, Array], lengths: npt.NDArray[np.int64] | None, plan: PackPlan | None, pad_id: int
) -> Iterator[Array]:
    """Yield the values of one key of a shard in blocks.

    Args:
        raw: the values of each key except position ids, record after record.
        lengths: int64[n], tokens of each record; `None` with several outputs, which have no position ids.
        plan: the bins of a packed shard.
        pad_id: the padding token of bins; never trained.
    """
    column, continuous = task.columns[key], task.pipeline.output.position_ids_mode == "continuous"
    if plan is not None:
        assert lengths is not None
        step = max(1, BLOCK // plan.row_len)
        for first in range(0, plan.rows, step):
            rows = slice(first, min(first + step, plan.rows))
            if column.kind != "positions":
                fill = pad_id if column.kind == "ids" else 0
                yield gather_rows(raw[key], np.cumsum(lengths) - lengths, plan, rows, fill=fill).ravel()
            elif continuous:
                yield np.arange(first * plan.row_len, rows.stop * plan.row_len)
            else:
                yield position_ids(plan, rows, "doc_reset").ravel()
    elif column.kind != "positions" or lengths is None:
        yield from (raw[key][start : start + BLOCK] for start in range(0, len(raw[key]), BLOCK))
    else:
        for records in batches(np.cumsum(lengths), BLOCK):
            begin = int(lengths[: records.start].sum())
            yield np.arange(begin, begin + int(lengths[records].sum())) if continuous else within(lengths[records])


# Records from files to shards, in batches and in order.

DEFAULT = "__default__"
"""AstrAI's folder for records without a domain."""
EMPTY = "%empty"
MAX_NAME_BYTES = 200
"""Maximal bytes of a folder name; file systems allow 255."""
_RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10))}


def folder_of(value: str) -> str:
    """Return the folder name of a domain value; the mapping is injective.

    No value escapes the output directory or nests in it: letters, digits, ``_``, ``-``, inner dots and inner spaces stay; anything else is
    percent-encoded by its UTF-8 bytes, as in a URL. ``domains.json`` maps folders back to values.
    """
    last = len(value) - 1
    encoded = "".join(char if _is_plain(char, i in (0, last)) else _percent(char) for i, char in enumerate(value))
    if value == DEFAULT or encoded.split(".")[0].casefold() in _RESERVED:
        encoded = _percent(encoded[0]) + encoded[1:]
    raw = encoded.encode()
    if len(raw) > MAX_NAME_BYTES:
        prefix = raw[: MAX_NAME_BYTES - 40].decode(errors="ignore")
        encoded = f"{prefix}%sha{hashlib.sha256(value.encode()).hexdigest()[:32]}"
    return encoded or EMPTY


def _is_plain(char: str, at_end: bool) -> bool:
    return char.isalnum() or char in "_-" or (char in ". " and not at_end)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


@dataclass(slots=True)
class Domains:
    """The domain values seen so far.

    Attributes:
        values: folder → value, in order of first appearance; `None` for records without one.
    """

    values: dict[str, str | None] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict)

    def folder(self, value: object) -> str:
        """Return the folder of a record whose domain key is `value`; only strings name a domain.

        Raises:
            PrepAssetsError: another value has a folder that is the same on file systems that ignore case or compose accents.
        """
        text = value if isinstance(value, str) else None
        folder = DEFAULT if text is None else folder_of(text)
        if folder not in self.values:
            first_folder = self._by_name.setdefault(unicodedata.normalize("NFC", folder).casefold(), folder)
            if first_folder != folder:
                raise PrepAssetsError(
                    f"domains {self.values[first_folder]!r} and {text!r} become folders {first_folder!r} and {folder!r}, which are one folder where file "
                    "systems ignore case or compose accents. Spell the domain alike in the data"
                )
            self.values[folder] = text
        return folder


@dataclass(slots=True)
class Counts:
    """Counts of records and tokens. ``read = kept + sum(refused)`` always holds.

    Attributes:
        refused: rejected records by ``stage/reason``.
        tokens, trained: of all tokenized outputs of kept records, before packing; `trained` only with masks.
        untrained: kept records without a trained token.
        cut_records, cut_tokens: records that ``max_seq_len`` cut, and the tokens it cut off.
        domains: records by folder.
    """

    read: int = 0
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    trained: int | None = None
    untrained: int = 0
    cut_records: int = 0
    cut_tokens: int = 0
    domains: dict[str, int] = field(default_factory=dict)


Log = Callable[[Counts], None]
"""Called with the counts so far."""


@dataclass(slots=True)
class Run:
    """One pass over the input files: writes kept records, quarantines rejected ones, and counts both."""

    task: Task
    writer: ShardWriter
    quarantine: Quarantine
    account: Account
    deduplicator: Deduplicator | None = None
    log: Log = lambda counts: None
    log_interval: int | None = None
    counts: Counts = field(default_factory=Counts)
    domains: Domains = field(default_factory=Domains)

    def consume(self, built_batches: Generator[Batch, None, None]) -> None:
        """Process batches in order until ``max_items`` records are kept."""
        if self.task.has_mask:
            self.counts.trained = 0
        with closing(built_batches):  # ends the workers if not all batches are needed
            for batch in built_batches:
                is_last = self._process_batch(*batch)
                self.account.check("the pipeline", _ignore_hint)
                if is_last:
                    break
        self.counts.refused = self.quarantine.counts

    def _process_batch(
        self, file: SourceFile, rows: Sequence[Record | Unreadable], build: Callable[[Sequence[int]], Iterable[Row | Refused]]
    ) -> bool:
        """Process a batch, and return whether ``max_items`` is reached. Records after the last kept one count as never read."""
        counts = self.counts
        records = [row for row in rows if isinstance(row, Record)]
        duplicates = self.deduplicator.among(file, records) if self.deduplicator is not None else {}
        built = iter(build([index for index, row in enumerate(rows) if isinstance(row, Record) and row.row not in duplicates]))
        for row in rows:
            counts.read += 1
            if not isinstance(row, Record):
                self.quarantine.add_unreadable(file, [row])
                result = None
            elif isinstance(result := duplicates.get(row.row) or self._check_unread_fields(next(built)), Row):
                self._keep_record(row.payload, result)
            else:
                self.quarantine.add(record_id(file, row.row), result.stage, result.reason, result.detail, row.payload)
            if self.log_interval and counts.read % self.log_interval == 0:
                self.log(counts)
            if isinstance(result, Row) and counts.kept == self.task.pipeline.preprocessing.max_items:
                return True
        return False

    def _check_unread_fields(self, result: Row | Refused) -> Row | Refused:
        """Return `result`, or a rejection if the record has a decisive field that nothing reads."""
        if isinstance(result, Row) and (result.unread or result.dropped):
            try:
                self.account.note(result.dropped, result.unread)
            except Refused as rejection:
                return rejection
        return result

    def _keep_record(self, payload: Any, row: Row) -> None:
        counts, key = self.counts, self.task.pipeline.output.domain_key
        folder = DEFAULT if key is None else self.domains.folder(payload.get(key))
        self.writer.append(folder, row)
        counts.kept += 1
        counts.domains[folder] = counts.domains.get(folder, 0) + 1
        counts.cut_records += row.cut > 0
        counts.cut_tokens += row.cut
        columns = self.task.columns
        counts.tokens += sum(len(part) for name, parts in row.cells.items() if columns[name].kind == "ids" for part in parts)
        if counts.trained is not None:
            # packed text has a mask only in its bins, for the padding
            trained = sum(int(mask.sum()) for name, parts in row.cells.items() if columns[name].kind == "mask" for mask in parts)
            counts.trained += trained
            counts.untrained += trained == 0

    def require_result(self, quarantine: Path) -> None:
        """Raise if the output would be empty, or would train nothing."""
        counts = self.counts
        if not counts.read:
            raise PrepAssetsError("the input files hold no record: nothing is written")
        if not counts.kept:
            raise PrepAssetsError(f"nothing is written: {all_refused(counts.read, read_quarantine(quarantine))}")
        if counts.trained == 0:
            raise PrepAssetsError(
                f"none of the {counts.tokens:,} tokens of {counts.kept:,} records is trained, so nothing is written. The configuration's mask is "
                f"{dict(self.task.pipeline.mask)}, its mask_default {self.task.pipeline.mask_default!r}: name a role or field of the data as 'train'"
            )


def _ignore_hint(account: Account) -> str:
    options = " ".join(f"--ignore {shlex.quote(path)}" for path in sorted(account.unknown))
    return f"Name a section for them. If training does not need them, add to the command:\n  {options}"


# The whole run: read, deduplicate, tokenize, mask, pack, write; reject and count.

Masking = Literal["astrai", "spans"]
Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in total."""
Dedup = Literal["exact", "prefix200", "none"]
SUMMARY, DOMAINS, QUARANTINE = "preprocess.json", "domains.json", "quarantine.jsonl"
_OUTPUT_NAMES = {SUMMARY, DOMAINS, QUARANTINE, "meta.json"}
_H5 = re.compile(r"data_\d{4,}\.(h5|offsets\.json)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run: its directory, counts, statistics of shards, and field → records in which it was passed over."""

    directory: Path
    counts: Counts
    totals: Totals
    passed_over: Mapping[str, int]


def preprocess(
    inputs: Sequence[str],
    output: Path,
    pipeline: AnyPipeline,
    vocabulary: Vocabulary,
    *,
    masking: Masking = "astrai",
    dedup: Dedup | None = None,
    position_ids: PositionIds | None = None,
    layout: Layout = "shards",
    ignore: Sequence[str] = (),
    overwrite: bool = False,
    workers: Workers = 1,
    log_interval: int | None = None,
    log: Log = lambda counts: None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a pipeline over `inputs` in order, each file once.

    Args:
        inputs: files, folders, globs or URLs, relative to the working directory.
        output: a directory that is absent or empty, or that `overwrite` may replace; written atomically.
        dedup: overrides the configuration: ``exact`` over the whole record, ``prefix200`` as in AstrAI, or ``none``.
        position_ids: overrides the configuration's ``position_ids_mode``.
        ignore: fields, dotted within objects, that are removed before a record is read.
        workers: processes that read, tokenize and mask; the output does not depend on it.
        log_interval: `log` is called with the counts every `log_interval` records.

    Raises:
        ConfigError: an invalid configuration or combination of options; or records have fields that nothing reads and whose names are not
            known to be irrelevant.
        SourceError: an input is missing or damaged.
        StoreError: `output` is not empty.
        PrepAssetsError: no record is kept, or no token is trained; the message says why.
    """
    task = task_of(pipeline, position_ids=position_ids)
    _check_ids_fit(task, vocabulary)
    method: Dedup = dedup or ("exact" if task.deduplicate else "none")
    target = output.expanduser().resolve()
    busy = StoreError(f"another run is writing to {target}. Wait until it has ended, or choose another directory")
    with whole_folder(target, lambda: require_free(target, overwrite=overwrite), busy=busy, replace=overwrite) as work:
        # text has no spans: all of it is trained
        job = Job(task, vocabulary, masking == "spans" and not task.is_text, Pinned(_find_inputs(inputs), (), 0, ""), tuple(ignore))
        writer = ShardWriter(work, task, pad_id=vocabulary.pad_id if task.is_binned else 0, layout=layout)
        reading = job.reading(progress=(lambda doing, done, total: progress(done, total)) if progress else None)
        with Quarantine(work / QUARANTINE) as quarantine, Pool(worker_count(workers)) as pool:
            key = task.pipeline.output.domain_key
            account = Account(ignore, () if key is None else (key,))
            run = Run(task, writer, quarantine, account, deduplicator(method), log, log_interval)
            run.consume(batches_by_workers(job, pool, work / ".built", reading))
        if progress:
            progress(job.sources.bytes, job.sources.bytes)
        run.require_result(work / QUARANTINE)
        writer.close()
        options = {"masking": masking, "deduplicate": method, "layout": layout, "pipeline": json.loads(pipeline.model_dump_json())}
        template = None if vocabulary.chat_template is None else hashlib.sha256(vocabulary.chat_template.encode()).hexdigest()
        _write_sidecars(work, {**options, "tokenizer": vocabulary.hash, "template": template}, run, job.sources.files)
    return Outcome(output, run.counts, writer.totals, dict(sorted(account.counts.items())))


def _find_inputs(inputs: Sequence[str]) -> tuple[SourceFile, ...]:
    """The input files in the given order. A first search over all inputs gives them distinct names, by their folders."""
    by_url = {file.url: file for file in find_files(inputs, Path.cwd())}
    urls = dict.fromkeys(file.url for pattern in inputs for file in find_files([pattern], Path.cwd()))
    return tuple(by_url[url] for url in urls)


def _check_ids_fit(task: Task, vocabulary: Vocabulary) -> None:
    for key, column in task.columns.items():
        if column.kind == "ids" and vocabulary.size - 1 > np.iinfo(column.dtype).max:
            raise ConfigError(
                f"output.dtype.{key}: {column.dtype} holds ids to {np.iinfo(column.dtype).max:,}, the vocabulary has {vocabulary.size:,}"
            )


def _write_sidecars(work: Path, options: Mapping[str, Any], run: Run, files: Sequence[SourceFile]) -> None:
    """Write the sidecar files. They hold no time and no path, so that equal runs give equal bytes."""
    totals, output = run.writer.totals, run.task.pipeline.output
    summary = {
        "storage_format": output.storage_format,
        **options,
        "inputs": [{"name": file.name, "bytes": file.size} for file in files],
        "counts": asdict(run.counts),
        "fields_passed_over": dict(sorted(run.account.counts.items())),
        "packing": {"cut_tokens": totals.cut_by_packing, "cut_records": totals.cut_records, "padding": totals.padding},
        "shards": totals.shards,
    }
    write_json(work / SUMMARY, summary, indent=1, ensure_ascii=False)
    if output.domain_key is not None:
        write_json(work / DOMAINS, run.domains.values, indent=1, ensure_ascii=False)


def prefix_signature(payload: Mapping[str, Any]) -> str:
    """AstrAI's signature: MD5 of the first 200 code points of the record as JSON with sorted keys.

    Records that begin alike count as equal, such as chats with one long system prompt; equal texts with different ids before them count as
    different.
    """
    return hashlib.md5(json.dumps(payload, sort_keys=True, ensure_ascii=False)[:200].encode(), usedforsecurity=False).hexdigest()


def deduplicator(method: Dedup) -> Deduplicator | None:
    """The deduplicator of a method; `None` keeps duplicates."""
    if method == "prefix200":
        return Deduplicator(
            lambda records: [bytes.fromhex(prefix_signature(record.payload)) for record in records], "has the same first 200 characters as"
        )
    return Deduplicator() if method == "exact" else None


def require_free(target: Path, *, overwrite: bool) -> None:
    """Raise unless the target is empty, or `overwrite` is set and it only holds files that preprocessing writes.

    Raises:
        StoreError: the target holds other files; the message names one and the remedy.
    """
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is a file; the output is a directory. Choose another name")
    first = next(iter(sorted(target.iterdir())), None) if target.is_dir() else None
    if first is not None and not overwrite:
        raise StoreError(f"{target} is not empty: it holds {first.name}. Choose another directory, or replace it with --overwrite")
    for path in sorted(target.rglob("*")) if first is not None else ():
        if not _is_output(path):
            raise StoreError(
                f"--overwrite would delete {path}, which preprocessing does not write. Choose another directory, or move it away"
            )


def _is_output(path: Path) -> bool:
    """Whether a path is an output of preprocessing, by AstrAI or by this module."""
    if path.is_symlink() or not path.is_file():
        return path.is_dir() and not path.is_symlink()
    is_key = path.suffix == ".bin" and path.with_name("meta.json").is_file()
    return path.name in _OUTPUT_NAMES or is_key or _H5.fullmatch(path.name) is not None


def load_tokenizer(directory: Path) -> Vocabulary:
    """Load a tokenizer.

    ``tokenizer_config.json`` may be AstrAI's (``special_tokens``, a map of names to texts) or the one that transformers writes
    (``bos_token`` and so on at top level). The chat template is its ``chat_template``, else the file ``chat_template.jinja``.

    Raises:
        ConfigError: the directory is missing, or holds no tokenizer or one that is known to be wrong.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        remedy = (
            "Convert the tokenizer with transformers (save_pretrained)" if directory.is_dir() else "Name the directory with --tokenizer"
        )
        raise ConfigError(f"no tokenizer at {path}. {remedy}")
    vocabulary = from_file(str(directory), directory)
    config = read_object(directory / "tokenizer_config.json")
    declared = config.get("special_tokens")
    tokens = declared if isinstance(declared, Mapping) else {name: config.get(name) for name in NAMES}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in tokens.items()}
    special = {name: text for name, text in texts.items() if isinstance(text, str) and vocabulary.backend.token_to_id(text) is not None}
    template = {**chat_templates(directory), **templates_by_name(config.get("chat_template"))}.get(DEFAULT_TEMPLATE)
    return replace(vocabulary, special=special, chat_template=template, templates={})
