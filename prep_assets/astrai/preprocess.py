"""Files in, AstrAI's layout out: read, deduplicate, tokenize, mask, pack, write; refuse and count."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prep_assets.assets.reading.examples import Deduplicator
from prep_assets.assets.reading.pinned import Pinned
from prep_assets.astrai.built import Job, batches_by_workers
from prep_assets.astrai.config import AnyPipeline, PositionIds
from prep_assets.astrai.run import Counts, Log, Run
from prep_assets.astrai.shards import Layout, ShardWriter, Totals
from prep_assets.astrai.task import Task, task_of
from prep_assets.disk.written import write_json
from prep_assets.errors import ConfigError, StoreError
from prep_assets.records.files import SourceFile, find_files
from prep_assets.records.quarantine import Quarantine
from prep_assets.schemas.reader import Account
from prep_assets.stores.folders import whole_folder
from prep_assets.tokenization.beside import DEFAULT, NAMES, chat_templates, read_object, templates_by_name
from prep_assets.tokenization.load import from_file
from prep_assets.tokenization.vocabulary import Vocabulary
from prep_assets.workers.count import Workers, worker_count
from prep_assets.workers.pool import Pool

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
    template = {**chat_templates(directory), **templates_by_name(config.get("chat_template"))}.get(DEFAULT)
    return replace(found, special=special, chat_template=template, templates={})
