"""Routing: one source that holds several domains, told apart by a field of each row.

Every domain that names the same `domain_key` takes the rows whose value is its own (`domain_value`, or its name). A value that no domain of
the same file declares stops the build, so that no row is lost between them; and no two of them take the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain, Family
from prep_assets.errors import ConfigError, SourceError, SourceUnavailable, nearest
from prep_assets.records.blocks import Block
from prep_assets.records.files import SourceFile
from prep_assets.records.find import find
from prep_assets.records.hub import find_on_hub, is_hub

MISSING = "(missing)"


@dataclass(slots=True)
class Router:
    """Picks the rows of one domain.

    Attributes:
        key: the field that tells domains apart; `None` where a source has one domain only.
        value: what it holds in this domain's rows.
        declared: address of a file → values that domains take which read it as this one does, to train on or held out.
        others: how many rows hold each value that no domain takes.
    """

    key: str | None
    value: str
    declared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)

    def taken(self, file: SourceFile) -> frozenset[str]:
        """Values that some domain takes of a file."""
        return self.declared.get(file.url, frozenset({self.value}))

    def picked(self, file: SourceFile, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks of a file with the rows that are this domain's. Rows that cannot be read belong to every domain of their file."""
        return blocks if self.key is None else map(partial(self._pick, self.taken(file), self.key), blocks)

    def _pick(self, taken: frozenset[str], key: str, block: Block) -> Block:
        values = [value_of(record.payload, key) for record in block.records]
        self.others.update(value for value in values if value not in taken)
        return replace(block, records=[record for record, value in zip(block.records, values, strict=True) if value == self.value])

    def check(self) -> None:
        """Stop where rows belong to no domain.

        Raises:
            SourceError: names the values, how many rows hold each, and what to declare.
        """
        if self.others:
            known = frozenset[str]({self.value}).union(*self.declared.values())
            shown = ", ".join(
                f"{value!r} ({count:,} rows{nearest(value, known - {value})})" for value, count in sorted(self.others.items())[:10]
            )
            raise SourceError(
                f"{self.key!r} holds values that no domain declares: {shown}. Declare a domain of that name (or with domain_value) that reads "
                "the same files, to train on or held out as here, or keep such rows out of the files"
            )


def router_of(workspace: Workspace, family: Family, name: str) -> Router:
    """The router of a domain.

    Raises:
        ConfigError: another domain takes the same rows.
    """
    domain = family.domains[name]
    if domain.domain_key is None:
        return Router(None, domain.value(name))
    peers = {label: other for label, other in family.domains.items() if other.domain_key == domain.domain_key}
    read = {label: _Reading.of(workspace, other) for label, other in peers.items()}
    values = {label: other.value(label) for label, other in peers.items()}
    _refuse_claimed_twice(name, domain.domain_key, values, read)
    declared: dict[str, frozenset[str]] = {}
    for role in ("train", "test"):
        for url in getattr(read[name], role):
            taken = frozenset(values[label] for label in peers if url in getattr(read[label], role))
            # a file that is read in both roles loses a row in the role in which no domain takes it
            declared[url] = declared.get(url, taken) & taken
    return Router(domain.domain_key, values[name], declared)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Addresses of the files that a domain trains on, and of those it holds out."""

    train: frozenset[str]
    test: frozenset[str]

    @classmethod
    def of(cls, workspace: Workspace, domain: Domain) -> _Reading:
        return cls(addresses(workspace, domain.files), addresses(workspace, domain.test_files))


def addresses(workspace: Workspace, patterns: Sequence[str]) -> frozenset[str]:
    """Where the files behind patterns are; a pattern without a file has none."""
    found: set[str] = set()
    for pattern in patterns:
        try:
            found.update(one.url for one in (find_on_hub(pattern) if is_hub(pattern) else find(pattern, workspace.configs.absolute())))
        except SourceUnavailable:
            raise  # what is not reached may be there, and then it has rows of these files
        except SourceError:
            continue  # missing files stop the build of the domain that names them, and no other
    return frozenset(found)


def _refuse_claimed_twice(name: str, key: str, values: Mapping[str, str], read: Mapping[str, _Reading]) -> None:
    for other, value in values.items():
        shared = sorted((read[name].train | read[name].test) & (read[other].train | read[other].test))
        if other != name and value == values[name] and shared:
            first, second = sorted((name, other))
            raise ConfigError(
                f"domains {first} and {second} both take the rows of {shared[0]} in which {key!r} is {value!r}. Leave one of them out, give "
                "one another domain_value, or tell the rows apart with `where` alone"
            )


def value_of(payload: Mapping[str, Any], key: str) -> str:
    """What a row holds in the field that tells domains apart, as text."""
    value = payload.get(key)
    return MISSING if value is None else str(value)
