"""The items that a step saw, as rows of stores, with the source row of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from prep_assets.config.models import FAMILIES
from prep_assets.data.addresses import file_name
from prep_assets.errors import ConfigError, PrepAssetsError, SourceError, StoreError
from prep_assets.extensions.blends.store import BLEND, TOKENS, BlendStore, open_blend
from prep_assets.extensions.explain.streams import Opened, Origin, Place, RowName, read_row, row_names, source_files, stream_of
from prep_assets.extensions.steps.record import Run, Seen
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.sources import domain_of, read_sources
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.published import version_with
from prep_assets.stores.version_folders import CONTENT_LENGTH, Published

KEPT = "Old versions stay until prep-assets prune; the configuration and sources of then give it again"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a source: its domain and id, ``gsm8k`` and ``gsm8k.jsonl:17``, its file's address, and its number there, counted from 1; `None` for the address
    where what is there now is not what was read."""

    domain: str
    id: str
    url: str | None
    row: int
    held_out: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens ``start … end - 1`` of a stored row, all of a line, and where they come from; the source is `None` where they were generated."""

    place: Place
    start: int
    end: int
    source: SourceRow | None


class StepRow(Struct, frozen=True):
    """What a step saw of one item, and where it is: in one stretch, or in several where the loop gave no loss for each."""

    seen: Seen
    stretches: tuple[Stretch, ...]


class Step(Struct, frozen=True):
    """A step of a run.

    Attributes:
        head: of its attempt: on how many ranks it was trained, and on which stores.
        loss: where one is known.
        seen: all that it saw.
        rows: those that were asked for, the highest loss first; without a loss, by rank and in the order of the batch.
        old: the stores of `head` that were built again since, with the version that is kept of each.
    """

    head: Mapping[str, Any]
    loss: float | None
    seen: Sequence[Seen]
    rows: tuple[StepRow, ...]
    old: Sequence[str] = ()


def step_of(workspace: Workspace | None, run: Path, step: int, *, top: int | None = None) -> Step:
    """Look up the rows of a training step: only the `top` ones by loss; traced to their sources in a workspace, which keeps the stores of then.

    Raises:
        ConfigError: no such record or step.
        StoreError: the record is damaged or not whole; a store is not kept.
    """
    record = Run(run)
    head, (seen, loss) = record.attempt(step)[0].head, record.seen(step)
    ranked = sorted(range(len(seen)), key=lambda at: rank_of(seen[at].loss))[:top]
    try:
        items, documents = workspace and Items(workspace, run, head), _documents(seen)
        rows = tuple(StepRow(seen[at], items.stretches(seen[at], documents[at]) if items else ()) for at in ranked)
        return Step(head, loss, seen, rows, items.old if items else ())
    except PrepAssetsError as error:
        raise type(error)(f"{error}\nBy number alone: --untraced") from error


def rank_of(loss: float | None) -> tuple[int, float]:
    """What is not a number comes before every number, and a row without a loss last."""
    return (2, 0.0) if loss is None else (0, 0.0) if np.isnan(loss) else (1, -loss)


def _documents(seen: Sequence[Seen]) -> list[int]:
    """Of each row that was seen, how many documents of its item were; 0 where the loop gave the loss of whole rows."""
    counts, documents = list[int](), 0
    for row in reversed(seen):
        documents = max(documents, 0 if row.piece is None else row.piece + 1)
        counts.append(documents)
        documents = documents if row.piece else 0
    return counts[::-1]


class Items(Opened):
    """Finds the items of a data set in the stores that a run was trained on: in their current versions, or in those that are kept beside them.

    Args:
        head: of an attempt of the run.

    Attributes:
        old: its stores that were built again since, with the versions that it was trained on.

    Raises:
        StoreError: a store, or what it was made from, is not kept, or has other rows.
    """

    def __init__(self, workspace: Workspace, run: Path, head: Mapping[str, Any]) -> None:
        super().__init__(workspace)
        self._run, self._window, self.old = run, head["window"], list[str]()
        self._contents = {(store["asset"], store["partition"]): (store["manifest"], f"{run} was trained on") for store in head["stores"]}
        self._blend, self._files = cache(self._blend_of), cache(self._files_of)
        self._stores = [self._place(store["asset"], store["partition"], store["stream"] or None) for store in head["stores"]]
        self._ends = np.cumsum([self._count(place) for place in self._stores]).tolist()
        if not self._window and self._ends[-1] != head["items"]:
            raise StoreError(f"{run}: the data set had {head['items']:,} items, its stores have {self._ends[-1]:,} rows")

    def _open(self, asset: str, partition: str) -> Published:
        while (asset, partition) not in self._contents:  # what it is for was not opened itself
            self.published(*next(key for key in self._contents if key not in self._published))
        place, (content, whose) = self.workspace.place(asset, partition), self._contents[asset, partition]
        if (found := version_with(place, content)) is None:
            place.current()  # says whether it is damaged
            raise StoreError(f"{whose} {place.label} {content[:CONTENT_LENGTH]}, which is not kept any more. {KEPT}")
        place.check_readable(found)
        recipe = found.manifest.recipe
        above = EVERY[asset].contents(partition, recipe) if asset in EVERY else {(recipe["from"], partition): recipe["source"]}
        self._contents = {**{key: (each, f"{place.label} was made from") for key, each in above.items()}, **self._contents}
        return found

    def _place(self, asset: str, partition: str, stream: str | None) -> Place:
        published, place = self.published(asset, partition), self.workspace.place(asset, partition)
        if place.pointers.current != published.version:
            self.old.append(f"{place.label} {published.version}")
        return Place(asset, partition, stream_of(published, stream) if asset in EVERY else "", 0)

    def _blend_of(self, asset: str) -> BlendStore | None:
        is_blend = asset in EVERY and EVERY[asset].stage == BLEND
        return open_blend(self.published(asset).directory) if is_blend else None

    def _count(self, place: Place) -> int:
        """Items of a store; its tokens, where items are windows."""
        if (blend := self._blend(place.asset)) is not None:
            return len(blend)
        if place.asset not in EVERY:
            return self.export(place.asset, place.partition)[-1].count
        table = self.stream(place.asset, place.partition, place.stream)
        return len(table.columns["tokens"].values) if self._window else len(table)

    def stretches(self, seen: Seen, documents: int) -> tuple[Stretch, ...]:
        """Where what was seen is stored, of an item with so many documents.

        Raises:
            StoreError: the stored item has other documents.
        """
        found = [*self._stretches(seen.item)]
        if documents > 1 and len(found) != documents:
            said = f"{self._run}: item {seen.item:,} had {documents:,} documents in the loop, and has {len(found):,} in its store"
            raise StoreError(f"{said}. Record items in the store's order, without padding between documents")
        return (found[seen.piece],) if seen.piece is not None and documents > 1 else tuple(found)

    def _stretches(self, item: int) -> Iterator[Stretch]:
        for place, start, end in self._records(item):
            for piece in read_row(self, place).pieces:
                first, last = (piece.start, piece.end) if end == 0 else (max(start, piece.start), min(end, piece.end))
                if first < last or end == 0:
                    yield Stretch(place, first, last, None if piece.origin is None else self._source(piece.origin))

    def _records(self, item: int) -> Iterator[tuple[Place, int, int]]:
        """The rows of stores that an item is made of, with the tokens of each: ``0, 0`` where it is all of them."""
        if self._window:
            size, stride, offset = self._window
            first = item * stride + offset
            for place, before, end in zip(self._stores, [0, *self._ends], self._ends, strict=False):
                yield from self._in_stream(place, max(first - before, 0), min(first + size, end) - before)
            return
        number = int(np.searchsorted(self._ends, item, "right"))
        place, item = self._stores[number], item - [0, *self._ends][number]
        if (blend := self._blend(place.asset)) is not None:
            domain, number = blend.domains[int(blend.domain[item])], int(blend.item[item])
            asset, stem = TOKENS[EVERY[place.asset].family]
            stream = Place(asset, domain, stem.format(domain), number)
            if not blend.window:
                yield stream, 0, 0
            else:
                yield from self._in_stream(stream, number * blend.window, (number + 1) * blend.window)
        else:
            yield Place(place.asset, place.partition, place.stream, item), 0, 0

    def _in_stream(self, place: Place, begin: int, end: int) -> Iterator[tuple[Place, int, int]]:
        """The records that some tokens of a stream belong to."""
        column = self.stream(place.asset, place.partition, place.stream).columns["tokens"]
        first, last = np.searchsorted(column.ends, [begin, end - 1], "right").tolist()
        for record in range(first, min(last + 1, len(column.ends))):
            [span] = column.spans(record)  # of a packed row without its padding
            since, until = max(begin, span.start), min(end, span.stop)
            if since < until:
                yield Place(place.asset, place.partition, place.stream, record), since - span.start, until - span.start

    def _files_of(self, raw: str, domain: str) -> tuple[RowName, Sequence[str | None], int]:
        """Of a domain's files as they were read, in the order in which records number them: ids of rows, addresses, and how many are not held out."""
        published, family, there = self.published(raw, domain), self.workspace.family(FAMILIES[raw.removesuffix("_raw")]), dict[Any, str]()
        with suppress(ConfigError, SourceError):  # no such domain or file any more
            configured = domain_of(family, domain)
            files = (*self.workspace.files(configured), *self.workspace.test_files(configured))
            there = {(pin.name, pin.sha256): file_name(file.url) for pin, file in zip(self.workspace.pins(files), files, strict=True)}
        urls = [there.get((entry["name"], entry["sha256"])) for entry in source_files(published)]
        return row_names(published), urls, len(read_sources(published)["files"])

    def _source(self, origin: Origin) -> SourceRow:
        name, urls, trained = self._files(origin.raw, origin.domain)
        return SourceRow(origin.domain, name(origin.file, origin.row), urls[origin.file], origin.row + 1, origin.file >= trained)
