"""Routing: one source that holds several domains, told apart by a field of each row.

Every domain that names the same `domain_key` takes the rows whose value is its own (`domain_value`, or its name). A value that no domain
declares stops the build, so that no row is lost between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prep_assets.config.models import Family
from prep_assets.errors import SourceError, nearest
from prep_assets.records.blocks import Block

MISSING = "(missing)"


@dataclass(slots=True)
class Router:
    """Picks the rows of one domain.

    Attributes:
        key: the field that tells domains apart; `None` where a source has one domain only.
        value: what it holds in this domain's rows.
        declared: values that some domain of the family takes.
        others: how many rows hold each value that no domain takes.
    """

    key: str | None
    value: str
    declared: frozenset[str]
    others: Counter[str] = field(default_factory=Counter)

    def pick(self, block: Block) -> Block:
        """The rows of a block that are this domain's. Rows that cannot be read belong to every domain of their file."""
        if self.key is None:
            return block
        values = [_value(record.payload, self.key) for record in block.records]
        self.others.update(value for value in values if value not in self.declared)
        return replace(block, records=[record for record, value in zip(block.records, values, strict=True) if value == self.value])

    def check(self) -> None:
        """Stop where rows belong to no domain.

        Raises:
            SourceError: names the values, how many rows hold each, and what to declare.
        """
        if self.others:
            shown = ", ".join(
                f"{value!r} ({count:,} rows{nearest(value, self.declared)})" for value, count in sorted(self.others.items())[:10]
            )
            raise SourceError(
                f"{self.key!r} holds values that no domain declares: {shown}. Declare a domain of that name (or with domain_value), "
                "or keep such rows out of the files"
            )


def router_of(family: Family, name: str) -> Router:
    """The router of a domain."""
    domain = family.domains[name]
    peers = {other.domain_value or label for label, other in family.domains.items() if other.domain_key == domain.domain_key}
    return Router(domain.domain_key, domain.domain_value or name, frozenset(peers))


def _value(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    return MISSING if value is None else str(value)
