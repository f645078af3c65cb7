"""What differs between two versions of a store: records in, out and changed, and tokens by domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.lineage.contents import StoredRecord, contents
from prep_assets.stores.manifest import differences
from prep_assets.stores.published import Place, Published
from prep_assets.stores.versions import version_named, versions

Key = tuple[str, str, str]
"""Stream, domain and id of a record."""


@dataclass(slots=True)
class Amount:
    """How much of a domain a version holds."""

    records: int = 0
    tokens: int = 0
    trained: int = 0

    def add(self, held: StoredRecord) -> None:
        """Count one record."""
        self.records += 1
        self.tokens += len(held.ids)
        self.trained += int(np.count_nonzero(held.weights > 0))


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """A record in two versions; `None` where one has it not."""

    key: Key
    before: StoredRecord | None
    after: StoredRecord | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Two versions of a store compared.

    Attributes:
        before, after: the versions.
        recipe: keys at which what they were made from and with differs.
        same: records that both hold, to the token and its weight.
        came, went, changed: records that only the later one holds, only the earlier one, and both with another content.
        amounts: domain → what the earlier and the later version hold of it.
        examples: some of these records: changed ones first.
    """

    before: Published
    after: Published
    recipe: tuple[str, ...]
    same: int
    came: int
    went: int
    changed: int
    amounts: dict[str, tuple[Amount, Amount]] = field(default_factory=dict)
    examples: tuple[Changed, ...] = ()


def diff(workspace: Workspace, asset: str, version: str | None = None, *, partition: str = "", examples: int = 10) -> Difference:
    """The current store against another version of it: what came since an old one, or what a draft or a refused candidate would bring.

    Args:
        version: ``draft``, ``candidate``, or the beginning of its folder's name; the one written last apart from the current one, where left out.
        examples: how many records to show.

    Raises:
        ConfigError: no such version; or no store at all.
    """
    place = workspace.place(asset, partition)
    current = place.current()
    if current is None:
        raise ConfigError(f"{place.label} has no current store to compare with")
    other = _other(place, current) if version is None else version_named(place, version)
    newer = {each.version for each in (place.draft(), place.candidate()) if each is not None}
    before, after = (current, other) if other.version in newer else (other, current)
    return compare(workspace, before, after, examples=examples)


def _other(place: Place, current: Published) -> Published:
    others = [each for each in versions(place) if each.version != current.version]
    if not others:
        raise ConfigError(f"{place.label} has one version only, the current one: {current.where}")
    return others[0]


def compare(workspace: Workspace, before: Published, after: Published, *, examples: int = 10) -> Difference:
    """Two versions of a store. Memory holds a hash for each record, and the records that are shown."""
    left, right = _Side(workspace, before), _Side(workspace, after)
    same = sum((left.digests & right.digests).values())
    gone, come = left.only(right.digests), right.only(left.digests)
    changed = gone.keys() & come.keys()
    amounts = {name: (left.amount(name), right.amount(name)) for name in sorted({*left.amounts, *right.amounts})}
    chosen = [*sorted(changed), *sorted(come.keys() - changed), *sorted(gone.keys() - changed)][:examples]
    held = left.take(gone.keys() & set(chosen)), right.take(come.keys() & set(chosen))
    shown = tuple(Changed(key, held[0].get(key), held[1].get(key)) for key in chosen)
    recipe = differences(before.manifest.recipe, after.manifest.recipe)
    # of a record that is in one version several times, one is the changed one
    came, went = (keys.total() - len(changed) for keys in (come, gone))
    return Difference(before, after, recipe, same, came, went, len(changed), amounts, shown)


class _Side:
    """A version, read once for its hashes, and once more for the records that are shown."""

    def __init__(self, workspace: Workspace, published: Published) -> None:
        self.read: Callable[[], Iterator[StoredRecord]] = lambda: contents(workspace, published)
        self.digests: Counter[bytes] = Counter()
        self.amounts: dict[str, Amount] = {}
        for held in self.read():
            self.digests[held.digest] += 1
            self.amounts.setdefault(held.domain, Amount()).add(held)

    def amount(self, domain: str) -> Amount:
        return self.amounts.get(domain, Amount())

    def only(self, other: Counter[bytes]) -> Counter[Key]:
        """The records that are here more often than in the other version."""
        surplus, found = self.digests - other, Counter[Key]()
        for held in self.read() if surplus else ():
            if surplus[held.digest] > 0:
                surplus[held.digest] -= 1
                found[held.stream, held.domain, held.id] += 1
        return found

    def take(self, wanted: Collection[Key]) -> dict[Key, StoredRecord]:
        """The records of these keys."""
        return {key: held for held in (self.read() if wanted else ()) if (key := (held.stream, held.domain, held.id)) in wanted}
