"""A domain's token streams, written by several processes: each shard is a small store of its own, and the stores are joined in the order of the
plan. What comes out is what one process writes, to the byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from prep_assets.assets.reading.domain import Reading
from prep_assets.assets.reading.duplicates import Found, note_records, without_duplicates
from prep_assets.assets.reading.pace import Pace
from prep_assets.assets.reading.source import Source
from prep_assets.assets.reading.stretches import Stretch, is_held_out, shards_of
from prep_assets.assets.workspace import Workspace
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.joining import append_store
from prep_assets.stores.tokens import RecordWriter, open_tokens, record_writer
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Counts, Plan, Shard, ShardResult, Work

FEWEST = 4
"""A domain of fewer shards is done sooner than workers start."""
_UNCUT = 1 << 62
_QUARANTINE, _STREAMS = "quarantine.jsonl", "streams"


class Encode(Protocol):
    """Reads, tokenizes and writes a domain, or a part of one, and counts: numbers, or mappings of them, which add up over parts. It travels to other
    processes."""

    def __call__(
        self, workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Streams:
    """The token streams of a store.

    Attributes:
        payload: its folder.
        names: of the streams.
        dtypes: of their arrays.
    """

    payload: Path
    names: Sequence[str]
    dtypes: Mapping[str, str]


def encode_domain(
    source: Source, encode: Encode, streams: Streams, writers: Sequence[RecordWriter], quarantine: Quarantine
) -> dict[str, Any]:
    """Encode a domain, in shards where there are workers for them. Counts are those of the whole."""
    runner, shards = source.workspace.runner(source.family), shards_of(source.sources)
    if runner is None or len(shards) < FEWEST:
        return encode(source.workspace, source.reading(), writers, quarantine)
    with _staging(streams.payload) as staging:
        planned = Plan(_looked_over(source, runner, shards, staging / "first"), staging / "shards")
        work = partial(encode_shard, source=source.travelling(), encode=encode, names=tuple(streams.names), dtypes=dict(streams.dtypes))
        total: dict[str, Any] = {}
        for result in _told(source, f"tokenize {source.name}", runner, planned, work):
            for name, writer in zip(streams.names, writers, strict=True):
                append_store(writer, open_tokens(result.folder / _STREAMS, name))
            quarantine.append(result.folder / _QUARANTINE, result.counts["refused"])
            add(total, result.counts["encoded"])
            shutil.rmtree(result.folder)
        return total


def encode_shard(
    task: tuple[Sequence[Stretch], Found], folder: Path, *, source: Source, encode: Encode, names: Sequence[str], dtypes: Mapping[str, str]
) -> Counts:
    """The work of one shard."""
    (folder / _STREAMS).mkdir()
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(folder / _QUARANTINE))
        writers = [
            stack.enter_context(record_writer("bin", folder / _STREAMS, name, dtypes, max_tokens_per_shard=_UNCUT)) for name in names
        ]
        stretches, found = task
        encoded = encode(source.workspace, source.part(stretches, found, found.limit), writers, quarantine)
        return {"encoded": encoded, "refused": quarantine.counts}


def _looked_over(source: Source, runner: Pool, shards: Sequence[Shard], staging: Path) -> list[Shard]:
    """The shards with what each must know of the others, which takes a first pass where duplicates are refused or records are limited."""
    if not source.family.preprocessing.deduplicate and source.max_items is None:
        return [replace(shard, task=(shard.task, Found())) for shard in shards]
    noted: list[ShardResult] = []
    work = partial(note_records, source=source.travelling())
    for some in _as_needed(source, runner, shards, noted):
        noted += _told(source, f"compare records of {source.name}", runner, Plan(some, staging), work)
    return list(without_duplicates(source, noted))


def _as_needed(source: Source, runner: Pool, shards: Sequence[Shard], noted: list[ShardResult]) -> Iterator[Sequence[Shard]]:
    """All shards; of a domain that is limited those to train on a few at a time, until they hold enough, then those held out."""
    if source.max_items is None:
        yield shards
        return
    held_out = [shard for shard in shards if is_held_out(shard, source.sources)]
    training, step = shards[: len(shards) - len(held_out)], 2 * runner.size
    for first in range(0, len(training), step):
        if sum(each.counts["rows"] for each in noted) >= source.max_items:
            break
        yield training[first : first + step]
    yield held_out


def _told(source: Source, doing: str, runner: Pool, plan: Plan, work: Work) -> Iterator[ShardResult]:
    """The results, while progress is told of them."""
    done, pace, total = 0, Pace(), plan.size
    for number, result in enumerate(runner.run_shards(plan, work), 1):
        yield result
        done += result.shard.size
        lost = f", {runner.lost} workers lost" if runner.lost else ""
        source.workspace.progress(f"{doing}: {number:,} of {len(plan.shards):,} shards, {pace.said(done, total)}{lost}", done, total)


@contextmanager
def _staging(payload: Path) -> Iterator[Path]:
    """A folder beside the payload for what is not yet joined; nothing of it is left."""
    folder = payload.with_name(f"{payload.name}-shards")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add counts to others: numbers, or mappings of them."""
    for key, value in counts.items():
        if isinstance(value, Mapping):
            add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value
