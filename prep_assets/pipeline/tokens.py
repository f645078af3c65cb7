"""Write token streams from rows or lines, whole or in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.config.family import Family, StorageFormat
from prep_assets.config.mask import MaskPolicy
from prep_assets.data import tables
from prep_assets.data.files import Part
from prep_assets.data.quarantine import Quarantine
from prep_assets.data.tables import LineCuts, parts, shard_size
from prep_assets.errors import Refused
from prep_assets.pipeline.asset import FromLines, FromRows, LineEncoder, NeedsMore, Target, ids_dtype
from prep_assets.pipeline.examples import FirstPass, Pace, PinnedDuplicates, Reading, Source, is_held_out, note_records, without_duplicates
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.guards import Guards
from prep_assets.stores.lines import rows_between
from prep_assets.stores.published import Draft
from prep_assets.stores.remote import backend_of, remote_of
from prep_assets.stores.table import TOKENS, open_stream
from prep_assets.stores.tokens import ATTENTION, unsigned
from prep_assets.stores.version_folders import staging, version_of
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


# The lines of a JSONL store, tokenized.

BATCH = 512
"""Lines that are encoded at a time. It changes nothing in a store."""
_READ = 1 << 20
Batch = tuple[int, list[dict[str, Any]]]
"""Number of the first line, and the lines."""


def tokenize_lines(target: Target, quarantine: Quarantine, *, what: str) -> Draft:
    """Tokenize the lines that an asset is made from into its token streams, folder by folder.

    Args:
        what: what the lines are, for progress.
    """
    asset, workspace, counts = target.asset, target.workspace, dict[str, Any]()
    assert isinstance(asset.source, FromLines)
    masked = any(stream.masked for stream in asset.streams.values())
    for first, (above, name) in asset.source.files.items():
        folder, lines = first.rpartition("/")[0], open_stream(workspace.built(above, target.partition).directory, name)
        if folder and not len(lines):
            continue
        assert lines.path is not None
        doing = f"tokenize {what} of {target.partition}" if target.partition else f"tokenize {what}"
        stems = [stem for stem in target.stems if stem.rpartition("/")[0] == folder]
        with writers_of(target, stems, {"loss_mask": "uint8"} if masked else {}) as writers:
            source, encode = (
                LineFile(workspace, target.family, doing, lines.path, len(lines)),
                partial(_encode_lines, encoder=asset.source.encoder, name=name, masked=masked),
            )
            encoded = encode_in_shards(source, encode, writers, quarantine, target.payload)
        add(counts, {**encoded, **({"kept_test": encoded["kept"]} if folder else {})})
    return Draft(counts, {})


def _encode_lines(
    workspace: Workspace,
    batches: Iterator[Batch],
    writers: Sequence[TableWriter],
    quarantine: Quarantine,
    *,
    encoder: Callable[[Workspace], LineEncoder],
    name: str,
    masked: bool,
) -> dict[str, Any]:
    lines = encoder(workspace)
    counts = {"read": 0, "kept": 0, "tokens": 0, **({"trained_tokens": 0} if masked else {})}
    for first, batch in batches:
        kept, streams = lines.encode(batch, first, quarantine, name=name)
        rows = [first + number for number in kept]
        add(counts, {"read": len(batch), "kept": len(rows)})
        for writer, (arrays, lengths, taken) in zip(writers, streams, strict=True):
            writer.append(arrays, lengths, [0] * len(rows), rows)
            add(counts, {"tokens": len(arrays["tokens"]), **({"trained_tokens": int(arrays["loss_mask"].sum())} if masked else {})})
            add(counts, {"tokens_cut_away": taken} if taken else {})
    return counts


def answer_policy() -> MaskPolicy:
    """Loss on a region that says so itself, on nothing else: the answers carry weight 1, the prompt weight 0."""
    return MaskPolicy(mask={}, mask_default="mask")


def reject_lines(batch: Sequence[Mapping[str, Any]], first: int, refused: Mapping[int, Refused], quarantine: Quarantine, name: str) -> None:
    """Put lines of the file `name` into quarantine, in their order."""
    for number, fault in sorted(refused.items()):
        quarantine.add(f"{name}.jsonl:{first + number + 1}", fault.stage, fault.reason, fault.detail, batch[number])


@dataclass(frozen=True)
class LineFile:
    """A file of lines.

    Attributes:
        workspace, family: where it belongs.
        doing: label of the progress.
        path: of the file; `count`: its lines.
        version: path of its store version below the store root if the stores are in a bucket; workers fetch it.
    """

    workspace: Workspace
    family: Family
    doing: str
    path: Path
    count: int
    version: Path | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def whole(self) -> Iterator[Batch]:
        """All lines."""
        for first, batch in _batches(self.path, Part()):
            yield first, batch
            if self.workspace.progress:
                self.workspace.progress(self.doing, first + len(batch), self.count)

    def part(self, task: Part) -> Iterator[Batch]:
        """The lines of a shard."""
        if self.version is None:
            return _batches(self.path, task)
        published = backend_of(self.workspace.stores / self.version.parent.parent).published(self.version.name)
        return _batches(published.directory / self.path.name, task)

    def shards(self, count: int | Literal["auto"]) -> list[Shard]:
        """Cut the file into shards, like source files."""
        path, watch = self.path, LineCuts(shard_size(self.size, count))
        with Guards().open(path) as file:
            while data := file.read(_READ):
                watch(data)
        return [
            Shard(number, f"{path.name} from line {part.row + 1:,}", (part.stop or watch.seen) - part.start, part)
            for number, part in enumerate(parts(watch.cuts))
        ]

    def travelling(self, runner: Runner) -> LineFile:
        """A copy to send to another process."""
        root = self.workspace.stores.resolve()
        version = version_of(self.path) if runner.elsewhere and remote_of(root) else None
        return replace(
            self,
            workspace=self.workspace.travelling(type(self.family)),
            version=version.relative_to(root) if version else None,
        )


def _batches(path: Path, part: Part) -> Iterator[Batch]:
    rows = rows_between(path, Guards(), part.start, part.stop)
    first = part.row
    while batch := list(islice(rows, BATCH)):
        yield first, batch
        first += len(batch)
