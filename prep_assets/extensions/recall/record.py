"""The record of recalls: one small store beside the others, so that a recall is made as a whole or not at all.

    <root>/.recalls/current -> versions/…/recalls.json     every recall that was ever made, lifted ones too

The record alone decides: `why` is asked before a version is read, built or published. Then `settled` moves pointers, so that paths below ``current``, which
trainers open, lead nowhere either. A process that is killed before leaves nothing half recalled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.extensions.recall.rules import Recall
from prep_assets.stores.manifest import Manifest, Result, digest, label_of
from prep_assets.stores.published import Draft, Place, Published, versions
from prep_assets.stores.remote import remote_of
from prep_assets.stores.verification import write_text
from prep_assets.stores.version_folders import CONTENT_LENGTH, RECALLED, RECORD, Pointers

FILE = "recalls.json"
SECONDS = 2.0
"""For which the record of stores in a bucket is not asked for again."""


_READ: dict[Path, tuple[float, str, tuple[Recall, ...]]] = {}
"""Root → when its record was looked at, its version, and what that says."""


def recalls(root: Path) -> tuple[Recall, ...]:
    """Every recall below a root, lifted ones too; an error where the record is damaged."""
    known, is_here = _READ.get(root, (0.0, "", ())), remote_of(root) is None
    if is_here and not (root / RECORD).is_dir():
        return ()
    if is_here or time.monotonic() > known[0] + SECONDS:
        version = Place(root, RECORD).pointers.current
        known = _READ[root] = (time.monotonic(), version, known[2] if version == known[1] else _read(Place(root, RECORD)))
    return known[2]


def _read(place: Place) -> tuple[Recall, ...]:
    try:
        if (published := place.current()) is None:
            return ()
        published.verify()
        return msgspec.json.decode((published.directory / FILE).read_bytes(), type=tuple[Recall, ...])
    except (StoreError, OSError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"the record of recalls cannot be read: {error}. Put back {place.backend.where}: it decides what may be read"
        ) from error


def change(root: Path, edit: Callable[[tuple[Recall, ...]], tuple[Recall, ...]]) -> tuple[Recall, ...]:
    """Change the record in one step; `edit` is called again if somebody else changed it meanwhile. Returns what it says then."""
    place, won = Place(root, RECORD), list[str]()
    while not won:
        _READ.pop(root, None)
        base = place.pointers.current
        after = edit(_read(place))
        recipe = {"stage": RECORD, "before": base, "recalls": msgspec.to_builtins(after)}

        def write(payload: Path, _: Path, text: bytes = msgspec.json.format(msgspec.json.encode(after), indent=1)) -> Draft:
            write_text(payload / FILE, text.decode() + "\n")
            return Draft({}, {})

        version = place.propose(key := digest(recipe), write, config_key=key, recipe=recipe).version

        def move(pointers: Pointers, base: str = base, version: str = version) -> Mapping[str, str]:
            won[:] = [version] if pointers.current in (base, version) else []
            return {"current": version, "candidate": ""} if won else {}

        with place.backend.building():
            place.backend.change(move)
        _READ.pop(root, None)
    return after


def why(place: Place, manifest: Manifest, *, publishing: bool = False) -> str:
    """Why a version may be neither read nor published, by its manifest and the record; empty if nothing is said against it.

    Args:
        publishing: whether it is about to be written or published: then a mark without its recall is an error as well.

    Raises:
        StoreError: the record is damaged or lost.
    """
    every = () if place.asset == RECORD else recalls(place.root)
    if publishing and (lost := _lost(place, every)):
        raise StoreError(f"nothing is built or published here: {lost}")
    if not (active := [recall for recall in every if not recall.lifted]):
        return ""
    # it loads all assets, and most workspaces have no recall
    from prep_assets.extensions.keep.versions import version_of
    from prep_assets.extensions.recall.closure import Rules, reason

    def well(key: tuple[str, str], content: str) -> bool:
        above = Place(place.root, *key)
        for name in above.backend.names():
            with suppress(StoreError):  # a version that cannot be read proves nothing
                if name.split("-")[1] == content[:CONTENT_LENGTH] and not why(above, above.backend.published(name).manifest):
                    return True
        return False

    found = reason(version_of(manifest), active, Rules(), well)
    return f"{every[found[0] - 1].label} ({found[1]})" if found else ""


def proofs(place: Place) -> dict[str, str]:
    """Unused versions that alone show that recalled bytes are sound → the recall that spares what was made from them for that."""
    entries = [(entry, recall.label) for recall in recalls(place.root) if not recall.lifted for entry in recall.found]
    labels = {entry.content: label for entry, label in entries if (entry.asset, entry.partition) == (place.asset, place.partition)}
    stores = [store for store in versions(place) if store.manifest.content_hash in labels] if labels else []
    sound, used = [store for store in stores if not why(place, store.manifest)], place.pointers.used
    shown = {store.manifest.content_hash for store in sound if store.version in used}
    return {store.version: labels[content] for store in sound if (content := store.manifest.content_hash) not in shown}


def _mark(place: Place, version: str) -> str:
    """The recall that a version was set aside for, as its results say; empty if none."""
    with suppress(StoreError):
        if version and (result := (place.backend.published(version).results or {}).get(RECALLED)):
            return result.summary
    return ""


def _set_mark(place: Place, published: Published, said: str) -> None:
    results = {name: result for name, result in (published.results or {}).items() if name != RECALLED}
    with place.backend.building():
        place.backend.record(
            published.version, published.manifest.content_hash, {**results, **({RECALLED: Result(False, said)} if said else {})}
        )


def _lost(place: Place, every: Sequence[Recall]) -> str:
    """What is wrong where a version, of now or before, is marked for a recall whose rule the record does not have."""
    for mark in filter(None, (_mark(place, name) for name in place.backend.names())):
        said = mark.partition(", ")[2]
        if not any(said.startswith((f"{recall.rule}: ", f"{recall.rule} (")) for recall in every):
            where = Place(place.root, RECORD).backend.where
            return (
                f"{mark}, which set a version aside, is not in {where}: the record was lost or replaced. Put it back, or recall by this rule "
                "again"
            )
    return ""


def settled(root: Path, places: Sequence[Place], *, write: bool) -> Iterator[tuple[str, str, bool]]:
    """Let the record reach what is made from recalled bytes by now, and pointers and marks follow it, or say what would be done: (label, what, whether it
    is wrong)."""
    before = recalls(root)
    if (reached := _reached(root, before)) != before:
        if write:
            change(root, lambda now: _reached(root, now))
        for old, new in zip(before, reached, strict=True):
            for entry in new.found[len(old.found) :]:
                yield label_of(entry.asset, entry.partition), f"recall {new.number} reaches {entry.version} by now: {entry.why}", not write
    for place in places:
        try:
            what, lost = _settled(place, write=write), _lost(place, recalls(root))
            if what:
                yield place.label, what, not write or what == lost
            if write and not lost:
                for published in versions(place):  # so that old ones say so, too, where the record is lost
                    if (said := why(place, published.manifest)) != _mark(place, published.version):
                        _set_mark(place, published, said)
        except PrepAssetsError as error:
            yield place.label, str(error), True
    for number, entry in [(recall.number, entry) for recall in recalls(root) if not recall.lifted for entry in recall.found]:
        backend = Place(root, entry.asset, entry.partition).backend
        with suppress(StoreError):
            if entry.version not in backend.names() or backend.published(entry.version).manifest.signed_digest == entry.seal:
                continue
        what = f"{entry.version} is not what recall {number} found: its manifest was edited or replaced. Build the store again"
        yield label_of(entry.asset, entry.partition), what, True


def _reached(root: Path, every: tuple[Recall, ...]) -> tuple[Recall, ...]:
    """Recalls with what they concern by now as well: what was spared for equal bytes that are gone, what was put back, and all that was made from it."""
    if not (active := [recall for recall in every if not recall.lifted]):
        return every
    from prep_assets.extensions.keep.versions import read_versions
    from prep_assets.extensions.recall.closure import Closure

    here, reached = read_versions(root), list(every)
    for recall in active:
        found = Closure(here, (), recall, active).new.found
        known = {(entry.asset, entry.partition, entry.version) for entry in recall.found}
        more = [entry for entry in found if (entry.asset, entry.partition, entry.version) not in known]
        reached[recall.number - 1] = structs.replace(recall, found=(*recall.found, *more))
    return tuple(reached)


def _settled(place: Place, *, write: bool) -> str:
    backend, pointers = place.backend, place.pointers
    if not (version := pointers.current or pointers.damaged):
        return ""
    published, mark = backend.published(version), _mark(place, version)
    failed = [name for name, result in (published.results or {}).items() if name != RECALLED and not result.passed]
    said = why(place, published.manifest)
    if lost := _lost(place, recalls(place.root)):
        return lost
    if said and (pointers.current or mark not in ("", said)):
        if write and not (pointers.current and place.set_aside(published, {RECALLED: Result(False, said)})):
            _set_mark(place, published, said)
        return f"set aside: {said}"
    if said or not mark:
        return ""
    if write:
        published.verify()
        with backend.building():
            if not failed:
                backend.change(lambda now: {"current": version, "damaged": ""} if now.damaged == version else {})
        _set_mark(place, published, "")
    return f"not recalled any more, but fails {', '.join(failed)}" if failed else "current again"
