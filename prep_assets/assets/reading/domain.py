"""One domain, read from front to end: the one loop over source files that every family takes its examples from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prep_assets.assets.reading.contamination import Benchmarks
from prep_assets.assets.reading.examples import Duplicates, Item
from prep_assets.assets.reading.pinned import Pinned
from prep_assets.assets.reading.routing import Router
from prep_assets.assets.reading.stretches import Stretch, whole_files
from prep_assets.assets.workspace import Progress
from prep_assets.config.models import Domain
from prep_assets.config.tombstones import payload_digest
from prep_assets.errors import Refused
from prep_assets.records.blocks import Block, Unreadable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine
from prep_assets.records.read import read_blocks
from prep_assets.records.where import FORGOTTEN, MISSED, conditions, filter_blocks
from prep_assets.samples import Record
from prep_assets.schemas.reader import Reader


@dataclass(frozen=True, slots=True)
class Pace:
    """Measures from when it is made."""

    began: float = field(default_factory=time.monotonic)

    def text(self, done: int, total: int) -> str:
        """``41.2 MB/s, 0:32 left``, of bytes; what is left is reckoned from what is done."""
        took = time.monotonic() - self.began
        if not done or not took:
            return ""
        seconds = round(took * max(0, total - done) / done)
        return f"{done / took / 1e6:,.1f} MB/s, {seconds // 60}:{seconds % 60:02} left"


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one file.

    Attributes:
        file: their file.
        rows: readable ones and refused ones, in the order of the file. `Record.file` counts training files first, then held-out ones.
        held_out: whether the file is one of the domain's `test_files`.
        size: bytes of source that they took.
    """

    file: SourceFile
    rows: Sequence[Record | Unreadable]
    held_out: bool
    size: int


@dataclass(slots=True)
class Reading:
    """A domain's files on their way to examples: rows in order, those that are kept apart from duplicates, converted by its schema.

    Attributes:
        name, domain, router, sources: what is read.
        reader: makes an example of a row, and accounts for the fields that it does not read.
        deduplicator: refuses rows that came before; `None` keeps them.
        benchmarks: refuses rows that hold a passage of a benchmark; `None` where none is configured.
        max_items: stop after so many training records that `where` lets through. Held-out files are read whole.
        progress: told how far it is.
        stretches: which parts of the files are read, in order; `None`: all files in full.
        read: rows read so far.
    """

    name: str
    domain: Domain
    router: Router
    sources: Pinned
    reader: Reader
    deduplicator: Duplicates | None = None
    benchmarks: Benchmarks | None = None
    max_items: int | None = None
    progress: Progress | None = None
    stretches: Sequence[Stretch] | None = None
    read: int = 0
    _done: int = field(default=0, init=False)
    _pace: Pace = field(default_factory=Pace, init=False)
    _size: int = field(init=False)

    def __post_init__(self) -> None:
        self._size = self.sources.bytes

    def rows(self, block_bytes: int) -> Iterator[Rows]:
        """Every row: training files in order, then held-out ones. One that is refused at reading, or by `where`, stands in its place."""
        tests = conditions(self.domain.where) if self.domain.where else ()
        remaining = self.max_items
        files = (*self.sources.files, *self.sources.test_files)
        for stretch in whole_files(self.sources) if self.stretches is None else self.stretches:
            file, held_out = files[stretch.file], stretch.file >= len(self.sources.files)
            if remaining == 0 and not held_out:
                continue
            before = 0
            read = read_blocks(file, stretch.file, block_bytes=block_bytes, txt=self.domain.txt, part=stretch.part)
            picked = self.router.picked(file, read)
            wanted = _without_forgotten(picked, self.domain.forgotten) if self.domain.forgotten else picked
            for block in filter_blocks(wanted, tests) if tests else wanted:
                rows: Sequence[Record | Unreadable] = block.records
                if block.unreadable:
                    rows = sorted([*block.records, *block.unreadable], key=lambda row: row.row)
                if remaining is not None and not held_out:
                    rows, remaining = _first(rows, remaining)
                self.read += len(rows)
                yield Rows(file, rows, held_out, block.bytes_read - before)
                before = block.bytes_read
                if remaining == 0 and not held_out:
                    break

    def refused(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """Which of some rows of a file came before, or hold a passage of a benchmark: by row, the refusal of each."""
        found = self.deduplicator.among(file, records) if self.deduplicator is not None else {}
        if self.benchmarks is None:
            return found
        for record in [each for each in records if each.row not in found]:
            try:
                self.benchmarks.check(record.payload)
            except Refused as refusal:
                found[record.row] = refusal
        return found

    def check_fields(self) -> None:
        """Stop where the rows read so far have fields of unknown meaning; see `Account.check`."""
        self.reader.account.check(f"domain {self.name}: schema {self.domain.schema_name!r}")

    def examples(
        self, doing: str, quarantine: Quarantine, *, block_bytes: int = 1 << 20, plain: bool = False
    ) -> Iterator[tuple[list[Item], bool]]:
        """Blocks of examples in the order of the files, and whether they are held out. What is not yielded is in quarantine.

        Args:
            doing: what progress is about.
            plain: whether plain chats and pairs are given in columns, see `PlainChat` and `PlainPair`.
        """
        for block in self.rows(block_bytes):
            with quarantine.by_row():
                items = self._items(block, quarantine, plain)
                self.check_fields()
                yield items, block.held_out
            self.advance(doing, block.size)

    def _items(self, block: Rows, quarantine: Quarantine, plain: bool) -> list[Item]:
        """The rows of a block with their examples. Those that have none are in quarantine."""
        records, items = [row for row in block.rows if isinstance(row, Record)], list[Item]()
        if len(records) < len(block.rows):
            quarantine.add_unreadable(block.file, [row for row in block.rows if not isinstance(row, Record)])
        gone = self.refused(block.file, records)
        left = [record for record in records if record.row not in gone] if gone else records
        for record, given in zip(left, self.reader.rows([record.payload for record in left], plain=plain), strict=True):
            if isinstance(given, Refused):
                gone[record.row] = given
            else:
                items.append(Item(block.file, record, given))
        for record in records if gone else ():
            if refusal := gone.get(record.row):
                quarantine.add(record_id(block.file, record.row), refusal.stage, refusal.reason, refusal.detail, record.payload)
        return items

    def advance(self, doing: str, size: int) -> None:
        """So many more bytes of source are done."""
        self._done += size
        if self.progress:
            self.progress(f"{doing} {self.name}: {self._pace.text(self._done, self._size)}", self._done, self._size)


def _without_forgotten(blocks: Iterator[Block], digests: frozenset[str]) -> Iterator[Block]:
    """`blocks` with the forgotten records moved to the refused rows, which stay in file order. Their content is not shown."""
    for block in blocks:
        kept: list[Record] = []
        refused = list(block.unreadable)
        for record in block.records:
            if payload_digest(record.payload) in digests:
                refused.append(Unreadable(record.file, record.row, FORGOTTEN, "it has a tombstone in forgotten.jsonl", ""))
            else:
                kept.append(record)
        yield Block(kept, sorted(refused, key=lambda each: each.row), block.bytes_read)


def _first(rows: Sequence[Record | Unreadable], limit: int) -> tuple[Sequence[Record | Unreadable], int]:
    """`rows` up to the one that is number `limit` of those that `where` lets through, and how many are still to come.

    Rows that cannot be read count, as without `where`.
    """
    places = [at for at, row in enumerate(rows) if isinstance(row, Record) or row.reason not in MISSED][:limit]
    return (rows[: places[-1] + 1] if len(places) == limit else rows), limit - len(places)


def passed_over(*readings: Reading) -> dict[str, Any]:
    """For the manifest: in how many rows which fields were passed over, of domains that have any."""
    found = {reading.name: dict(sorted(reading.reader.account.counts.items())) for reading in readings if reading.reader.account.counts}
    return {"fields_passed_over": found} if found else {}
