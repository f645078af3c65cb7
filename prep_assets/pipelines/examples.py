"""Source files → examples, in blocks: read, filter, deduplicate, convert; refuse and count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import xxhash

from prep_assets.config.models import Domain
from prep_assets.errors import Refused
from prep_assets.pipelines.routing import Router
from prep_assets.records.blocks import Unreadable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine
from prep_assets.records.read import read_blocks
from prep_assets.records.where import conditions, filter_blocks
from prep_assets.samples import Example, Record
from prep_assets.schemas.registry import apply, convert_with, own_code_hash

_SORTED = msgspec.json.Encoder(order="sorted")
_PACKED = msgspec.msgpack.Encoder(order="sorted")


@dataclass(slots=True)
class Tally:
    """Records read so far. What was not refused was kept, so the sum always holds or the accounting check fails."""

    read: int = 0
    kept: int = 0


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


def examples(
    domain: Domain,
    router: Router,
    files: Sequence[SourceFile],
    quarantine: Quarantine,
    tally: Tally,
    *,
    gives: type | None = None,
    deduplicator: Deduplicator | None = None,
    max_items: int | None = None,
    block_bytes: int = 4 << 20,
) -> Iterator[tuple[list[Item], int]]:
    """Blocks of examples in the order of the files, and how many bytes of source they took.

    Everything that is not yielded is in quarantine. `max_items` ends reading after so many records; those beyond it were never read.
    `gives` is what the family needs, where a schema of one name has several forms.
    """
    convert = convert_with(domain.schema_name, domain.options, gives=gives)
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
        picked = map(router.pick, read_blocks(file, index, block_bytes=block_bytes, txt=domain.txt))
        for block in filter_blocks(picked, tests) if tests else picked:
            rows: Sequence[Record | Unreadable] = block.records
            if block.unreadable:
                rows = sorted([*block.records, *block.unreadable], key=lambda row: row.row)
            if limit is not None:
                rows = rows[: limit - tally.read]
            tally.read += len(rows)
            yield file, rows, block.bytes_read - before
            before = block.bytes_read
            if limit is not None and tally.read >= limit:
                return
