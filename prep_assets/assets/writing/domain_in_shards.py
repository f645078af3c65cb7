"""A domain's token streams in shards of its source files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from prep_assets.assets.reading.domain import Reading
from prep_assets.assets.reading.duplicates import Elsewhere, Found, Noted, note_records, without_duplicates
from prep_assets.assets.reading.source import Source
from prep_assets.assets.reading.stretches import Stretch, is_held_out, shards_of
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import FEWEST, Streams, joined, told
from prep_assets.records import cuts
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.tokens import RecordWriter
from prep_assets.workers.shards import Runner, Shard, ShardResult


class EncodeRows(Protocol):
    """Reads, tokenizes and writes a domain, or a part of one; see `Encode`."""

    def __call__(
        self, workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine
    ) -> dict[str, Any]: ...


def encode_domain(source: Source, encode: EncodeRows, streams: Streams, *, busy: int = 1) -> dict[str, Any]:
    """Encode a domain, in shards where there are workers for them. Counts are those of the whole.

    Args:
        busy: how many processors `encode` keeps busy by itself.
    """
    workspace = source.workspace
    runner = workspace.runner(source.family, busy=busy)
    shards = shards_of(source.sources, source.family.cluster.shards) if runner else []
    if runner is None or len(shards) < 2 or sum(shard.size for shard in shards) < FEWEST * cuts.SHARD_BYTES:
        return encode(workspace, source.reading(), list(streams.writers.values()), streams.quarantine)
    ready = _looked_over(source, runner, shards, streams.payload)
    part = partial(_encode_part, source=source.travelling(), encode=encode)
    return joined(workspace, source.kind, f"tokenize {source.name}", runner, ready, part, streams)


def _encode_part(
    task: tuple[Sequence[Stretch], Found], writers: Sequence[RecordWriter], quarantine: Quarantine, *, source: Source, encode: EncodeRows
) -> dict[str, Any]:
    stretches, found = task
    elsewhere = Elsewhere(found, (*source.sources.files, *source.sources.test_files))
    return encode(source.workspace, source.part(stretches, elsewhere, found.limit), writers, quarantine)


def _looked_over(source: Source, runner: Runner, shards: Sequence[Shard], payload: Path) -> list[Shard]:
    """The shards with what each must know of the others, which takes a first pass where duplicates are refused or records are limited."""
    if not source.family.preprocessing.deduplicate and source.max_items is None:
        return [replace(shard, task=(shard.task, Found())) for shard in shards]
    pool = source.workspace.pool
    known: Noted | None = pool.noted.pop((source.kind, source.name), None) if pool else None
    if known and (ready := known.of(source, shards)):
        return ready
    noted: list[ShardResult] = []
    work = partial(note_records, source=source.travelling())
    for some in _as_needed(source, runner, shards, noted):
        noted += told(source.workspace, f"compare records of {source.name}", runner, some, work, payload)
    return list(without_duplicates(source, noted))


def _as_needed(source: Source, runner: Runner, shards: Sequence[Shard], noted: list[ShardResult]) -> Iterator[Sequence[Shard]]:
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
