"""Write token streams from rows or lines, whole or in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.config.family import Family, StorageFormat
from prep_assets.data import tables
from prep_assets.data.quarantine import Quarantine
from prep_assets.pipeline.asset import FromRows, NeedsMore, Target, ids_dtype
from prep_assets.pipeline.examples import FirstPass, Pace, PinnedDuplicates, Reading, Source, is_held_out, note_records, without_duplicates
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.guards import Guards
from prep_assets.stores.remote import remote_of
from prep_assets.stores.shards import ATTENTION, unsigned
from prep_assets.stores.table import TOKENS
from prep_assets.stores.version_folders import staging
from prep_assets.stores.writer import TableWriter
from prep_assets.workers.shards import Counts, Plan, Runner, Shard, ShardResult, Work, carried_out, key_of

# Shared by all token streams: their arrays.


def mask_columns(weights: npt.NDArray[np.float32], dtypes: Mapping[str, str]) -> dict[str, npt.NDArray[Any]]:
    """The ``loss_mask`` of loss weights, which may be `UNATTENDED`, and the ``attention_mask`` if `dtypes` names one.

    Raises:
        NeedsMore: a weight is neither 0 nor 1, or a token is unattended, and `dtypes` cannot hold that.
    """
    loss, attended = unsigned(weights)
    needed = dict(dtypes)
    if ((loss != 0) & (loss != 1)).any():
        needed["loss_mask"] = "float32"
    if not attended.all():
        needed[ATTENTION] = "uint8"
    if needed != dtypes:
        raise NeedsMore(needed)
    columns = {"loss_mask": loss, ATTENTION: attended}
    return {name: columns[name].astype(dtype) for name, dtype in dtypes.items()}


@contextmanager
def writers_of(target: Target, stems: Iterable[str], arrays: Mapping[str, str], storage: StorageFormat = "bin") -> Iterator[Writers]:
    """Writers of the token streams of one folder, by name.

    Args:
        arrays: name → dtype of the arrays of a stream, apart from its tokens.
        storage: streams that other assets read are always `bin`, which is memory-mapped.
    """
    output, dtypes = target.family.output, {"tokens": ids_dtype(target.family, target.vocabulary), **arrays}
    with ExitStack() as stack:
        writers = {}
        for path in (target.payload / stem for stem in stems):
            path.parent.mkdir(exist_ok=True)
            writer = TableWriter(path.parent, path.name, TOKENS, dtypes, storage=storage, max_tokens_per_shard=output.max_tokens_per_shard)
            writers[path.name] = dtypes, stack.enter_context(writer)
        yield writers


Writers = Mapping[str, tuple[Mapping[str, str], TableWriter]]
"""Stream → dtypes of its arrays, and its writer."""


BY_DOMAIN = "_by_domain"
"""Suffix of an asset with one store per domain; the name before it is the asset that merges them."""


def by_domain(asset: str) -> str:
    """The asset with one store per domain that `asset` merges."""
    return f"{asset}{BY_DOMAIN}"


# Rows of a domain or lines of a file are tokenized in one process, or in shards by several. A shard gives a small store, and the stores are joined in the
# order of the plan. The bytes are those that one process writes.

FEWEST = 8
"""With fewer times `SHARD_BYTES` of text, one process finishes before workers start."""
_UNCUT = 1 << 62
QUARANTINE, _STREAMS = "quarantine.jsonl", "streams"
"""Names in the folder of a shard."""
R = TypeVar("R")
Encode = Callable[[Workspace, R, Sequence[TableWriter], Quarantine], dict[str, Any]]
"""Reads, tokenizes and writes, and returns counts: numbers, or mappings of numbers, which add up over shards. Picklable."""


class Cuttable(Protocol[R]):
    """A source that can be read in shards."""

    @property
    def workspace(self) -> Workspace:
        """The workspace."""

    @property
    def family(self) -> Family:
        """The configuration of its family."""

    @property
    def doing(self) -> str:
        """Label of the progress."""

    @property
    def size(self) -> int:
        """Its bytes of text, about."""

    def whole(self) -> R:
        """A reading of everything, in this process."""

    def shards(self, count: int | Literal["auto"]) -> Sequence[Shard]:
        """About `count` shards."""

    def part(self, task: Any) -> R:
        """The reading of one shard."""

    def travelling(self, runner: Runner) -> Cuttable[R]:
        """A copy to send to another process."""


def encode_in_shards(
    source: Cuttable[R], encode: Encode[R], writers: Writers, quarantine: Quarantine, payload: Path, *, busy: int = 1
) -> dict[str, Any]:
    """Encode a source, in shards if there are workers. Returns the counts of the whole source.

    Args:
        busy: processors that `encode` keeps busy by itself.
    """
    workspace, family, total = source.workspace, source.family, dict[str, Any]()
    runner = workspace.runner(family, busy=busy) if source.size >= FEWEST * tables.SHARD_BYTES else None
    shards = source.shards(family.cluster.shards) if runner else []
    if runner is None or len(shards) < 2:
        counts = encode(workspace, source.whole(), [writer for _, writer in writers.values()], quarantine)
        workspace.engines(family).pause()
        return counts
    if isinstance(source, Source):
        shards = shards_without_duplicates(source, runner, shards, payload)
    part = partial(_encode_part, source=source.travelling(runner), encode=encode)
    work = partial(_encode_shard, encode=part, dtypes={name: dict(dtypes) for name, (dtypes, _) in writers.items()})
    ready = partial(opened, workspace.travelling(type(family)), type(family))
    for result in shard_results(workspace, source.doing, runner, shards, work, payload, ready):
        guards = Guards.of_work(result.folder, result.files)
        for name, (_, writer) in writers.items():
            writer.append_stored(result.folder / _STREAMS, name, guards)
        take_quarantine(result, quarantine)
        add(total, result.counts["encoded"])
    runner.effort.shards += len(shards)
    return total


def _encode_part(
    task: Any, writers: Sequence[TableWriter], quarantine: Quarantine, *, source: Cuttable[R], encode: Encode[R]
) -> dict[str, Any]:
    return encode(source.workspace, source.part(task), writers, quarantine)


def _encode_shard(task: Any, folder: Path, *, encode: Callable[..., dict[str, Any]], dtypes: Mapping[str, Mapping[str, str]]) -> Counts:
    """The work of one shard."""
    place = folder / _STREAMS
    place.mkdir()
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(folder / QUARANTINE))
        writers = [
            stack.enter_context(TableWriter(place, name, TOKENS, array_dtypes, max_tokens_per_shard=_UNCUT))
            for name, array_dtypes in dtypes.items()
        ]
        encoded = encode(task, writers, quarantine)
        return {"encoded": encoded, "refused": quarantine.counts}


def opened(workspace: Workspace, kind: type[Family]) -> None:
    """Open the engines of a family."""
    workspace.engines(workspace.family(kind))


def take_quarantine(result: ShardResult, quarantine: Quarantine) -> None:
    """Append the quarantine of a shard."""
    if (rejected := result.folder / QUARANTINE).exists():
        with Guards.of_work(result.folder, result.files).open(rejected) as lines:
            quarantine.append(lines, result.counts["refused"])


def shard_results(
    workspace: Workspace,
    doing: str,
    runner: Runner,
    shards: Sequence[Shard],
    work: Work,
    payload: Path,
    ready: Callable[[], object] | None = None,
) -> Iterator[ShardResult]:
    """Run shards and yield their results in order, reporting progress."""
    place = staging(payload) / key_of(work)
    remote = remote_of(workspace.stores) if runner.elsewhere else None
    depot = remote.below(place.relative_to(workspace.stores).as_posix()).depot() if remote else None
    plan = Plan(shards, place, depot=depot, ready=ready)
    done, pace, total, before = 0, Pace(), plan.size, replace(runner.effort)
    for number, result in enumerate(carried_out(runner, plan, work), 1):
        yield result
        done += result.shard.size
        lost = f", {count} workers lost" if (count := runner.effort.since(before).lost) else ""
        if workspace.progress:
            workspace.progress(f"{doing}: {number:,} of {len(plan.shards):,} shards, {pace.text(done, total)}{lost}", done, total)


def add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add `counts` to `total`: numbers, or mappings of numbers."""
    for key, value in counts.items():
        if isinstance(value, Mapping):
            add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value


# The rows of a domain, tokenized.


def tokenize_rows(
    target: Target,
    quarantine: Quarantine,
    encode: Encode[Reading],
    arrays: Mapping[str, str],
    *,
    storage: StorageFormat = "bin",
    busy: int = 1,
) -> dict[str, Any]:
    """Tokenize a domain into the token streams of its asset, and return counts.

    Args:
        arrays: see `writers_of`.
        busy: see `encode_in_shards`.
    """
    asset = target.asset
    assert isinstance(asset.source, FromRows)
    source = Source.of(target.workspace, type(target.family), target.partition, gives=asset.source.gives)
    with writers_of(target, target.stems, arrays, storage) as writers:
        return encode_in_shards(source, encode, writers, quarantine, target.payload, busy=busy)


def shards_without_duplicates(
    source: Source, runner: Runner, shards: Sequence[Shard], payload: Path, *, again: bool = False
) -> list[Shard]:
    """The shards with their duplicates and limits. A first pass finds these if the family deduplicates or limits records.

    Args:
        again: whether this build asks once more.
    """
    if not source.family.preprocessing.deduplicate and source.max_items is None:
        return [replace(shard, task=(shard.task, FirstPass())) for shard in shards]
    pool = source.workspace.pool
    pinned: PinnedDuplicates | None = (pool.noted.get if again else pool.noted.pop)((source.kind, source.name), None) if pool else None
    if pinned and (ready := pinned.of(source, shards)):
        return ready
    noted: list[ShardResult] = []
    work = partial(note_records, source=source.travelling(runner, tokenized=False))
    for batch in _batches_to_limit(source, runner, shards, noted):
        noted += shard_results(source.workspace, f"compare records of {source.name}", runner, batch, work, payload)
    return list(without_duplicates(source, noted))


def _batches_to_limit(source: Source, runner: Runner, shards: Sequence[Shard], noted: list[ShardResult]) -> Iterator[Sequence[Shard]]:
    """Yield batches of shards: all at once, or with a limit a few training shards at a time until they hold enough records, then the held-out ones."""
    if source.max_items is None:
        yield shards
        return
    held_out = [shard for shard in shards if is_held_out(shard, source.sources)]
    training, step = shards[: len(shards) - len(held_out)], 2 * runner.size
    for first in range(0, len(training), step):
        if sum(result.counts["rows"] for result in noted) >= source.max_items:
            break
        yield training[first : first + step]
    yield held_out
