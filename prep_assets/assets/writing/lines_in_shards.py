"""Token streams of the lines of a JSONL store, in shards of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.in_shards import FEWEST, Streams, joined
from prep_assets.config.models import Family
from prep_assets.records import cuts
from prep_assets.records.cuts import LineCuts, parts, shard_size
from prep_assets.records.files import Part
from prep_assets.records.quarantine import Quarantine
from prep_assets.stores.guards import Guards
from prep_assets.stores.lines import Lines
from prep_assets.stores.mirror import bucket_of
from prep_assets.stores.published import shelf_of
from prep_assets.stores.tokens import RecordWriter
from prep_assets.stores.version_folders import version_of
from prep_assets.workers.shards import Shard

BATCH = 512
"""Lines that are encoded at a time. It changes nothing in a store."""
_READ = 1 << 20
Batch = tuple[int, list[dict[str, Any]]]
"""Number of a first line, and what it and those after it hold."""


class EncodeLines(Protocol):
    """Tokenizes and writes lines; see `Encode`."""

    def __call__(
        self, workspace: Workspace, batches: Iterator[Batch], writers: Sequence[RecordWriter], quarantine: Quarantine
    ) -> dict[str, Any]: ...


def encode_lines(workspace: Workspace, family: Family, doing: str, lines: Lines, encode: EncodeLines, streams: Streams) -> dict[str, Any]:
    """Encode a file, in shards where there are workers for them. Counts are those of the whole.

    Args:
        doing: what progress is about.
    """
    runner = workspace.runner(family)
    if runner is None or lines.path.stat().st_size < FEWEST * cuts.SHARD_BYTES:
        batches = _told(workspace, doing, lines, _batches(lines, Part()))
        counts = encode(workspace, batches, list(streams.writers.values()), streams.quarantine)
        workspace.engines(family).pause()
        return counts
    travelling, root = replace(lines, index={}, guards=Guards()), workspace.stores.resolve()
    kept = version_of(lines.path) if runner.elsewhere and bucket_of(root) else None
    work = partial(
        _encode_part,
        workspace=workspace.travelling(type(family)),
        lines=travelling,
        encode=encode,
        kept=kept.relative_to(root) if kept else None,
    )
    return joined(workspace, type(family), doing, runner, line_shards(lines, family.cluster.shards), work, streams)


def _encode_part(
    task: Part,
    writers: Sequence[RecordWriter],
    quarantine: Quarantine,
    *,
    workspace: Workspace,
    lines: Lines,
    encode: EncodeLines,
    kept: Path | None,
) -> dict[str, Any]:
    """Args:
    kept: the version of a store in a bucket that the lines are of, below the folder of all; it is fetched here.
    """
    if kept is not None:
        version = shelf_of(workspace.stores / kept.parent.parent).published(kept.name)
        lines = replace(lines, path=version.directory / lines.path.name)
    return encode(workspace, _batches(lines, task), writers, quarantine)


def line_shards(lines: Lines, count: int | Literal["auto"]) -> list[Shard]:
    """A file of lines, cut as sources are."""
    path = lines.path
    watch = LineCuts(shard_size(path.stat().st_size, count))
    with lines.guards.open(path) as file:
        while data := file.read(_READ):
            watch(data)
    return [
        Shard(number, f"{path.name} from line {part.row + 1:,}", (part.stop or watch.seen) - part.start, part)
        for number, part in enumerate(parts(watch.cuts))
    ]


def _batches(lines: Lines, part: Part) -> Iterator[Batch]:
    rows = lines.part(part.start, part.stop)
    first = part.row
    while batch := list(islice(rows, BATCH)):
        yield first, batch
        first += len(batch)


def _told(workspace: Workspace, doing: str, lines: Lines, batches: Iterator[Batch]) -> Iterator[Batch]:
    for first, batch in batches:
        yield first, batch
        if workspace.progress:
            workspace.progress(doing, first + len(batch), len(lines))
