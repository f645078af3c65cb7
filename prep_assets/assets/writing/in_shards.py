"""Token streams that are written by several processes: each shard is a small store of its own, and the stores are joined in the order of the plan.
What comes out is what one process writes, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from prep_assets.assets.reading.domain import Pace
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Family
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.depot import ShardDepot
from prep_assets.stores.guards import Guards
from prep_assets.stores.joining import append_store
from prep_assets.stores.mirror import bucket_of
from prep_assets.stores.tokens import RecordWriter, open_tokens, record_writer
from prep_assets.stores.version_folders import staging
from prep_assets.workers.shards import Counts, Plan, Runner, Shard, ShardResult, Work
from prep_assets.workers.staging import carried_out, key_of

FEWEST = 8
"""What has no more than so many times the text between two cuts is done sooner than workers start."""
_UNCUT = 1 << 62
QUARANTINE, _STREAMS = "quarantine.jsonl", "streams"
"""Names in the folder of a shard."""


class Encode(Protocol):
    """Reads, tokenizes and writes what a task names, and counts: numbers, or mappings of them, which add up over tasks. It travels to other
    processes."""

    def __call__(self, task: Any, writers: Sequence[RecordWriter], quarantine: Quarantine) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Streams:
    """The token streams of a store.

    Attributes:
        payload: its folder.
        dtypes: of the arrays of each, by name.
        writers: of each.
        quarantine: where refused records go.
    """

    payload: Path
    dtypes: Mapping[str, Mapping[str, str]]
    writers: Mapping[str, RecordWriter]
    quarantine: Quarantine


def joined(
    workspace: Workspace, kind: type[Family], doing: str, runner: Runner, shards: Sequence[Shard], encode: Encode, streams: Streams
) -> dict[str, Any]:
    """Encode all shards and write what they give. Counts are those of the whole.

    Args:
        kind: the family.
        doing: what progress is about.
    """
    total: dict[str, Any] = {}
    work = partial(_encode_shard, encode=encode, dtypes={name: dict(each) for name, each in streams.dtypes.items()})
    for result in told(workspace, doing, runner, shards, work, streams.payload, partial(opened, workspace.travelling(kind), kind)):
        guards = Guards.of_work(result.folder, result.files)
        for name, writer in streams.writers.items():
            append_store(writer, open_tokens(result.folder / _STREAMS, name, guards))
        take_quarantine(result, streams.quarantine)
        add(total, result.counts["encoded"])
    runner.effort.shards += len(shards)
    return total


def opened(workspace: Workspace, kind: type[Family]) -> None:
    """Open what a family is tokenized with."""
    workspace.engines(workspace.family(kind))


def take_quarantine(result: ShardResult, quarantine: Quarantine) -> None:
    """Write what a shard has refused."""
    if (refused := result.folder / QUARANTINE).exists():
        with Guards.of_work(result.folder, result.files).open(refused) as lines:
            quarantine.append(lines, result.counts["refused"])


def _encode_shard(task: Any, folder: Path, *, encode: Encode, dtypes: Mapping[str, Mapping[str, str]]) -> Counts:
    """The work of one shard."""
    place = folder / _STREAMS
    place.mkdir()
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(folder / QUARANTINE))
        writers = [
            stack.enter_context(record_writer("bin", place, name, each, max_tokens_per_shard=_UNCUT)) for name, each in dtypes.items()
        ]
        encoded = encode(task, writers, quarantine)
        return {"encoded": encoded, "refused": quarantine.counts}


def told(
    workspace: Workspace,
    doing: str,
    runner: Runner,
    shards: Sequence[Shard],
    work: Work,
    payload: Path,
    ready: Callable[[], object] | None = None,
) -> Iterator[ShardResult]:
    """The results, while progress is told of them."""
    place = staging(payload) / key_of(work)
    bucket = bucket_of(workspace.stores) if runner.elsewhere else None
    depot = ShardDepot(bucket.below(place.relative_to(workspace.stores).as_posix())) if bucket else None
    plan = Plan(shards, place, depot=depot, ready=ready)
    done, pace, total, before = 0, Pace(), plan.size, replace(runner.effort)
    for number, result in enumerate(carried_out(runner, plan, work), 1):
        yield result
        done += result.shard.size
        lost = f", {count} workers lost" if (count := runner.effort.since(before).lost) else ""
        if workspace.progress:
            workspace.progress(f"{doing}: {number:,} of {len(plan.shards):,} shards, {pace.text(done, total)}{lost}", done, total)


def add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add counts to others: numbers, or mappings of them."""
    for key, value in counts.items():
        if isinstance(value, Mapping):
            add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value
