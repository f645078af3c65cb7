"""`prep-assets preprocess` of an AstrAI pipeline: files in, AstrAI's layout out."""

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

from prep_assets.compat.astrai import SEQUENCE, AnyPipeline, Column, PositionIds, Task, task_of
from prep_assets.compat.astrai_columns import Batch, Job, Row, batches_by_workers
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, find_files, record_id
from prep_assets.data.quarantine import Quarantine, read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, StoreError
from prep_assets.packing import PackPlan, gather_rows, pack, position_ids
from prep_assets.packing.strategies import within
from prep_assets.pipeline.asset import all_refused
from prep_assets.pipeline.examples import Deduplicator
from prep_assets.pipeline.sources import Pinned
from prep_assets.samples import Record
from prep_assets.schemas.reader import Account
from prep_assets.stores.arrays import batches
from prep_assets.stores.folders import whole_folder
from prep_assets.stores.segments import BinShard, Borders, write_h5_shard
from prep_assets.stores.verification import write_json
from prep_assets.text.tokenizer_files import DEFAULT as DEFAULT_TEMPLATE
from prep_assets.text.tokenizer_files import NAMES, chat_templates, read_object, templates_by_name
from prep_assets.text.vocabulary import Vocabulary, from_file
from prep_assets.workers.pool import Pool, Workers, worker_count

# AstrAI's directory layout, written shard by shard.
#
#     bin, shards   <domain>/shard_0000/{meta.json, <key>.bin}     see `prep_assets.stores.segments`
#     bin, flat     <domain>/{meta.json, <key>.bin}                the layout of AstrAI's first days: one shard a domain
#     h5            <domain>/data_0000.h5                          /<key>/data_0
#
# Values wait in one file a key below ``.raw`` until their shard is full, so that memory holds some blocks of tokens, not shards.

Layout = Literal["shards", "flat"]
Array = npt.NDArray[Any]
FLUSH_TOKENS = 1 << 21
"""Tokens that are held in memory before they go to the waiting files."""
RAW = ".raw"
BLOCK = 1 << 22
"""Elements written at a time."""


@dataclass(slots=True)
class _Pending:
    """What a domain's next shard will hold.

    Attributes:
        tokens: of the primary output.
        lengths: of the parts of each record, by key.
        held: values that are not in the waiting files yet, by key.
    """

    tokens: int = 0
    lengths: dict[str, list[list[int]]] = field(default_factory=dict)
    held: dict[str, list[Array]] = field(default_factory=dict)


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
        cells = {key: self._cut(key, parts) for key, parts in row.cells.items()}
        size = sum(map(len, cells[self._task.primary]))
        pending = self._open.setdefault(folder, _Pending())
        if pending.tokens and pending.tokens + size > self._task.pipeline.output.max_tokens_per_shard:
            self._finish(folder)
            pending = self._open.setdefault(folder, _Pending())
        pending.tokens += size
        for key, parts in cells.items():
            values = _fitted(np.concatenate(parts), self._task.columns[key], key)
            pending.held.setdefault(key, []).append(values)
            pending.lengths.setdefault(key, []).append([len(part) for part in parts])
            self._held += len(values)
        if self._held >= FLUSH_TOKENS:
            self._flush()

    def close(self) -> None:
        """Write the last shards. Nothing is left in `.raw`."""
        for folder in list(self._open):
            self._finish(folder)
        shutil.rmtree(self._root / RAW, ignore_errors=True)

    def _cut(self, key: str, parts: list[Array]) -> list[Array]:
        """``simple`` packing: each sequence cut to ``max_packed_len``. Bins are cut when the shard is written."""
        steps = self._task.pipeline.preprocessing
        limit = steps.max_packed_len
        if self._task.is_binned or self._task.columns[key].kind == "values" or max(map(len, parts)) <= limit:
            return parts
        keep = slice(-limit, None) if steps.truncation_mode == "keep_end" else slice(0, limit)
        kept = [part[keep] for part in parts]
        if key in self._task.sources:
            self.totals.cut_records += 1
            self.totals.cut_by_packing += sum(map(len, parts)) - sum(map(len, kept))
        return kept

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

    def _finish(self, folder: str) -> None:
        self._flush()
        pending, task, totals = self._open.pop(folder), self._task, self.totals
        records = {key: np.array([sum(parts) for parts in lengths], np.int64) for key, lengths in pending.lengths.items()}
        raw: dict[str, Array] = {}
        for key, lengths in records.items():
            dtype, count = np.dtype(task.columns[key].dtype).newbyteorder("<"), int(lengths.sum())
            raw[key] = np.memmap(self._raw(folder, key), dtype, "r", shape=(count,)) if count else np.zeros(0, dtype)
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
            return (_fitted(block, column, key) for block in arranged(task, key, raw, records.get(SEQUENCE), plan, self._pad_id))

        name = self._write(folder, sizes, blocks, {} if task.single else self._borders(pending, records))
        keys = {key: {"shape": [sizes[key]], "dtype": column.dtype} for key, column in task.columns.items()}
        totals.shards[name] = {**counts, "keys": keys}
        shutil.rmtree(self._root / RAW / folder)

    def _borders(self, pending: _Pending, records: Mapping[str, Array]) -> Borders:
        """Where records, and elements of lists, begin and end."""
        lists = [key for key, source in self._task.sources.items() if source.list_field]
        borders = {key: {"offsets": _cumulative(lengths)} for key, lengths in records.items()}
        for key in (each for name in lists for each in (name, self._task.mask_key(name)) if each in borders):
            borders[key]["element_offsets"] = _cumulative([length for parts in pending.lengths[key] for length in parts])
        return borders

    def _write(self, folder: str, sizes: Mapping[str, int], blocks: Callable[[str], Iterator[Array]], borders: Borders) -> str:
        """Write a shard, and return its name."""
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


def _fitted(values: Array, column: Column, key: str) -> Array:
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


def arranged(
    task: Task, key: str, raw: Mapping[str, Array], lengths: npt.NDArray[np.int64] | None, plan: PackPlan | None, pad_id: int
) -> Iterator[Array]:
    """The values of one key of a shard, in blocks.

    Args:
        raw: the values of each key except position ids, record after record.
        lengths: int64[n], tokens of each record; `None` with several outputs, which have no position ids.
        plan: the bins of a shard that is packed.
        pad_id: the token that fills the bins; it is never trained.
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
        yield from (raw[key][at : at + BLOCK] for at in range(0, len(raw[key]), BLOCK))
    else:
        for some in batches(np.cumsum(lengths), BLOCK):
            begin = int(lengths[: some.start].sum())
            yield np.arange(begin, begin + int(lengths[some].sum())) if continuous else within(lengths[some])


# Records on their way from files to shards, in batches and in order.

DEFAULT = "__default__"
"""AstrAI's folder for records without a domain."""
EMPTY = "%empty"
LONGEST = 200
"""Bytes of a folder's name; file systems take 255."""
_RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10))}


def folder_of(value: str) -> str:
    """The folder of a domain value; different values have different folders, and every folder can be read back.

    No value leaves the output directory or nests in it: it is written as it is where it is letters, digits, ``_``, ``-``, inner dots and inner
    spaces; anything else as the percent code of its UTF-8 bytes, as in a URL. ``domains.json`` says which folder is which value.
    """
    last = len(value) - 1
    coded = "".join(char if _is_plain(char, i in (0, last)) else _percent(char) for i, char in enumerate(value))
    if value == DEFAULT or coded.split(".")[0].casefold() in _RESERVED:
        coded = _percent(coded[0]) + coded[1:]
    raw = coded.encode()
    if len(raw) > LONGEST:
        kept = raw[: LONGEST - 40].decode(errors="ignore")
        coded = f"{kept}%sha{hashlib.sha256(value.encode()).hexdigest()[:32]}"
    return coded or EMPTY


def _is_plain(char: str, at_end: bool) -> bool:
    return char.isalnum() or char in "_-" or (char in ". " and not at_end)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


@dataclass(slots=True)
class Domains:
    """The domain values seen so far.

    Attributes:
        values: value of each folder, in the order in which they came up; `None` for records without one.
    """

    values: dict[str, str | None] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict)

    def folder(self, value: object) -> str:
        """The folder of a record whose domain key holds `value`; only a string names a domain.

        Raises:
            PrepAssetsError: another value has a folder that some file systems take for the same (they ignore case, or compose accents).
        """
        text = value if isinstance(value, str) else None
        folder = DEFAULT if text is None else folder_of(text)
        if folder not in self.values:
            same = self._by_name.setdefault(unicodedata.normalize("NFC", folder).casefold(), folder)
            if same != folder:
                raise PrepAssetsError(
                    f"domains {self.values[same]!r} and {text!r} become folders {same!r} and {folder!r}, which are one folder where file "
                    "systems ignore case or compose accents. Spell the domain alike in the data"
                )
            self.values[folder] = text
        return folder


@dataclass(slots=True)
class Counts:
    """Records and tokens, from reading to disk. ``read = kept + the sum of refused`` always holds.

    Attributes:
        refused: by ``stage/reason``.
        tokens, trained: of all tokenized outputs of kept records, before packing; `trained` where there are masks.
        untrained: kept records without any trained token.
        cut: records that ``max_seq_len`` cut, and the tokens it cut off.
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
"""Is told the counts so far."""


@dataclass(slots=True)
class Run:
    """One pass over the input files: what is kept goes to the writer, what is refused to quarantine, and all of it is counted."""

    task: Task
    writer: ShardWriter
    quarantine: Quarantine
    account: Account
    deduplicator: Deduplicator | None = None
    log: Log = lambda counts: None
    log_interval: int | None = None
    counts: Counts = field(default_factory=Counts)
    domains: Domains = field(default_factory=Domains)

    def over(self, found: Generator[Batch, None, None]) -> None:
        """All records, in order, until ``max_items`` are kept."""
        if self.task.has_mask:
            self.counts.trained = 0
        with closing(found):  # workers are ended where not all of them are wanted
            for batch in found:
                is_last = self._batch(*batch)
                self.account.check("the pipeline", _to_ignore)
                if is_last:
                    break
        self.counts.refused = self.quarantine.counts

    def _batch(
        self, file: SourceFile, rows: Sequence[Record | Unreadable], build: Callable[[Sequence[int]], Iterable[Row | Refused]]
    ) -> bool:
        """Take over a batch; whether ``max_items`` is reached. Records after the last kept one count as never read."""
        counts = self.counts
        records = [row for row in rows if isinstance(row, Record)]
        duplicates = self.deduplicator.among(file, records) if self.deduplicator is not None else {}
        built = iter(build([place for place, row in enumerate(rows) if isinstance(row, Record) and row.row not in duplicates]))
        for row in rows:
            counts.read += 1
            if not isinstance(row, Record):
                self.quarantine.add_unreadable(file, [row])
                result = None
            elif isinstance(result := duplicates.get(row.row) or self._accounted(next(built)), Row):
                self._keep(row.payload, result)
            else:
                self.quarantine.add(record_id(file, row.row), result.stage, result.reason, result.detail, row.payload)
            if self.log_interval and counts.read % self.log_interval == 0:
                self.log(counts)
            if isinstance(result, Row) and counts.kept == self.task.pipeline.preprocessing.max_items:
                return True
        return False

    def _accounted(self, result: Row | Refused) -> Row | Refused:
        """What a record becomes: nothing, where it has a decisive field that nothing reads."""
        if isinstance(result, Row) and (result.unread or result.dropped):
            try:
                self.account.note(result.dropped, result.unread)
            except Refused as refused:
                return refused
        return result

    def _keep(self, payload: Any, row: Row) -> None:
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
            # a text that goes into bins has a mask only there, where the padding needs one
            trained = sum(int(mask.sum()) for name, parts in row.cells.items() if columns[name].kind == "mask" for mask in parts)
            counts.trained += trained
            counts.untrained += trained == 0

    def require_result(self, quarantine: Path) -> None:
        """Stop where the output would be empty, or would train nothing."""
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


def _to_ignore(account: Account) -> str:
    options = " ".join(f"--ignore {shlex.quote(path)}" for path in sorted(account.unknown))
    return f"Name a section for them. If nothing is lost without them, add to the command:\n  {options}"


# Files in, AstrAI's layout out: read, deduplicate, tokenize, mask, pack, write; refuse and count.

Masking = Literal["astrai", "spans"]
Progress = Callable[[int, int], None]
"""Is told how many bytes of how many have been read."""
Dedup = Literal["exact", "prefix200", "none"]
SUMMARY, DOMAINS, QUARANTINE = "preprocess.json", "domains.json", "quarantine.jsonl"
_OURS = {SUMMARY, DOMAINS, QUARANTINE, "meta.json"}
_H5 = re.compile(r"data_\d{4,}\.(h5|offsets\.json)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run: where it is, what it counted, what it wrote, in how many records which fields were passed over."""

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
    """Run a pipeline over `inputs`, in the order given, each file once.

    Args:
        inputs: files, folders, globs or URLs, seen from the working directory.
        output: a directory that is absent or empty, or that `overwrite` may replace; there whole at the end or not at all.
        dedup: replaces what the configuration says: ``exact`` over the whole record, ``prefix200`` as AstrAI did, or ``none``.
        position_ids: replaces the configuration's ``position_ids_mode``.
        ignore: fields, dotted within objects, that are left out before a record is read.
        workers: processes that read, tokenize and mask; it changes no byte.
        log_interval: `log` is called with the counts each time that so many more records are read.

    Raises:
        ConfigError: the configuration, or a combination of these options, means nothing; or records have fields that nothing reads and
            whose names do not say that they mean nothing.
        SourceError: an input is missing or damaged.
        StoreError: `output` holds something.
        PrepAssetsError: no record is kept, or no token is trained; the message says why.
    """
    task = task_of(pipeline, position_ids=position_ids)
    _check_ids_fit(task, vocabulary)
    method: Dedup = dedup or ("exact" if task.deduplicate else "none")
    target = output.expanduser().resolve()
    busy = StoreError(f"another run is writing to {target}. Wait until it has ended, or choose another directory")
    with whole_folder(target, lambda: require_free(target, overwrite=overwrite), busy=busy, replace=overwrite) as work:
        # a text has no spans: everything in it is trained
        job = Job(task, vocabulary, masking == "spans" and not task.is_text, Pinned(_files(inputs), (), 0, ""), tuple(ignore))
        writer = ShardWriter(work, task, pad_id=vocabulary.pad_id if task.is_binned else 0, layout=layout)
        reading = job.reading(progress=(lambda doing, done, total: progress(done, total)) if progress else None)
        with Quarantine(work / QUARANTINE) as quarantine, Pool(worker_count(workers)) as pool:
            key = task.pipeline.output.domain_key
            account = Account(ignore, () if key is None else (key,))
            run = Run(task, writer, quarantine, account, deduplicator(method), log, log_interval)
            run.over(batches_by_workers(job, pool, work / ".built", reading))
        if progress:
            progress(job.sources.bytes, job.sources.bytes)
        run.require_result(work / QUARANTINE)
        writer.close()
        options = {"masking": masking, "deduplicate": method, "layout": layout, "pipeline": json.loads(pipeline.model_dump_json())}
        template = None if vocabulary.chat_template is None else hashlib.sha256(vocabulary.chat_template.encode()).hexdigest()
        _write_about(work, {**options, "tokenizer": vocabulary.hash, "template": template}, run, job.sources.files)
    return Outcome(output, run.counts, writer.totals, dict(sorted(account.counts.items())))


def _files(inputs: Sequence[str]) -> tuple[SourceFile, ...]:
    """The inputs in the order given. Their names tell them apart by their folders, so they are found together first."""
    by_url = {file.url: file for file in find_files(inputs, Path.cwd())}
    urls = dict.fromkeys(file.url for pattern in inputs for file in find_files([pattern], Path.cwd()))
    return tuple(by_url[url] for url in urls)


def _check_ids_fit(task: Task, vocabulary: Vocabulary) -> None:
    for key, column in task.columns.items():
        if column.kind == "ids" and vocabulary.size - 1 > np.iinfo(column.dtype).max:
            raise ConfigError(
                f"output.dtype.{key}: {column.dtype} holds ids to {np.iinfo(column.dtype).max:,}, the vocabulary has {vocabulary.size:,}"
            )


def _write_about(work: Path, options: Mapping[str, Any], run: Run, files: Sequence[SourceFile]) -> None:
    """The sidecar files. They hold no time and no path, so that equal runs are equal to the byte."""
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

    It takes different records for equal where they begin alike, such as chats with one long system prompt, and equal texts for different
    where an id stands before them.
    """
    return hashlib.md5(json.dumps(payload, sort_keys=True, ensure_ascii=False)[:200].encode(), usedforsecurity=False).hexdigest()


def deduplicator(method: Dedup) -> Deduplicator | None:
    """What refuses duplicates; `None` keeps them."""
    if method == "prefix200":
        return Deduplicator(
            lambda records: [bytes.fromhex(prefix_signature(record.payload)) for record in records], "has the same first 200 characters as"
        )
    return Deduplicator() if method == "exact" else None


def require_free(target: Path, *, overwrite: bool) -> None:
    """Refuse a target that holds anything, unless it is to be overwritten and holds nothing but what preprocessing writes.

    Raises:
        StoreError: it holds something; the message says what, and how to go on.
    """
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is a file; the output is a directory. Choose another name")
    first = next(iter(sorted(target.iterdir())), None) if target.is_dir() else None
    if first is not None and not overwrite:
        raise StoreError(f"{target} is not empty: it holds {first.name}. Choose another directory, or replace it with --overwrite")
    for path in sorted(target.rglob("*")) if first is not None else ():
        if not _is_ours(path):
            raise StoreError(
                f"--overwrite would delete {path}, which preprocessing does not write. Choose another directory, or move it away"
            )


def _is_ours(path: Path) -> bool:
    """Whether a path is what preprocessing, AstrAI's or this one, writes."""
    if path.is_symlink() or not path.is_file():
        return path.is_dir() and not path.is_symlink()
    is_key = path.suffix == ".bin" and path.with_name("meta.json").is_file()
    return path.name in _OURS or is_key or _H5.fullmatch(path.name) is not None


def load_tokenizer(directory: Path) -> Vocabulary:
    """Load a tokenizer.

    ``tokenizer_config.json`` may be AstrAI's (``special_tokens``, a map of names to texts) or the one that transformers writes
    (``bos_token`` and so on beside each other). The chat template is its ``chat_template``, else the file ``chat_template.jinja``.

    Raises:
        ConfigError: the directory is missing, holds no tokenizer, or holds one that is known to be wrong.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        remedy = (
            "Convert the tokenizer with transformers (save_pretrained)" if directory.is_dir() else "Name the directory with --tokenizer"
        )
        raise ConfigError(f"no tokenizer at {path}. {remedy}")
    found = from_file(str(directory), directory)
    config = read_object(directory / "tokenizer_config.json")
    declared = config.get("special_tokens")
    named = declared if isinstance(declared, Mapping) else {name: config.get(name) for name in NAMES}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in named.items()}
    special = {name: text for name, text in texts.items() if isinstance(text, str) and found.backend.token_to_id(text) is not None}
    template = {**chat_templates(directory), **templates_by_name(config.get("chat_template"))}.get(DEFAULT_TEMPLATE)
    return replace(found, special=special, chat_template=template, templates={})
