"""Rows of the source files with the tokens and masks that a builder makes of them, in order: in this process, or by workers in shards.

Only what one row decides is done here. Duplicates, ``max_items``, domains and shards of the output need a view of all rows, and are decided by
whoever takes these batches, in the order of the files; so no byte depends on how many workers there are.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from prep_assets.assets.reading.domain import Reading
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.pinned import Pinned
from prep_assets.assets.reading.routing import Router
from prep_assets.assets.reading.stretches import Stretch, shards_of
from prep_assets.astrai.columns import Builder, Row
from prep_assets.astrai.masks import AstraiBuilder
from prep_assets.astrai.spans import SpansBuilder
from prep_assets.astrai.task import Task
from prep_assets.config.models import Domain
from prep_assets.errors import Refused
from prep_assets.records import cuts
from prep_assets.records.cuts import Cut, LineCuts, table_cuts
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Refusal, unreadable
from prep_assets.records.remote import is_remote
from prep_assets.records.stream import Stream
from prep_assets.samples import Record, Sample
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Counts, Plan

FEWEST = 4
"""What has fewer shards is done sooner than workers start."""
_BUILT = "built.pickle"
_READ = 1 << 20
Item = tuple[str, Record | Refusal]
"""The id of a row, and what it holds, or why it cannot be read."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbouring rows.

    Attributes:
        items: the rows.
        build: places in `items` → what each of these records becomes.
    """

    items: Sequence[Item]
    build: Callable[[Sequence[int]], Iterable[Row | Refused]]


@dataclass(frozen=True)
class Job:
    """What is read, and what makes tokens of it. It travels to other processes.

    Attributes:
        sources: the files, in the order in which they are read.
        by_spans: whether masks are made as the house makes them.
        ignore: fields that are left out before a record is read.
    """

    task: Task
    vocabulary: Any
    by_spans: bool
    sources: Pinned
    ignore: tuple[str, ...] = ()

    @cached_property
    def builder(self) -> Builder[Any]:
        """What makes tokens of records; it stays where it was made."""
        return (SpansBuilder if self.by_spans else AstraiBuilder)(self.task, self.vocabulary, self.ignore)

    def reading(self, stretches: Sequence[Stretch] | None = None, progress: Progress = lambda doing, done, total: None) -> Reading:
        """The core's loop over the files, or over some stretches of them."""
        domain = Domain(files=tuple(file.url for file in self.sources.files), schema="sections")
        # the converter is not asked: the builders read rows as the pipeline says
        reader = converter(domain, Sample)
        return Reading("", domain, Router(None, ""), self.sources, reader, progress=progress, stretches=stretches)

    def batches(self, reading: Reading) -> Iterator[Batch]:
        """All rows of a reading."""
        size = self.task.pipeline.preprocessing.batch_size
        for block in reading.rows(_READ):
            items = [_item(block.file, row) for row in block.rows]
            for at in range(0, len(items), size):
                batch = items[at : at + size]
                yield Batch(batch, partial(self._build, batch))
            reading.advance("preprocess", block.size)

    def _build(self, items: Sequence[Item], places: Sequence[int]) -> list[Row | Refused]:
        records = (items[place][1] for place in places)
        return self.builder.build([record.payload for record in records if isinstance(record, Record)])


def batches_by_workers(job: Job, pool: Pool, folder: Path, reading: Reading) -> Generator[Batch, None, None]:
    """All rows, built by the workers of a pool; in this process where there are few.

    Args:
        folder: for what is under way; it must not be there, and is gone at the end.
        reading: of all rows, in this process.
    """
    travelling = replace(job, sources=replace(job.sources, cuts=tuple(_cuts(file) for file in job.sources.files)))
    shards = shards_of(travelling.sources) if pool.size > 1 else []
    if len(shards) < FEWEST:
        yield from job.batches(reading)
        return
    folder.mkdir()
    try:
        for result in pool.run_shards(Plan(shards, folder), partial(_build_shard, job=travelling)):
            yield from _read(result.folder / _BUILT)
            shutil.rmtree(result.folder)
            reading.advance("preprocess", result.shard.size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build_shard(task: Sequence[Stretch], folder: Path, *, job: Job) -> Counts:
    """The work of one shard: every batch with what each record becomes, one after the other in a file."""
    with (folder / _BUILT).open("wb") as file:
        for batch in job.batches(job.reading(task)):
            places = [place for place, (_, row) in enumerate(batch.items) if isinstance(row, Record)]
            pickle.dump((batch.items, dict(zip(places, batch.build(places), strict=True))), file)
    return {}


def _read(path: Path) -> Iterator[Batch]:
    with path.open("rb") as file:
        while file.peek(1):
            items, built = pickle.load(file)
            yield Batch(items, partial(map, built.__getitem__))


def _item(file: SourceFile, row: Any) -> Item:
    return record_id(file, row.row), row if isinstance(row, Record) else unreadable(file, row)


def _cuts(file: SourceFile) -> tuple[Cut, ...]:
    """Where a file can be cut; nowhere, where that would fetch it twice."""
    if file.format in cuts.TABLES:
        return tuple(table_cuts(file, cuts.SHARD_BYTES))
    if file.format not in cuts.LINES or is_remote(file.url):
        return ()
    watch = LineCuts(cuts.SHARD_BYTES)
    with Stream(file) as stream:
        while data := stream.read(_READ):
            watch(data)
    return tuple(watch.cuts)
