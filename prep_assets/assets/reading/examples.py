"""Records and what becomes of them: items, duplicates, what is held out, and the row function of a domain."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import xxhash

from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain, Family
from prep_assets.disk.digests import Digests
from prep_assets.errors import Refused
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Example, Pair, PlainChat, PlainPair, Record
from prep_assets.schemas.own_code import own_code_hash
from prep_assets.schemas.reader import Account, Reader
from prep_assets.schemas.registry import convert_with
from prep_assets.schemas.speakers import without_speakers
from prep_assets.schemas.weighing import weighed_by


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


def reading_recipe(domain: Domain) -> list[Any]:
    """What decides which examples a domain's files give: its options, and the code of the user's own."""
    own = [own_code_hash(name) for name in (domain.schema_name, domain.weigh) if name is not None]
    return [*domain.reading, *own]


def attention_recipe(domain: Domain) -> dict[str, Any]:
    """That rows are kept of which a part is not attended to, where a schema can say so; once they were refused, and only these stores are made anew."""
    return {"attention": True} if domain.schema_name == "semantic" or ":" in domain.schema_name else {}


def domain_recipe(workspace: Workspace, family: Family, raw: str, name: str) -> dict[str, Any]:
    """What a store depends on of the domain that it is read from."""
    return {"domain": name, "raw": workspace.content(raw, name), "schema": reading_recipe(family.domains[name])}


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
