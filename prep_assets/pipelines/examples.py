"""Source files → examples, in blocks: read, filter, deduplicate, convert; refuse and count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import xxhash

from prep_assets.config.models import Domain, Family
from prep_assets.errors import ConfigError, Refused
from prep_assets.pipelines.routing import Router
from prep_assets.records.blocks import Unreadable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine
from prep_assets.records.read import read_blocks
from prep_assets.records.where import MISSED, conditions, filter_blocks
from prep_assets.samples import Example, Pair, Record
from prep_assets.schemas.registry import Convert, apply, convert_with, own_code_hash

_SORTED = msgspec.json.Encoder(order="sorted")
_PACKED = msgspec.msgpack.Encoder(order="sorted")


@dataclass(slots=True)
class Tally:
    """Records read so far. What was not refused was kept, so the sum always holds or the accounting check fails.

    Attributes:
        taken: those read that `where` lets through, which `max_items` counts.
    """

    read: int = 0
    kept: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """An example on its way, with the record it came from."""

    file: SourceFile
    record: Record
    example: Example

    @property
    def id(self) -> str:
        """Id of the record within its domain."""
        return record_id(self.file, self.record.row)

    def refuse(self, quarantine: Quarantine, refusal: Refused) -> None:
        """Put the record into quarantine."""
        quarantine.add(self.id, refusal.stage or "pipeline", refusal.reason, refusal.detail, self.record.payload)


@dataclass(slots=True)
class Deduplicator:
    """Finds records that equal an earlier one in every field. It keeps 16 bytes of hash for each record that it has seen."""

    seen: dict[bytes, str] = field(default_factory=dict)

    def check(self, record: Record, identity: str) -> None:
        """Refuse a duplicate, naming the record that came first."""
        first = self.seen.setdefault(_exact_digest(record), identity)
        if first is not identity:
            raise Refused("duplicate", f"equals {first}", stage="deduplicate")


def reading_recipe(domain: Domain) -> list[Any]:
    """What decides which examples a domain's files give: its options, and the code of a schema of the user's own."""
    return [*domain.reading, own_code_hash(domain.schema_name)]


def content_digest(record: Record) -> bytes:
    """xxh3-128 of the record's payload as JSON with sorted keys."""
    return xxhash.xxh3_128_digest(_SORTED.encode(record.payload))


def _exact_digest(record: Record) -> bytes:
    """The same of MessagePack, which needs no escapes and so takes a fifth of the time; of JSON where a number is too large for it."""
    try:
        return xxhash.xxh3_128_digest(_PACKED.encode(record.payload))
    except OverflowError:
        return content_digest(record)


def held_out(identity: bytes, fraction: float) -> bool:
    """Whether something belongs to the held-out share: decided by its hash alone, so equal things stay on one side."""
    return fraction > 0 and int.from_bytes(identity[:8], "big") < fraction * 2**64


def converter(domain: Domain, gives: type) -> Convert:
    """The row function of a domain in a family that needs the form `gives`: everything that reads its rows takes it from here.

    Where a `Pair` is needed, a sample with a label will do.

    Raises:
        ConfigError: no such schema or option, or its schema has no such form.
    """
    return convert_with(domain.schema_name, domain.options, gives=gives, or_labels=gives is Pair)


def check_schemas(family: Family, names: Sequence[str], gives: type) -> None:
    """Stop before a row of the first domain is converted, where a later one could not be.

    Raises:
        ConfigError: see `converter`; the message names the domain.
    """
    for name in names:
        try:
            converter(family.domains[name], gives)
        except ConfigError as error:
            raise ConfigError(f"domain {name}: {error}") from error


def examples(
    domain: Domain,
    router: Router,
    files: Sequence[SourceFile],
    quarantine: Quarantine,
    tally: Tally,
    *,
    gives: type,
    deduplicator: Deduplicator | None = None,
    max_items: int | None = None,
    block_bytes: int = 4 << 20,
) -> Iterator[tuple[list[Item], int]]:
    """Blocks of examples in the order of the files, and how many bytes of source they took.

    Everything that is not yielded is in quarantine. `max_items` ends reading after so many records that `where` lets
    through; those beyond it were never read.
    `gives` is the form that the family needs, see `converter`.
    """
    convert = converter(domain, gives)
    for file, rows, size in rows_of(domain, router, files, tally, max_items=max_items, block_bytes=block_bytes):
        items = []
        for row in rows:
            if not isinstance(row, Record):
                quarantine.add_unreadable(file, row)
                continue
            try:
                if deduplicator is not None:
                    deduplicator.check(row, record_id(file, row.row))
                items.append(Item(file, row, apply(convert, row.payload)))
            except Refused as refusal:
                quarantine.add(record_id(file, row.row), refusal.stage, refusal.reason, refusal.detail, row.payload)
        yield items, size


def rows_of(
    domain: Domain,
    router: Router,
    files: Sequence[SourceFile],
    tally: Tally,
    *,
    max_items: int | None = None,
    block_bytes: int = 4 << 20,
) -> Iterator[tuple[SourceFile, Sequence[Record | Unreadable], int]]:
    """Blocks of a domain's rows in the order of the files: their file, the rows, and how many bytes of source they took.

    A row that is refused at reading, or by `where`, stands in its place among the others.
    """
    tests = conditions(domain.where) if domain.where else ()
    limit = min((number for number in (domain.max_items, max_items) if number is not None), default=None)
    for index, file in enumerate(files):
        before = 0
        picked = map(partial(router.pick, file), read_blocks(file, index, block_bytes=block_bytes, txt=domain.txt))
        for block in filter_blocks(picked, tests) if tests else picked:
            rows: Sequence[Record | Unreadable] = block.records
            if block.unreadable:
                rows = sorted([*block.records, *block.unreadable], key=lambda row: row.row)
            if limit is not None:
                rows = _first(rows, limit - tally.taken, tally)
            tally.read += len(rows)
            yield file, rows, block.bytes_read - before
            before = block.bytes_read
            if limit is not None and tally.taken >= limit:
                return


def _first(rows: Sequence[Record | Unreadable], limit: int, tally: Tally) -> Sequence[Record | Unreadable]:
    """`rows` up to the one that is number `limit` of those that `where` lets through. Rows that cannot be read count, as without `where`."""
    places = [at for at, row in enumerate(rows) if isinstance(row, Record) or row.reason not in MISSED][:limit]
    tally.taken += len(places)
    return rows[: places[-1] + 1] if len(places) == limit else rows
