"""Records and what becomes of them: items, duplicates, what is held out, and the row function of a domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import xxhash

from prep_assets.assets.reading.seen import Seen
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain, Family
from prep_assets.errors import Refused
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Example, Pair, PlainChat, Record
from prep_assets.schemas.account import Account
from prep_assets.schemas.own_code import own_code_hash
from prep_assets.schemas.registry import Reader, convert_with
from prep_assets.schemas.weighing import weighed_by

_SORTED = msgspec.json.Encoder(order="sorted")
_PACKED = msgspec.msgpack.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Item:
    """An example on its way, with the record it came from; `given` is the example, or a plain chat in columns."""

    file: SourceFile
    record: Record
    given: Example | PlainChat

    @property
    def example(self) -> Example:
        """The example."""
        return self.given.sample() if isinstance(self.given, PlainChat) else self.given

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


def domain_recipe(workspace: Workspace, family: Family, raw: str, name: str) -> dict[str, Any]:
    """What a store depends on of the domain that it is read from."""
    return {"domain": name, "raw": workspace.content(raw, name), "schema": reading_recipe(family.domains[name])}


def content_digest(record: Record) -> bytes:
    """xxh3-128 of the record's payload as JSON with sorted keys."""
    return xxhash.xxh3_128_digest(_SORTED.encode(record.payload))


def exact_digest(record: Record) -> bytes:
    """The same of MessagePack, which needs no escapes and so takes a fifth of the time; of JSON where a number is too large for it."""
    try:
        return xxhash.xxh3_128_digest(_PACKED.encode(record.payload))
    except OverflowError:
        return content_digest(record)


class Duplicates(Protocol):
    """Knows which records came before."""

    def check(self, record: Record, identity: str) -> None:
        """Refuse a duplicate, naming the record that came first."""
        ...


@dataclass(slots=True)
class Deduplicator:
    """Finds records that equal an earlier one in every field. It keeps 20 bytes of each record, see `prep_assets.assets.reading.duplicates`.

    Attributes:
        digest: equal for records that are duplicates of each other.
        relation: how a refusal says what a duplicate has to do with the record that came first.
    """

    digest: Callable[[Record], bytes] = exact_digest
    relation: str = "equals"
    seen: Seen = field(default_factory=Seen)

    def check(self, record: Record, identity: str) -> None:
        """Refuse a duplicate, naming the record that came first."""
        if first := self.seen.first(self.digest(record), identity):
            raise Refused("duplicate", f"{self.relation} {first}", stage="deduplicate")


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
    if domain.weigh is not None:
        convert = weighed_by(domain.weigh, convert)
    used = [*domain.where, *([domain.domain_key] if domain.domain_key else [])]
    return Reader(convert, Account(domain.ignore, used))
