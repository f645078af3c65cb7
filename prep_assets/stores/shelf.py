"""What publication needs of the place where stores are kept: one small interface, for folders on disk and for buckets.

A version is put there whole or not at all, and is never written again. The pointers are replaced together, and only if they are as they were
read. Nothing else needs to be promised: no rename, no lock, no list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prep_assets.stores.checked import Result
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version import Published


@dataclass(frozen=True, slots=True)
class Pointers:
    """The versions that have a name of their own; empty where there is none. Of `damaged` and `current` one at most leads somewhere."""

    current: str = ""
    candidate: str = ""
    draft: str = ""
    damaged: str = ""

    @property
    def used(self) -> set[str]:
        """The versions that they lead to."""
        return {self.current, self.candidate, self.draft, self.damaged} - {""}


Move = Callable[[Pointers], Mapping[str, str]]
"""Which pointers lead where from now on; those left out stay. It may be called several times, and raises to leave all as they are."""


class Shelf(Protocol):
    """The versions of one store, by name, and the pointers to them."""

    @property
    def where(self) -> str:
        """How messages call the place."""
        ...

    @property
    def versions(self) -> Path:
        """The folder in which versions are written, and from which they are read."""
        ...

    def building(self) -> AbstractContextManager[list[str]]:
        """While one version is built: what is in `versions` is this process's alone. Gives notes on what an earlier process left there."""
        ...

    def pointers(self) -> Pointers:
        """As they are now."""
        ...

    def change(self, move: Move) -> None:
        """Move pointers; the move is durable when this returns. Changes of others are not lost. On disk, `building` is entered."""
        ...

    def published(self, version: str) -> Published:
        """A version.

        Raises:
            StoreError: it is not there, or its manifest is damaged.
        """
        ...

    def add(self, work: Path, manifest: Manifest) -> str:
        """Make a version of a folder that holds a proven ``payload`` and maybe a ``quarantine.jsonl``; its name is returned.

        A sound version of the same content stays, and `work` is dropped; not one that `damaged` leads to.
        """
        ...

    def relabel(self, version: str, manifest: Manifest) -> None:
        """Replace the manifest of a sound version in one step; the payload stays as it is."""
        ...

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        """Write down what the checks of a version say."""
        ...

    def names(self) -> list[str]:
        """Every version, sorted."""
        ...

    def written(self, version: str) -> int:
        """When the manifest of a version was written, in nanoseconds."""
        ...

    def leftovers(self) -> list[str]:
        """What killed builds left half-written, sorted. A build that is under way looks the same."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a version, or of what was left."""
        ...

    def remove(self, version: str) -> bool:
        """Delete a version that nothing points to; false where it has readers."""
        ...

    def remove_all(self) -> None:
        """Delete all versions and pointers, unless one of them has readers."""
        ...
