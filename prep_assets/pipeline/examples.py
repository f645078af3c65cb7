"""The examples of a domain: its rows, read from front to end or in shards; duplicates and what is held out."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

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
from prep_assets.pipeline.sources import Benchmarks, Pinned, Router, domain_of, pinned, router_of
from prep_assets.pipeline.workspace import Progress, Workspace
from prep_assets.samples import Example, Pair, PlainChat, PlainPair, Record
from prep_assets.schemas.reader import Account, Reader, weighed_by, without_speakers
from prep_assets.schemas.registry import convert_with, own_code_hash
from prep_assets.stores.arrays import joined, save_array, stretches, together, zeros
from prep_assets.stores.files import Digests
from prep_assets.stores.guards import Guards, load_array
from prep_assets.workers.shards import Runner, Shard, ShardResult

# Records and what becomes of them: items, duplicates, what is held out, and the row function of a domain.


class Seen:
    """Digests, and where each was seen first.

    Places are numbered as they come, so that a stretch of a file is one run: its first number, what to add to a row, and the file.
    """

    def __init__(self) -> None:
        self._digests, self._next = Digests(numbered=True), 0
        self._runs: list[tuple[int, int, str]] = []

    def firsts(self, digests: Sequence[bytes], name: str, rows: Sequence[int]) -> dict[int, str]:
        """Which of some rows of a file had their digest before, by row, and the identity of the record that had it first. All others are noted.

        Args:
            rows: their numbers, ascending.
        """
        places = self._digests.firsts(digests, np.array(rows, np.int64) + self._shift(name, rows))
        return {rows[at]: self._identity(int(places[at])) for at in np.flatnonzero(places >= 0).tolist()}

    def _shift(self, name: str, rows: Sequence[int]) -> int:
        """What to add to the numbers of rows of a file."""
        if rows and (not self._runs or name != self._runs[-1][2] or rows[0] + self._runs[-1][1] < self._next):
            self._runs.append((self._next, self._next - rows[0], name))
        if rows:
            self._next = rows[-1] + self._runs[-1][1] + 1
        return self._runs[-1][1] if self._runs else 0

    def _identity(self, place: int) -> str:
        _, shift, name = self._runs[bisect_right(self._runs, place, key=lambda run: run[0]) - 1]
        return f"{name}:{place - shift}"


_SORTED = msgspec.json.Encoder(order="sorted")
_PACKED = msgspec.msgpack.Encoder(order="sorted")


Given = Example | PlainChat | PlainPair


class Item(msgspec.Struct, frozen=True, gc=False):
    """An example on its way, with the record it came from; `given` is the example, or a plain chat or pair in columns."""

    file: SourceFile
    record: Record
    given: Given

    @property
    def example(self) -> Example:
        """The example."""
        if isinstance(self.given, PlainChat):
            return self.given.sample()
        return self.given.pair() if isinstance(self.given, PlainPair) else self.given

    @property
    def id(self) -> str:
        """Id of the record within its domain."""
        return record_id(self.file, self.record.row)

    def refuse(self, quarantine: Quarantine, refusal: Refused) -> None:
        """Put the record into quarantine."""
        quarantine.add(self.id, refusal.stage or "pipeline", refusal.reason, refusal.detail, self.record.payload)


def reading_recipe(domain: Domain, *, attended: bool = False) -> dict[str, Any]:
    """What decides which examples a domain's files give: its options, and the code of the user's own.

    Args:
        attended: whether rows of which a part is not attended to are kept. Where a schema can say so, they were once refused.
    """
    own = [own_code_hash(name) for name in (domain.schema_name, domain.weigh) if name is not None]
    attention = {"attention": True} if attended and (domain.schema_name == "semantic" or ":" in domain.schema_name) else {}
    return {"schema": [*domain.reading, *own], **attention}


def content_digest(record: Record) -> bytes:
    """xxh3-128 of the record's payload as JSON with sorted keys."""
    return xxhash.xxh3_128_digest(_SORTED.encode(record.payload))


def exact_digests(records: Sequence[Record]) -> list[bytes]:
    """The same of MessagePack, which needs no escapes and so takes a fifth of the time; of JSON where a number is too large for it."""
    try:
        return list(map(xxhash.xxh3_128_digest, map(_PACKED.encode, [record.payload for record in records])))
    except OverflowError:
        half = len(records) // 2
        return exact_digests(records[:half]) + exact_digests(records[half:]) if half else [content_digest(records[0])]


class Duplicates(Protocol):
    """Knows which records came before."""

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """Which of some rows of a file came before, by row: the refusal of each, which names the record that came first."""
        ...


@dataclass(slots=True)
class Deduplicator:
    """Finds records that equal an earlier one in every field. What it keeps of each record is on disk, see `Digests`.

    Attributes:
        digests: equal for records that are duplicates of each other.
        relation: how a refusal says what a duplicate has to do with the record that came first.
    """

    digests: Callable[[Sequence[Record]], list[bytes]] = exact_digests
    relation: str = "equals"
    seen: Seen = field(default_factory=Seen)

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """See `Duplicates`."""
        found = self.seen.firsts(self.digests(records), file.name, [record.row for record in records])
        return {row: Refused("duplicate", f"{self.relation} {first}", stage="deduplicate") for row, first in found.items()}


def held_out(identity: bytes, fraction: float) -> bool:
    """Whether something belongs to the held-out share: decided by its hash alone, so equal things stay on one side."""
    return fraction > 0 and int.from_bytes(identity[:8], "big") < fraction * 2**64


def converter(domain: Domain, gives: type) -> Reader:
    """The row function of a domain in a family that needs the form `gives`: everything that reads its rows takes it from here.

    Where a `Pair` is needed, a sample with a label will do.

    Raises:
        ConfigError: no such schema or option, or its schema has no such form.
    """
    convert = convert_with(domain.schema_name, domain.options, gives=gives, or_labels=gives is Pair)
    if domain.speaker_names != "keep":
        convert = without_speakers(domain.speaker_names, convert)
    if domain.weigh is not None:
        convert = weighed_by(domain.weigh, convert)
    used = [*domain.where, *([domain.domain_key] if domain.domain_key else [])]
    return Reader(convert, Account(domain.ignore, used))


# A domain in shards: stretches of its files between some of the cuts that were pinned with them, all of about one size.

_EXPANDS = 3
"""How much larger compressed text is taken to be than its file."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of one file.

    Attributes:
        file: number of the file, training files first.
        part: which of its rows.
    """

    file: int
    part: Part = WHOLE


def whole_files(sources: Pinned) -> Iterator[Stretch]:
    """All rows of all files."""
    return (Stretch(number) for number in range(len(sources.files) + len(sources.test_files)))


def shards_of(sources: Pinned, count: int | Literal["auto"] = "auto") -> list[Shard]:
    """All rows of all files in shards, whose tasks are stretches. No shard has rows to train on and rows held out.

    Args:
        asked: about how many, see `shard_size`.
    """
    files = (*sources.files, *sources.test_files)
    listed = [list(parts(sources.cuts[number])) if sources.cuts else [WHOLE] for number in range(len(files))]
    sizes = [[_size(file, part, len(each)) for part in each] for file, each in zip(files, listed, strict=True)]
    enough = shard_size(sum(map(sum, sizes)), count) - tables.SHARD_BYTES // 2
    found: list[Shard] = []
    gathered: list[Stretch] = []
    size = 0
    for number, each in enumerate(listed):
        for part, more in zip(each, sizes[number], strict=True):
            if gathered and gathered[-1].file == number:  # it goes on where the last one ends
                gathered[-1] = replace(gathered[-1], part=replace(gathered[-1].part, stop=part.stop))
            else:
                gathered.append(Stretch(number, part))
            size += more
            ends = part.stop is None and number + 1 in (len(sources.files), len(files))
            if size >= enough or ends:
                found.append(Shard(len(found), _label(files, gathered), size, tuple(gathered)))
                gathered, size = [], 0
    return found


def is_held_out(shard: Shard, sources: Pinned) -> bool:
    """Whether a shard's rows are held out."""
    return bool(shard.task[0].file >= len(sources.files))


def text_bytes(file: SourceFile) -> int:
    """Bytes of text in a file, about."""
    return file.size * (_EXPANDS if file.compression else 1)


def _size(file: SourceFile, part: Part, count: int) -> int:
    """Bytes of text, about. A table's rows do not say how large they are; its parts are equally large."""
    whole = text_bytes(file)
    if file.format in tables.TABLES:
        return max(1, whole // count)
    return max(1, (whole if part.stop is None else part.stop) - part.start)


def _label(files: tuple[SourceFile, ...], stretches: list[Stretch]) -> str:
    first, last = stretches[0], stretches[-1]
    begin = f"{files[first.file].name} from row {first.part.row:,}"
    return begin if first.file == last.file else f"{begin} to {files[last.file].name}"


# One domain, read from front to end: the one loop over source files that every family takes its examples from.


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


# What a domain is read from, in a form that can travel to other processes, and the readings of it.


@dataclass(frozen=True)
class Source:
    """A pinned domain.

    Attributes:
        workspace: where its family is configured.
        kind: the family.
        name: of the domain.
        gives: the form that the family needs, see `converter`.
        sources, router: its files, and what picks its rows.
        max_items: use at most so many records to train on.
    """

    workspace: Workspace
    kind: type[Family]
    name: str
    gives: type
    sources: Pinned
    router: Router
    max_items: int | None

    @classmethod
    def of(cls, workspace: Workspace, kind: type[Family], name: str, *, gives: type, limit: str = "") -> Source:
        """The source of a pinned domain.

        Args:
            limit: option of the family that limits the records to train on, beside the domain's own.

        Raises:
            StoreError, SourceError: see `pinned`.
        """
        family = workspace.family(kind)
        limits = (domain_of(family, name).max_items, getattr(family, limit) if limit else None)
        fewest = min((number for number in limits if number is not None), default=None)
        sources = pinned(workspace, kind, f"{family_name(kind)}_raw", name)
        return cls(workspace, kind, name, gives, sources, router_of(workspace, family, name), fewest)

    @property
    def family(self) -> Family:
        """The family's configuration."""
        return self.workspace.family(self.kind)

    @property
    def doing(self) -> str:
        """What progress is about while it is tokenized."""
        return f"tokenize {self.name}"

    @cached_property
    def benchmarks(self) -> Benchmarks | None:
        """What no record may hold; read when it is first needed, and then kept."""
        found = self.sources.benchmarks
        return Benchmarks.read(found, self.family.decontaminate.words) if found else None

    def reading(self) -> Reading:
        """The whole domain, from front to end."""
        return self._reading(Deduplicator() if self.family.preprocessing.deduplicate else None, self.max_items, None)

    whole = reading

    def shards(self, count: int | Literal["auto"]) -> list[Shard]:
        """See `shards_of`."""
        return shards_of(self.sources, count)

    def part(self, task: tuple[Sequence[Stretch], Found]) -> Reading:
        """Some stretches of it, and what is known of their records from elsewhere."""
        stretches, found = task
        return self._reading(Elsewhere(found, (*self.sources.files, *self.sources.test_files)), found.limit, stretches)

    def rows(self, stretches: Sequence[Stretch]) -> Reading:
        """Some stretches of it, read for their rows only."""
        return replace(self._reading(None, None, stretches), benchmarks=None)

    def travelling(self, runner: Runner) -> Source:
        """This source as it goes to another process."""
        return replace(self, workspace=self.workspace.travelling(self.kind))

    def _reading(self, duplicates: Duplicates | None, limit: int | None, stretches: Sequence[Stretch] | None) -> Reading:
        return Reading(
            self.name,
            domain := domain_of(self.family, self.name),
            self.router,
            self.sources,
            converter(domain, self.gives),
            duplicates,
            self.benchmarks,
            limit,
            self.workspace.progress,
            stretches,
        )


# Duplicates and limits across shards: each shard notes 16 bytes for every record, and which of them came first is found of all. Workers that pin a domain
# note them by the way, for the same build; otherwise that is a first pass.
#
# The first in the order of the plan wins, as where one process reads everything.

BLOCK_BYTES = 4 << 20
FIELDS: Mapping[str, Any] = {"file": np.int32, "row": np.int64, "number": np.int64}
"""Beside the digest of a record: its file and row, and how many rows of its shard count towards a limit before it."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """What a first pass says to one shard.

    Attributes:
        duplicates: int64[k, 4]: file and row of each of its records that came before, and of the record that it equals.
        limit: use at most so many of its records to train on.
    """

    duplicates: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    limit: int | None = None


class Elsewhere:
    """Refuses the records of one shard that came before, there or elsewhere; see `Duplicates`.

    Args:
        files: of the domain.
    """

    def __init__(self, found: Found, files: Sequence[SourceFile]) -> None:
        self._first = {(file, row): (of, at) for file, row, of, at in found.duplicates.tolist()}
        self._files = files

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """See `Duplicates`."""
        firsts = {record.row: first for record in records if (first := self._first.get((record.file, record.row)))}
        return {
            row: Refused("duplicate", f"equals {record_id(self._files[of], at)}", stage="deduplicate") for row, (of, at) in firsts.items()
        }


class Notes:
    """What is noted of the rows of a shard.

    Attributes:
        rows: how many count towards a limit so far.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._digests: list[bytes] = []
        self._places: list[tuple[int, int, int]] = []

    def add(self, rows: Sequence[Record | Unreadable]) -> None:
        """Note the next rows."""
        counted = [row for row in rows if isinstance(row, Record) or row.reason not in MISSED]
        records = [(number, row) for number, row in enumerate(counted, self.rows) if isinstance(row, Record)]
        self.rows += len(counted)
        self._digests += exact_digests([row for _, row in records])
        self._places += [(row.file, row.row, number) for number, row in records]

    def save(self, folder: Path) -> None:
        """Write down what was noted."""
        save_array(folder / "digests.npy", np.frombuffer(b"".join(self._digests), np.uint8))
        places = np.array(self._places, np.int64).reshape(-1, len(FIELDS))
        for name, column in zip(FIELDS, places.T, strict=True):
            save_array(folder / f"{name}.npy", column.astype(FIELDS[name]))


def note_records(stretches: Sequence[Stretch], folder: Path, *, source: Source) -> dict[str, int]:
    """The first pass over one shard."""
    notes = Notes()
    for block in source.rows(stretches).rows(BLOCK_BYTES):
        notes.add(block.rows)
    notes.save(folder)
    return {"rows": notes.rows}


@dataclass(frozen=True, slots=True)
class Noted:
    """Duplicates that were found when a domain was pinned, for the same build.

    Attributes:
        domain, files: how it was configured, and what it held.
        shards: how it was cut.
        duplicates: of each shard, see `Found`.
    """

    domain: Domain
    files: tuple[SourceFile, ...]
    shards: Sequence[Shard]
    duplicates: Sequence[Ints]

    @staticmethod
    def can_be(family: Family, domain: Domain) -> bool:
        """Whether equal records of a domain are used alike, so that those that are pinned can be compared."""
        return family.preprocessing.deduplicate and domain.domain_key is None and domain.max_items is None

    def of(self, source: Source, shards: Sequence[Shard]) -> list[Shard] | None:
        """The shards with what each must know of the others; nothing where these are the duplicates of something else."""
        files = (*source.sources.files, *source.sources.test_files)
        held, holds = ([(file.url, file.blocks) for file in each] for each in (self.files, files))
        now = domain_of(source.family, source.name), holds, shards
        if source.max_items is not None or (self.domain, held, self.shards) != now:
            return None
        return [replace(shard, task=(shard.task, Found(mine))) for shard, mine in zip(shards, self.duplicates, strict=True)]


def without_duplicates(source: Source, noted: Sequence[ShardResult]) -> Iterator[Shard]:
    """The shards that are used, with what each must know of the others: tasks become ``(stretches, Found)``."""
    limits = dict(_limits(source, noted))
    kept = [each for each in noted if limits[each.shard.number] != 0]
    if source.family.preprocessing.deduplicate:
        duplicates = duplicates_of([columns_of(each, limits[each.shard.number]) for each in kept])
    else:
        duplicates = [Found().duplicates] * len(kept)
    for number, (each, mine) in enumerate(zip(kept, duplicates, strict=True)):
        yield replace(each.shard, number=number, task=(each.shard.task, Found(mine, limits[each.shard.number])))


def _limits(source: Source, noted: Sequence[ShardResult]) -> Iterator[tuple[int, int | None]]:
    remaining = source.max_items
    for each in noted:
        if remaining is None or is_held_out(each.shard, source.sources):
            yield each.shard.number, None
        else:
            taken = min(remaining, each.counts["rows"])
            yield each.shard.number, taken
            remaining -= taken


def columns_of(noted: ShardResult, limit: int | None = None) -> dict[str, npt.NDArray[Any]]:
    """What a shard noted, up to its limit: both halves of each digest, file and row."""
    guards = Guards.of_work(noted.folder, noted.files)
    digests, file, row, number = (load_array(noted.folder / f"{name}.npy", guards) for name in ("digests", *FIELDS))
    halves = np.asarray(digests).view(np.uint64)
    some = slice(None if limit is None else int(np.searchsorted(number, limit)))
    return {"high": halves[::2][some], "low": halves[1::2][some], "file": file[some], "row": row[some]}


def duplicates_of(columns: Sequence[Mapping[str, npt.NDArray[Any]]]) -> list[Ints]:
    """Of each shard, `Found.duplicates`. All of them wait on disk until their shard is sent to its worker."""
    if not columns:
        return []
    high, low = (joined([each[half] for each in columns], np.uint64) for half in ("high", "low"))
    file, row = joined([each["file"] for each in columns], np.int32), joined([each["row"] for each in columns])
    equals = _first_equals(high, low)
    counts = [int(np.count_nonzero(part)) for part in np.split(equals, np.cumsum([len(each["row"]) for each in columns]))[:-1]]
    found, filled = zeros(4 * sum(counts)).reshape(-1, 4), 0
    for part in stretches(len(equals)):
        later = np.flatnonzero(equals[part])
        first = equals[part][later] - 1
        here = slice(filled, filled + len(later))
        found[here] = np.stack([file[part][later], row[part][later], file[first], row[first]], axis=1)
        filled = here.stop
    return np.split(found, np.cumsum(counts)[:-1])


def _first_equals(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Ints:
    """Of each digest that came before, 1 + the place of the first that it equals; 0 of all others."""
    equals = zeros(len(high))
    for places in together(high):
        here = places[np.lexsort((low[places], high[places]))]  # stable, so that equal ones stay in order
        same = (high[here[1:]] == high[here[:-1]]) & (low[here[1:]] == low[here[:-1]])
        begins = np.append(np.ones(1, bool), ~same)
        first = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        later = np.flatnonzero(~begins)
        equals[here[later]] = here[first[later]] + 1
    return equals
