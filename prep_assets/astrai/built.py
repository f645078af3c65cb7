"""Rows of the source files with the tokens and masks that a builder makes of them, in order: in this process, or by workers in shards.

Only what one row decides is done here. Duplicates, ``max_items``, domains and shards of the output need a view of all rows, and are decided by
the consumer of these batches, in the order of the files; so no byte depends on how many workers there are.
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
from prep_assets.assets.workspace import Progress
from prep_assets.astrai.columns import Builder, Row
from prep_assets.astrai.masks import AstraiBuilder, SpansBuilder
from prep_assets.astrai.task import Task
from prep_assets.config.models import Domain
from prep_assets.errors import Refused
from prep_assets.records import cuts
from prep_assets.records.blocks import Unreadable
from prep_assets.records.cuts import Cut, line_cuts, table_cuts
from prep_assets.records.files import SourceFile
from prep_assets.records.remote import is_remote
from prep_assets.samples import Record, Sample
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Counts, Plan

FEWEST = 4
"""What has fewer shards is done sooner than workers start."""
_BUILT = "built.pickle"
_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbouring rows of a file.

    Attributes:
        build: places in `rows` → what each of these records becomes.
    """

    file: SourceFile
    rows: Sequence[Record | Unreadable]
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

    def reading(self, stretches: Sequence[Stretch] | None = None, progress: Progress | None = None) -> Reading:
        """The core's loop over the files, or over some stretches of them."""
        domain = Domain(files=tuple(file.url for file in self.sources.files), schema="sections")
        # the converter is not asked: the builders read rows as the pipeline says
        reader = converter(domain, Sample)
        return Reading("", domain, Router(None, ""), self.sources, reader, progress=progress, stretches=stretches)

    def batches(self, reading: Reading) -> Iterator[Batch]:
        """All rows of a reading."""
        size = self.task.pipeline.preprocessing.batch_size
        for block in reading.rows(_READ):
            for at in range(0, len(block.rows), size):
                rows = block.rows[at : at + size]
                yield Batch(block.file, rows, partial(self._build, rows))
            reading.advance("preprocess", block.size)

    def _build(self, rows: Sequence[Record | Unreadable], places: Sequence[int]) -> list[Row | Refused]:
        return self.builder.build([row.payload for place in places if isinstance(row := rows[place], Record)])


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
            places = [place for place, row in enumerate(batch.rows) if isinstance(row, Record)]
            pickle.dump((batch.file, batch.rows, dict(zip(places, batch.build(places), strict=True))), file)
    return {}


def _read(path: Path) -> Iterator[Batch]:
    with path.open("rb") as file:
        while file.peek(1):
            source, rows, built = pickle.load(file)
            yield Batch(source, rows, partial(map, built.__getitem__))


def _cuts(file: SourceFile) -> tuple[Cut, ...]:
    """Where a file can be cut; nowhere, where that would fetch it twice."""
    if file.format in cuts.TABLES:
        return tuple(table_cuts(file, cuts.SHARD_BYTES))
    return tuple(line_cuts(file, cuts.SHARD_BYTES)) if file.format in cuts.LINES and not is_remote(file.url) else ()
