"""All versions of a store that are there: those that are pointed to, and those that nothing points to any more."""

from __future__ import annotations

from contextlib import suppress

from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.stores.published import Place, Published


def versions(place: Place) -> list[Published]:
    """Every version that can be read, the one that was written last first."""
    shelf, found = place.shelf, list[Published]()
    damaged = shelf.pointers().damaged
    for version in shelf.names():
        if version != damaged:
            with suppress(StoreError):  # a damaged one is not worth a look
                found.append(shelf.published(version))
    return sorted(found, key=lambda each: (-shelf.written(each.version), each.version))


def version_named(place: Place, name: str) -> Published:
    """The version of this name: ``draft``, ``candidate``, or the beginning of a folder's name or of a build key.

    Raises:
        ConfigError: none, or several; the message has them all.
    """
    pointed = {"draft": place.draft, "candidate": place.candidate, "current": place.current}.get(name)
    if pointed is not None:
        if (found := pointed()) is None:
            raise ConfigError(f"{place.label} has no {name}")
        return found
    every = versions(place)
    chosen = [each for each in every if each.version.startswith(name) or each.manifest.build_key.startswith(name)]
    if len(chosen) == 1:
        return chosen[0]
    known = [each.version for each in every]
    problem = f"several versions that begin with {name!r}." if chosen else f"no version {name!r}{nearest(name, known) or '.'}"
    raise ConfigError(f"{place.label} has {problem} There are: {', '.join(known) or 'none'}")


def version_with(place: Place, content: str | None) -> Published | None:
    """The version with this content hash, where it is still there."""
    return next((each for each in versions(place) if each.manifest.content_hash == content), None)
