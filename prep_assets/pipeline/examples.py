"""Read the rows of a domain into examples, whole or in shards; find duplicates; hold out a test share."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.config.family import Domain, Family
from prep_assets.config.loading import payload_digest
from prep_assets.config.models import family_name
from prep_assets.data import tables
from prep_assets.data.blocks import FORGOTTEN, MISSED, Block, Unreadable, conditions, filter_blocks
from prep_assets.data.files import WHOLE, Part, SourceFile, record_id
from prep_assets.data.quarantine import Quarantine
from prep_assets.data.read import read_blocks
from prep_assets.data.tables import parts, shard_size
from prep_assets.errors import Refused
from prep_assets.own_code import own_code_hash
from prep_assets.pipeline.source_files import Progress
from prep_assets.pipeline.sources import Benchmarks, Pinned, Router, domain_of, pinned, router_of
from prep_assets.pipeline.verdicts import Dropped, dropped_rows, dropping
from prep_assets.pipeline.workspace import Workspace
from prep_assets.plugins import of_extension
from prep_assets.samples import Example, PlainChat, PlainPair, Record
from prep_assets.schemas.reader import Account, Reader, weighed_by, without_speakers
from prep_assets.schemas.registry import convert_with, schema_code
from prep_assets.stores.arrays import concatenate, save_array, stretches, zeros
from prep_assets.stores.files import Digests
from prep_assets.stores.guards import Guards, load_array
from prep_assets.workers.shards import Runner, Shard, ShardResult

# Items, duplicates, the held-out share, and the row function of a domain.


class Seen:
    """Digests, with the record that had each of them first.

    Places are numbered in order of arrival, so that a stretch of a file is one run: its first number, the offset to add to a row, and the file.
    """

    def __init__(self) -> None:
        self._digests, self._next = Digests(numbered=True), 0
        self._runs: list[tuple[int, int, str]] = []

    def firsts(self, digests: Sequence[bytes], name: str, rows: Sequence[int]) -> dict[int, str]:
        """Return row → id of the first record with its digest, for the rows whose digest was seen before. The other rows are added.

        Args:
            rows: row numbers, ascending.
        """
        halves = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
        places = self._digests.firsts(halves, np.array(rows, np.int64) + self._shift(name, rows))
        return {rows[index]: self._identity(int(places[index])) for index in np.flatnonzero(places >= 0).tolist()}

    def _shift(self, name: str, rows: Sequence[int]) -> int:
        """The offset from row numbers of a file to places."""
        if rows and (not self._runs or name != self._runs[-1][2] or rows[0] + self._runs[-1][1] < self._next):
            self._runs.append((self._next, self._next - rows[0], name))
        if rows:
            self._next = rows[-1] + self._runs[-1][1] + 1
        return self._runs[-1][1] if self._runs else 0

    def _identity(self, place: int) -> str:
        _, shift, name = self._runs[bisect_right(self._runs, place, key=lambda run: run[0]) - 1]
        return f"{name}:{place - shift + 1}"


_SORTED = msgspec.json.Encoder(order="sorted")
_PACKED = msgspec.msgpack.Encoder(order="sorted")


AnyExample = Example | PlainChat | PlainPair


def as_example(content: AnyExample) -> Example:
    """An example, given as it is or in columns."""
    if isinstance(content, PlainChat):
        return content.sample()
    return content.pair() if isinstance(content, PlainPair) else content


class Item(msgspec.Struct, frozen=True, gc=False):
    """An example with its record; `content` is the example, or a plain chat or pair in columns."""

    file: SourceFile
    record: Record
    content: AnyExample

    @property
    def example(self) -> Example:
        """The example."""
        return as_example(self.content)

    @property
    def id(self) -> str:
        """Id of the record within its domain."""
        return record_id(self.file, self.record.row)

    def reject(self, quarantine: Quarantine, refusal: Refused) -> None:
        """Put the record into quarantine."""
        quarantine.add(self.id, refusal.stage or "pipeline", refusal.reason, refusal.detail, self.record.payload)


def reading_recipe(domain: Domain, *, attended: bool = False) -> dict[str, Any]:
    """What decides which examples a domain's files give: its options, and the hashes of user code.

    Args:
        attended: whether rows with unattended parts are kept. Earlier versions rejected them, so recipes of schemas that can mark them say so.
    """
    own_code = [schema_code(domain.schema_name), *([own_code_hash(domain.weigh)] if domain.weigh is not None else [])]
    redaction = {}
    if domain.redact:
        redaction = {"redact": of_extension("redaction", "recipe")(domain.redact, domain.countries)}
    attention = {"attention": True} if attended and (domain.schema_name == "semantic" or ":" in domain.schema_name) else {}
    return {"schema": [*domain.reading, *own_code], **redaction, **attention}


def content_digest(record: Record) -> bytes:
    """xxh3-128 of the record's payload as JSON with sorted keys."""
    return xxhash.xxh3_128_digest(_SORTED.encode(record.payload))


def exact_digests(records: Sequence[Record]) -> list[bytes]:
    """xxh3-128 of payloads as MessagePack, which needs no escapes and so takes a fifth of the time; as JSON if a number is too large for it."""
    try:
        return list(map(xxhash.xxh3_128_digest, map(_PACKED.encode, [record.payload for record in records])))
    except OverflowError:
        half = len(records) // 2
        return exact_digests(records[:half]) + exact_digests(records[half:]) if half else [content_digest(records[0])]


class Duplicates(Protocol):
    """Knows which records are duplicates of earlier ones."""

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """Return row → rejection of the duplicates among some rows of a file. A rejection names the record that came first."""
        ...


@dataclass(slots=True)
class Deduplicator:
    """Finds records that equal an earlier one in every field. Its digests are on disk, see `Digests`.

    Attributes:
        digests: equal for records that are duplicates of each other.
        relation: the verb between a duplicate and the first record, in rejections.
    """

    digests: Callable[[Sequence[Record]], list[bytes]] = exact_digests
    relation: str = "equals"
    seen: Seen = field(default_factory=Seen)

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """See `Duplicates`."""
        firsts = self.seen.firsts(self.digests(records), file.name, [record.row for record in records])
        return {row: Refused("duplicate", f"{self.relation} {other}", stage="deduplicate") for row, other in firsts.items()}


def asked_digest(family: Family, example: object) -> bytes:
    """The hash of what decides whether an example is held out."""
    return xxhash.xxh3_128_digest(msgspec.json.encode(family.asked(example)))


def held_out(identity: bytes, fraction: float) -> bool:
    """Whether a hash falls into the held-out share. Equal content stays in one split."""
    return fraction > 0 and int.from_bytes(identity[:8], "big") < fraction * 2**64


def converter(domain: Domain, gives: type) -> Reader:
    """The row function of a domain in a family that needs the form `gives`. Every reader of its rows uses it.

    Raises:
        ConfigError: no such schema or option, or the schema has no such form.
    """
    convert = convert_with(domain.schema_name, domain.options, gives=gives)
    if domain.speaker_names != "keep":
        convert = without_speakers(domain.speaker_names, convert)
    if domain.weigh is not None:
        convert = weighed_by(domain.weigh, convert)
    used = [*domain.where, *([domain.domain_key] if domain.domain_key else [])]
    return Reader(convert, Account(domain.ignore, used))


# A domain in shards of about equal size: stretches of its files between the cuts that were pinned with them.

_EXPANDS = 3
"""Assumed size of text per byte of its compressed file."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of one file.

    Attributes:
        file: number of the file, training files first.
        part: its rows.
    """

    file: int
    part: Part = WHOLE


def shards_of(sources: Pinned, count: int | Literal["auto"] = "auto") -> list[Shard]:
    """All rows of all files in shards, whose tasks are stretches. No shard mixes training and held-out rows.

    Args:
        count: the approximate number of shards, see `shard_size`.
    """
    files = (*sources.files, *sources.test_files)
    file_parts = [list(parts(sources.cuts[number])) if sources.cuts else [WHOLE] for number in range(len(files))]
    sizes = [[_size(file, part, len(cuts)) for part in cuts] for file, cuts in zip(files, file_parts, strict=True)]
    shard_bytes = shard_size(sum(map(sum, sizes)), count) - tables.SHARD_BYTES // 2
    shards: list[Shard] = []
    gathered: list[Stretch] = []
    size = 0
    for number, cuts in enumerate(file_parts):
        for part, part_bytes in zip(cuts, sizes[number], strict=True):
            if gathered and gathered[-1].file == number:  # it continues the last stretch
                gathered[-1] = replace(gathered[-1], part=replace(gathered[-1].part, stop=part.stop))
            else:
                gathered.append(Stretch(number, part))
            size += part_bytes
            ends = part.stop is None and number + 1 in (len(sources.files), len(files))
            if size >= shard_bytes or ends:
                shards.append(Shard(len(shards), _label(files, gathered), size, tuple(gathered)))
                gathered, size = [], 0
    return shards


def is_held_out(shard: Shard, sources: Pinned) -> bool:
    """Whether a shard's rows are held out."""
    return bool(shard.task[0].file >= len(sources.files))


def text_bytes(file: SourceFile) -> int:
    """Approximate bytes of text in a file."""
    return file.size * (_EXPANDS if file.compression else 1)


def _size(file: SourceFile, part: Part, count: int) -> int:
    """Approximate bytes of text of a part. The parts of a table are taken to be equally large, as its rows have no known sizes."""
    whole = text_bytes(file)
    if file.format in tables.TABLES:
        return max(1, whole // count)
    return max(1, (whole if part.stop is None else part.stop) - part.start)


def _label(files: tuple[SourceFile, ...], stretches: list[Stretch]) -> str:
    first, last = stretches[0], stretches[-1]
    begin = f"{files[first.file].name} from row {first.part.row + 1:,}"
    return begin if first.file == last.file else f"{begin} to {files[last.file].name}"


# One domain, read from front to end: the only loop over source files, shared by all families.


@dataclass(frozen=True, slots=True)
class Pace:
    """Throughput since its creation."""

    began: float = field(default_factory=time.monotonic)

    def text(self, done: int, total: int) -> str:
        """``41.2 MB/s, 0:32 left``, for bytes; the remaining time assumes the average speed so far."""
        took = time.monotonic() - self.began
        if not done or not took:
            return ""
        seconds = round(took * max(0, total - done) / done)
        return f"{done / took / 1e6:,.1f} MB/s, {seconds // 60}:{seconds % 60:02} left"


class Rows(Struct, frozen=True):
    """Consecutive rows of one file.

    Attributes:
        file: their file.
        rows: readable and unreadable rows, in file order. `Record.file` counts training files first, then held-out ones.
        held_out: whether the file is one of the domain's `test_files`.
        size: bytes of source read for them.
    """

    file: SourceFile
    rows: Sequence[Record | Unreadable]
    held_out: bool
    size: int


@dataclass(slots=True)
class Reading:
    """Reads a domain's files into examples: rows in order, without duplicates, converted by its schema.

    Attributes:
        name, domain, router, sources: the domain and its files.
        reader: converts a row to an example, and accounts for the fields that it does not read.
        deduplicator: rejects duplicate rows; `None` keeps them.
        benchmarks: rejects rows that hold a passage of a benchmark; `None` if none is configured.
        dropped: rejects rows that verdicts drop; `None` if no asset judges the domain.
        max_items: stop after so many training records that pass `where`. Held-out files are read whole.
        progress: called with the bytes done so far.
        stretches: parts of the files to read, in order; `None`: all files in full.
        read: rows read so far.
    """

    name: str
    domain: Domain
    router: Router
    sources: Pinned
    reader: Reader
    deduplicator: Duplicates | None = None
    benchmarks: Benchmarks | None = None
    dropped: Dropped | None = None
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
        """Every row: training files in order, then held-out ones. Unreadable rows and rows that fail `where` keep their places."""
        tests = conditions(self.domain.where) if self.domain.where else ()
        remaining = self.max_items
        files = (*self.sources.files, *self.sources.test_files)
        for stretch in map(Stretch, range(len(files))) if self.stretches is None else self.stretches:
            file, held_out = files[stretch.file], stretch.file >= len(self.sources.files)
            if remaining == 0 and not held_out:
                continue
            bytes_before = 0
            blocks = read_blocks(file, stretch.file, block_bytes=block_bytes, txt=self.domain.txt, part=stretch.part)
            picked = self.router.picked(file, blocks)
            wanted = _set_forgotten_aside(picked, self.domain.forgotten) if self.domain.forgotten else picked
            for block in filter_blocks(wanted, tests) if tests else wanted:
                rows: Sequence[Record | Unreadable] = block.records
                if block.unreadable:
                    rows = sorted([*block.records, *block.unreadable], key=lambda row: row.row)
                if remaining is not None and not held_out:
                    rows, remaining = _rows_to_limit(rows, remaining)
                self.read += len(rows)
                yield Rows(file, rows, held_out, block.bytes_read - bytes_before)
                bytes_before = block.bytes_read
                if remaining == 0 and not held_out:
                    break

    def rejections(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """Return row → rejection of rows that are duplicates, hold a passage of a benchmark, or are dropped by a verdict."""
        rejections = self.deduplicator.among(file, records) if self.deduplicator is not None else {}
        benchmarks, dropped = self.benchmarks, self.dropped
        if benchmarks is None and dropped is None:
            return rejections
        for record in [candidate for candidate in records if candidate.row not in rejections]:
            refusal = None if benchmarks is None else benchmarks.refusal(record.payload)
            if refusal is None and dropped is not None:
                refusal = dropped.refusal(record.file, record.row)
            if refusal is not None:
                rejections[record.row] = refusal
        return rejections

    def check_fields(self) -> None:
        """Raise if the rows read so far have fields of unknown meaning; see `Account.check`."""
        self.reader.account.check(f"domain {self.name}: schema {self.domain.schema_name!r}")

    def examples(
        self, doing: str, quarantine: Quarantine, *, block_bytes: int = 1 << 20, plain: bool = False
    ) -> Iterator[tuple[list[Item], bool]]:
        """Yield blocks of examples in file order, with whether they are held out; those of small files together. Rejected records are in quarantine.

        Args:
            doing: label of the progress.
            plain: give plain chats and pairs in columns, see `PlainChat` and `PlainPair`.
        """
        for blocks in _joined(self.rows(block_bytes), block_bytes // 4):
            with quarantine.by_row([block.file.name for block in blocks]):
                items = [item for block in blocks for item in self._items(block, quarantine, plain)]
                self.check_fields()
                yield items, blocks[0].held_out
            self.advance(doing, sum(block.size for block in blocks))

    def _items(self, block: Rows, quarantine: Quarantine, plain: bool) -> list[Item]:
        """The items of a block. Rejected rows are in quarantine."""
        records, items = [row for row in block.rows if isinstance(row, Record)], list[Item]()
        if len(records) < len(block.rows):
            quarantine.add_unreadable(block.file, [row for row in block.rows if not isinstance(row, Record)])
        rejections = self.rejections(block.file, records)
        self.reader.account.trained = not block.held_out
        accepted = [record for record in records if record.row not in rejections] if rejections else records
        for record, example in zip(accepted, self.reader.rows([record.payload for record in accepted], plain=plain), strict=True):
            if isinstance(example, Refused):
                rejections[record.row] = example
            else:
                items.append(Item(block.file, record, example))
        for record in records if rejections else ():
            if refusal := rejections.get(record.row):
                quarantine.add(record_id(block.file, record.row), refusal.stage, refusal.reason, refusal.detail, record.payload)
        return items

    def advance(self, doing: str, size: int) -> None:
        """Report `size` more bytes of source as done."""
        self._done += size
        if self.progress:
            self.progress(f"{doing} {self.name}: {self._pace.text(self._done, self._size)}", self._done, self._size)


def _joined(blocks: Iterator[Rows], most_bytes: int) -> Iterator[list[Rows]]:
    """Blocks of small files in groups of about `most_bytes`, as a group costs as much as a block; several blocks of one file stay apart."""
    group, size = list[Rows](), 0
    for block in blocks:
        if group and (block.held_out is not group[0].held_out or block.file is group[-1].file or size + block.size > most_bytes):
            yield group
            group, size = [], 0
        group.append(block)
        size += block.size
    if group:
        yield group


def _set_forgotten_aside(blocks: Iterator[Block], digests: frozenset[str]) -> Iterator[Block]:
    """`blocks` with forgotten records moved to the unreadable rows, in file order and without their content."""
    for block in blocks:
        readable: list[Record] = []
        unreadable = list(block.unreadable)
        for record in block.records:
            if payload_digest(record.payload) in digests:
                unreadable.append(Unreadable(record.file, record.row, FORGOTTEN, "it has a tombstone in forgotten.jsonl", ""))
            else:
                readable.append(record)
        yield Block(readable, sorted(unreadable, key=lambda row: row.row), block.bytes_read)


def _rows_to_limit(rows: Sequence[Record | Unreadable], limit: int) -> tuple[Sequence[Record | Unreadable], int]:
    """Cut `rows` after the first `limit` that pass `where`. Return them and what remains of the limit.

    Unreadable rows count, as without `where`.
    """
    places = [at for at, row in enumerate(rows) if isinstance(row, Record) or row.reason not in MISSED][:limit]
    return (rows[: places[-1] + 1] if len(places) == limit else rows), limit - len(places)


def passed_over(*readings: Reading) -> dict[str, Any]:
    """For the manifest: domain → field → number of rows in which it was passed over."""
    counts = {reading.name: dict(sorted(reading.reader.account.counts.items())) for reading in readings if reading.reader.account.counts}
    return {"fields_passed_over": counts} if counts else {}


# The source of a domain, which can travel to other processes, and the readings of it.


@dataclass(frozen=True)
class Source:
    """A pinned domain.

    Attributes:
        workspace: where its family is configured.
        kind: the family.
        name: of the domain.
        gives: the form that the family needs, see `converter`.
        sources, router: its files, and the router that picks its rows.
        max_items: limit of training records.
        refuses: the assets of the family, by their last word, whose verdicts drop rows; see `dropping`.
    """

    workspace: Workspace
    kind: type[Family]
    name: str
    gives: type
    sources: Pinned
    router: Router
    max_items: int | None
    refuses: tuple[str, ...] = ()

    @classmethod
    def of(cls, workspace: Workspace, kind: type[Family], name: str, *, gives: type) -> Source:
        """The source of a pinned domain.

        Raises:
            StoreError, SourceError: see `pinned`.
        """
        family = workspace.family(kind)
        limits = (domain_of(family, name).max_items, family.most_rows)
        fewest = min((number for number in limits if number is not None), default=None)
        sources = pinned(workspace, kind, f"{family_name(kind)}_raw", name)
        return cls(workspace, kind, name, gives, sources, router_of(workspace, family, name), fewest, dropping(workspace, kind))

    @property
    def family(self) -> Family:
        """The family's configuration."""
        return self.workspace.family(self.kind)

    @property
    def doing(self) -> str:
        """Label of the progress while it is tokenized."""
        return f"tokenize {self.name}"

    @property
    def size(self) -> int:
        """Bytes of text, about; of a compressed file at least those before its last cut."""
        files = zip((*self.sources.files, *self.sources.test_files), self.sources.cuts or repeat(()), strict=False)
        return sum(max(text_bytes(file), cuts[-1][0] if cuts else 0) for file, cuts in files)

    @cached_property
    def benchmarks(self) -> Benchmarks | None:
        """The benchmark passages that no record may hold; read once."""
        files = self.sources.benchmarks
        return Benchmarks.read(files, self.family.decontaminate.words) if files else None

    @cached_property
    def dropped(self) -> Dropped | None:
        """The rows that verdicts drop; read once."""
        return dropped_rows(self.workspace, family_name(self.kind), self.name, self.refuses) if self.refuses else None

    def reading(self) -> Reading:
        """The whole domain, from front to end."""
        return self._reading(Deduplicator() if self.family.preprocessing.deduplicate else None, self.max_items, None)

    whole = reading

    def shards(self, count: int | Literal["auto"]) -> list[Shard]:
        """See `shards_of`."""
        return shards_of(self.sources, count)

    def part(self, task: tuple[Sequence[Stretch], FirstPass]) -> Reading:
        """Some stretches, with the duplicates and the limit that the first pass found."""
        stretches, known = task
        return self._reading(ShardDuplicates(known, (*self.sources.files, *self.sources.test_files)), known.limit, stretches)

    def rows(self, stretches: Sequence[Stretch]) -> Reading:
        """Some stretches, for their rows only."""
        return replace(self._reading(None, None, stretches), benchmarks=None, dropped=None)

    def travelling(self, runner: Runner, *, tokenized: bool = True) -> Source:
        """A copy to send to another process.

        Args:
            tokenized: whether the tokenizer is needed.
        """
        return replace(self, workspace=self.workspace.travelling(self.kind, tokenized=tokenized))

    def _reading(self, duplicates: Duplicates | None, limit: int | None, stretches: Sequence[Stretch] | None) -> Reading:
        return Reading(
            self.name,
            domain := domain_of(self.family, self.name),
            self.router,
            self.sources,
            converter(domain, self.gives),
            duplicates,
            self.benchmarks,
            self.dropped,
            limit,
            self.workspace.progress,
            stretches,
        )


# Duplicates and limits across shards: each shard notes a digest of 16 bytes per record, and duplicates are found among the digests of all shards. Workers that
# pin a domain note them on the way, for the same build; otherwise that is a first pass.
#
# The first record in the order of the plan wins, as if one process read everything.

BLOCK_BYTES = 4 << 20
FIELDS: Mapping[str, Any] = {"file": np.int32, "row": np.int64, "number": np.int64}
"""Columns next to the digests: file and row of a record, and the number of rows before it in its shard that count towards a limit."""


@dataclass(frozen=True, slots=True)
class FirstPass:
    """What the first pass found for one shard.

    Attributes:
        duplicates: int64[k, 4]: file and row of a duplicate, file and row of the record that it equals.
        limit: limit of its training records.
    """

    duplicates: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    limit: int | None = None


class ShardDuplicates:
    """The known duplicates of one shard, of records in any shard; see `Duplicates`.

    Args:
        files: files of the domain.
    """

    def __init__(self, known: FirstPass, files: Sequence[SourceFile]) -> None:
        self._first = {(file, row): (first_file, first_row) for file, row, first_file, first_row in known.duplicates.tolist()}
        self._files = files

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """See `Duplicates`."""
        firsts = {record.row: first for record in records if (first := self._first.get((record.file, record.row)))}
        return {
            row: Refused("duplicate", f"equals {record_id(self._files[first_file], first_row)}", stage="deduplicate")
            for row, (first_file, first_row) in firsts.items()
        }


class RecordNotes:
    """Digests and places of the records of a shard.

    Attributes:
        rows: rows so far that count towards a limit.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._digests: list[bytes] = []
        self._places: list[tuple[int, int, int]] = []

    def add(self, rows: Sequence[Record | Unreadable]) -> None:
        """Add the next rows."""
        counted = [row for row in rows if isinstance(row, Record) or row.reason not in MISSED]
        records = [(number, row) for number, row in enumerate(counted, self.rows) if isinstance(row, Record)]
        self.rows += len(counted)
        self._digests += exact_digests([row for _, row in records])
        self._places += [(row.file, row.row, number) for number, row in records]

    def save(self, folder: Path) -> None:
        """Save the columns to a folder."""
        save_array(folder / "digests.npy", np.frombuffer(b"".join(self._digests), np.uint8))
        places = np.array(self._places, np.int64).reshape(-1, len(FIELDS))
        for name, column in zip(FIELDS, places.T, strict=True):
            save_array(folder / f"{name}.npy", column.astype(FIELDS[name]))


def note_records(stretches: Sequence[Stretch], folder: Path, *, source: Source) -> dict[str, int]:
    """The first pass over one shard."""
    notes = RecordNotes()
    for block in source.rows(stretches).rows(BLOCK_BYTES):
        notes.add(block.rows)
    notes.save(folder)
    return {"rows": notes.rows}


class PinnedDuplicates(Struct, frozen=True):
    """Duplicates found while a domain was pinned, for the same build.

    Attributes:
        domain, files: its configuration and files at that time.
        shards: its shards at that time.
        duplicates: by shard, see `FirstPass`.
    """

    domain: Domain
    files: tuple[SourceFile, ...]
    shards: Sequence[Shard]
    duplicates: Sequence[Ints]

    @staticmethod
    def can_be(family: Family, domain: Domain) -> bool:
        """Whether a domain deduplicates all records that it pins, so that pinning can find the duplicates."""
        return family.preprocessing.deduplicate and domain.domain_key is None and domain.max_items is None

    def of(self, source: Source, shards: Sequence[Shard]) -> list[Shard] | None:
        """The shards with their duplicates; `None` if configuration, files or shards have changed since."""
        files = (*source.sources.files, *source.sources.test_files)
        pinned_files, current_files = ([(file.url, file.blocks) for file in group] for group in (self.files, files))
        current = domain_of(source.family, source.name), current_files, shards
        if source.max_items is not None or (self.domain, pinned_files, self.shards) != current:
            return None
        return [replace(shard, task=(shard.task, FirstPass(duplicates))) for shard, duplicates in zip(shards, self.duplicates, strict=True)]


def without_duplicates(source: Source, noted: Sequence[ShardResult]) -> Iterator[Shard]:
    """The shards within the limit, with their duplicates: tasks become ``(stretches, FirstPass)``."""
    limits = dict(_limits(source, noted))
    used = [result for result in noted if limits[result.shard.number] != 0]
    if source.family.preprocessing.deduplicate:
        duplicates = duplicates_of([columns_of(result, limits[result.shard.number]) for result in used])
    else:
        duplicates = [FirstPass().duplicates] * len(used)
    for number, (result, known) in enumerate(zip(used, duplicates, strict=True)):
        yield replace(result.shard, number=number, task=(result.shard.task, FirstPass(known, limits[result.shard.number])))


def _limits(source: Source, noted: Sequence[ShardResult]) -> Iterator[tuple[int, int | None]]:
    remaining = source.max_items
    for result in noted:
        if remaining is None or is_held_out(result.shard, source.sources):
            yield result.shard.number, None
        else:
            taken = min(remaining, result.counts["rows"])
            yield result.shard.number, taken
            remaining -= taken


def columns_of(noted: ShardResult, limit: int | None = None) -> dict[str, npt.NDArray[Any]]:
    """The noted columns of a shard, up to its limit: both halves of the digests, file and row."""
    guards = Guards.of_work(noted.folder, noted.files)
    digests, file, row, number = (load_array(noted.folder / f"{name}.npy", guards) for name in ("digests", *FIELDS))
    halves = np.asarray(digests).view(np.uint64)
    used = slice(None if limit is None else int(np.searchsorted(number, limit)))
    return {"high": halves[::2][used], "low": halves[1::2][used], "file": file[used], "row": row[used]}


def duplicates_of(columns: Sequence[Mapping[str, npt.NDArray[Any]]]) -> list[Ints]:
    """`FirstPass.duplicates` of every shard. They stay on disk until their shard is sent to its worker."""
    if not columns:
        return []
    file, row = concatenate([shard["file"] for shard in columns], np.int32), concatenate([shard["row"] for shard in columns])
    seen, equals, filled = Digests(numbered=True), zeros(len(row)), 0
    for shard in columns:
        for part in stretches(len(shard["row"])):
            at = slice(filled + part.start, filled + part.stop)
            equals[at] = 1 + seen.firsts(np.stack([shard["high"][part], shard["low"][part]], axis=1), np.arange(at.start, at.stop))
        filled += len(shard["row"])
    counts = [int(np.count_nonzero(part)) for part in np.split(equals, np.cumsum([len(shard["row"]) for shard in columns]))[:-1]]
    duplicates, filled = zeros(4 * sum(counts)).reshape(-1, 4), 0
    for part in stretches(len(equals)):
        later = np.flatnonzero(equals[part])
        first = equals[part][later] - 1
        target = slice(filled, filled + len(later))
        duplicates[target] = np.stack([file[part][later], row[part][later], file[first], row[first]], axis=1)
        filled = target.stop
    return np.split(duplicates, np.cumsum(counts)[:-1])
