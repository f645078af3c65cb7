"""The catalog of one store in a bucket: its pointers and versions in one small object, which is replaced only if it is as it was read.

Every change carries a token, and the object remembers those of the last changes. So a writer whose answer was lost sees that its change was made,
also when others have changed the object since; making it twice would take their change back.

A version that is to be deleted is condemned here first. One that is pointed to cannot be condemned, one that is condemned can never be pointed to.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from prep_assets.disk.strict_json import loads
from prep_assets.errors import StoreError
from prep_assets.stores.bucket import Bucket, Unanswered
from prep_assets.stores.pointers import Pointers

T = TypeVar("T")
KEY = "catalog.json"
REMEMBERED = 64
"""Changes whose tokens are kept."""
ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class Catalog:
    """What is known of the versions of a store.

    Attributes:
        generation: counts changes.
        pointers: see `prep_assets.stores.pointers`.
        versions: every version that was pointed to, and is not condemned, sorted.
        condemned: versions that are deleted or about to be, and on which day that was decided. Their names are not used
            again for long.
        done: tokens of the last changes, the latest last.
    """

    generation: int = 0
    pointers: Pointers = field(default_factory=Pointers)
    versions: tuple[str, ...] = ()
    condemned: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()

    def pointed(self, moved: Mapping[str, str]) -> Catalog:
        """The catalog with some pointers moved.

        Raises:
            StoreError: to a version that is condemned.
        """
        pointers = replace(self.pointers, **moved)
        used = pointers.used
        if gone := sorted(used & self.condemned.keys()):
            raise StoreError(f"{gone[0]} was pruned meanwhile")
        return replace(self, pointers=pointers, versions=tuple(sorted({*self.versions, *used})))

    def condemn(self, version: str, day: str, oldest: str) -> Catalog:
        """The catalog without a version. One that is pointed to stays. What was condemned before the oldest day is forgotten."""
        if version in self.pointers.used or version in self.condemned:
            return self
        kept = {name: when for name, when in self.condemned.items() if when >= oldest}
        return replace(self, versions=tuple(name for name in self.versions if name != version), condemned={**kept, version: day})


class Seen(NamedTuple):
    """A catalog as it was read; `tag` is `None` where there is none yet."""

    catalog: Catalog
    tag: str | None


def read(objects: Bucket) -> Seen:
    """The catalog as it is now.

    Raises:
        StoreError: it cannot be read.
    """
    held = objects.get(KEY)
    if held is None:
        return Seen(Catalog(), None)
    try:
        fields: dict[str, Any] = loads(held.data)
        lists = {name: tuple(map(str, fields[name])) for name in ("versions", "done")}
        catalog = Catalog(int(fields["generation"]), Pointers(**fields["pointers"]), condemned=dict(fields["condemned"]), **lists)
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{objects.url}/{KEY} cannot be read ({type(error).__name__}: {error}); it was edited. Put its last version back"
        ) from error
    return Seen(catalog, held.tag)


def write(catalog: Catalog) -> bytes:
    """What the object holds."""
    fields = {
        "generation": catalog.generation,
        "pointers": {name: version for name, version in asdict(catalog.pointers).items() if version or name != "damaged"},
        "versions": catalog.versions,
        "condemned": catalog.condemned,
        "done": catalog.done,
    }
    return json.dumps(fields).encode() + b"\n"


def change(objects: Bucket, step: Callable[[Catalog], Catalog]) -> Catalog:
    """Make one change, exactly once, whatever others do and whatever answers are lost.

    Args:
        step: gives the catalog after the change; it is asked again of each newer catalog, and gives the same one where nothing is to be done.

    Raises:
        Unanswered: the store keeps failing, and whether the change was made is unknown.
    """
    token, first = secrets.token_hex(8), -1

    def look() -> tuple[Catalog, Write | None]:
        nonlocal first
        seen = read(objects)
        now = seen.catalog
        if token in now.done:
            return now, None
        first = now.generation if first < 0 else first
        if now.generation - first > REMEMBERED:
            raise Unanswered(f"{objects.url}/{KEY}: more than {REMEMBERED} changes by others since this one began. Build again")
        changed = step(now)
        if changed == now:
            return now, None
        changed = replace(changed, generation=now.generation + 1, done=(*now.done, token)[-REMEMBERED:])
        return changed, lambda: put(objects, write(changed), seen.tag)

    return written(objects, KEY, look)


Write = Callable[[], bool]
"""Writes an object on a condition; false where that does not hold."""


def written(objects: Bucket, key: str, look: Callable[[], tuple[T, Write | None]]) -> T:
    """Write an object on the condition that nobody else has, in as many attempts as that takes.

    Args:
        look: gives what is returned once the object is as it should be, and what makes it so; `None`: it is.

    Raises:
        Unanswered: the store keeps failing, and whether the object was written is unknown.
    """
    fault: Unanswered | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            objects.pause(attempt)
        result, write = look()
        if write is None:
            return result
        try:
            if write():
                return result
            fault = None
        except Unanswered as error:
            fault = error
    raise fault or Unanswered(f"{objects.url}/{key}: others changed it {ATTEMPTS} times in a row. Build again")


def put(objects: Bucket, data: bytes, tag: str | None) -> bool:
    """Replace the catalog if it is as it was read."""
    return objects.put_new(KEY, data) if tag is None else objects.put_if(KEY, data, tag)
