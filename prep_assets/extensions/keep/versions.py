"""Every version of every store below a root, what its recipe says, and what it was made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from prep_assets.engine.status import places_in
from prep_assets.errors import StoreError
from prep_assets.graph.graph import EVERY
from prep_assets.stores.manifest import Manifest, digest
from prep_assets.stores.published import Place
from prep_assets.stores.remote import Unanswered, at_once
from prep_assets.stores.version_folders import POINTERS, name_of

Key = tuple[str, str]
"""Asset and partition."""
Values = tuple[Any, ...]
Facts = Mapping[str, Values]
"""Dotted name → the values of a recipe there, several in lists."""
HASH = re.compile(r"[0-9a-f]{64}")


class Version(Struct, frozen=True, eq=False):
    """A version of a store, here or elsewhere.

    Attributes:
        manifest: `None` where it cannot be read.
        fault: what its manifest says that cannot be; empty where nothing is wrong.
        pointers: those that lead to it; none where it is old or elsewhere.
        facts: what its recipe says.
        parents: store and content of what it was made from; an empty content where it names none.
        others: hashes that its recipe names besides.
    """

    key: Key
    name: str
    manifest: Manifest | None
    fault: str = ""
    pointers: tuple[str, ...] = ()
    facts: Facts = {}
    parents: tuple[tuple[Key, str], ...] = ()
    others: frozenset[str] = frozenset()

    @property
    def content(self) -> str:
        """Its content hash; empty where its manifest cannot be read."""
        return self.manifest.content_hash if self.manifest else ""

    @property
    def seal(self) -> str:
        """The hash of all that its manifest says of it; empty where that cannot be read."""
        return self.manifest.signed_digest if self.manifest else ""


def read_versions(root: Path) -> list[Version]:
    """Every version of every store below a root, in order."""
    return list(chain.from_iterable(at_once(_versions_at, places_in(root))))


def _versions_at(place: Place) -> list[Version]:
    backend, pointers, found = place.backend, place.pointers, list[Version]()
    for name in backend.names():
        leads = tuple(pointer for pointer in POINTERS if getattr(pointers, pointer) == name)
        try:
            found.append(version_of(backend.published(name).manifest, name, leads))
        except Unanswered:
            raise
        except StoreError as error:
            found.append(Version((place.asset, place.partition), name, None, f"its manifest cannot be read: {error}", leads))
    return found


def version_of(manifest: Manifest, name: str = "", pointers: tuple[str, ...] = ()) -> Version:
    """A version, with what is wrong with its manifest: a recipe that is not that of its build key was edited, and may hide what made it."""
    fault, key, recipe = "", (manifest.asset, manifest.partition), manifest.recipe
    if digest({"format": manifest.format, **recipe}) != manifest.build_key:
        fault = "its recipe is not the one of its build key: it was edited"
    elif name and not name.startswith(name_of(manifest.build_key, manifest.content_hash)):
        fault = "its manifest is of another version: it was replaced"
    facts = {**facts_of(recipe), "asset": key[:1], "partition": key[1:]}
    if declared := EVERY.get(manifest.asset):
        contents = declared.contents(manifest.partition, recipe)
        # a configuration may do without the others
        needed = [above.name for input_key, above in declared.inputs if input_key and not (above.absent or above.feeds)]
    else:
        contents, needed = {(str(recipe.get("from")), manifest.partition): str(recipe.get("source", ""))}, []
    missing = [((name, manifest.partition), "") for name in needed if name not in {above for above, _ in contents}]
    hashes = {value for values in facts.values() for value in values if isinstance(value, str) and HASH.fullmatch(value)}
    parents = (*contents.items(), *missing)
    return Version(key, name, manifest, fault, pointers, facts, parents, frozenset(hashes - {*contents.values()}))


def facts_of(value: Any, path: str = "") -> dict[str, Values]:
    """The values of a recipe by dotted name; entries of lists share the name of the list."""
    if isinstance(value, Mapping):
        parts, found = [(f"{path}.{key}".lstrip("."), part) for key, part in value.items()], dict[str, Values]()
    elif isinstance(value, list | tuple):
        parts, found = [(path, part) for part in value], {path: ()}
    else:
        return {path: (value,)}
    for name, part in parts:
        for key, values in facts_of(part, name).items():
            found[key] = (*found.get(key, ()), *values)
    return found
