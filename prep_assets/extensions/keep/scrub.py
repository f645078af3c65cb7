"""The scrubber: what rests on disks and in buckets is read again, in rotation, so much at a time, and compared with the hashes of when it was
written or pinned.

A store with a changed block is set aside: nothing reads it any more, and it is built again; those made from it are checked again. A source
cannot be built again: it is named with what to do. Remote sources are read where that is asked for: it is others who pay for them.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.family import Domain
from prep_assets.config.models import FAMILIES
from prep_assets.data.addresses import error_text, file_name, is_remote, unreadable
from prep_assets.data.files import SourceFile, open_stored
from prep_assets.errors import PrepAssetsError, SourceError, SourceUnavailable, StoreError
from prep_assets.graph.graph import family_assets, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.sources import read_hashes, read_sources
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.manifest import Result
from prep_assets.stores.published import Place
from prep_assets.stores.remote import Unanswered
from prep_assets.stores.verification import BLOCK, forget, hashes, replace_text
from prep_assets.stores.version_folders import Published

STATE = ".scrub.json"
"""File in the store folder with the position of the rotation."""
BYTES = 1 << 30
"""Bytes read at a time by default."""
_DAMAGE = (errno.EIO, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, getattr(errno, "EUCLEAN", errno.EIO))
"""What a system answers where a file is lost."""


class Damage(Struct, frozen=True):
    """Something that is not as it was written or pinned.

    Attributes:
        asset, partition: the store, or the raw store that pinned a source.
        what: the file, the bytes, and what to do.
        built: labels of the stores that are made from it.
        source: whether it is a source file, which no build repairs.
    """

    asset: str
    partition: str
    what: str
    built: tuple[str, ...] = ()
    source: bool = False


class Scrubbed(Struct, frozen=True):
    """What was looked at.

    Attributes:
        read: bytes.
        total: bytes of everything that there is to look at.
        damaged: what was found.
        unreached: what could not be looked at, because a server did not answer, or the system did not let this process read.
    """

    read: int
    total: int
    damaged: tuple[Damage, ...]
    unreached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    """A file that rests somewhere.

    Attributes:
        key: its place in the rotation.
        where: how messages call it; the path of one on this machine.
        read: its bytes from a block on; `None` for one on this machine.
        store: the one that it is a file of; `None` for a source.
        source: how a source on this machine is touched.
    """

    key: str
    where: str
    size: int
    blocks: str
    asset: Asset
    partition: str
    read: Callable[[int], Iterator[bytes]] | None = None
    store: Published | None = None
    source: str = ""


def scrub(workspace: Workspace, budget: int = BYTES, seconds: float = float("inf"), *, remote: bool = False) -> Scrubbed:
    """Read on where the last scrub stopped, for so many bytes and seconds, and never more than everything once.

    Args:
        remote: read remote sources too.
    """
    files = sorted(_files(workspace, remote), key=lambda file: file.key)
    state = _state(workspace)
    first = bisect_left([file.key for file in files], state.get("file", ""))
    read, ends, damaged, unreached = 0, time.monotonic() + seconds, list[Damage](), list[str]()
    key, at, total = "", 0, sum(file.size for file in files)
    for file in [*files[first:], *files[:first]]:
        key, at = file.key, int(state.get("at", 0)) if file.key == state.get("file") and not read else 0
        if read >= budget or time.monotonic() > ends:
            break
        if workspace.progress:
            workspace.progress("scrub", read, min(budget, total))
        try:
            done, fault = _compare(file, at, budget - read, ends)
        except (SourceUnavailable, Unanswered) as error:
            unreached.append(str(error))
            key, at = f"{file.key}\0", 0
            continue
        read, at = read + done - at, done
        if fault:
            damaged += _damage(workspace, file, fault)
        elif done < file.size:
            break
        key, at = f"{file.key}\0", 0
    workspace.stores.mkdir(parents=True, exist_ok=True)
    replace_text(workspace.stores / STATE, json.dumps({"file": key, "at": at}) + "\n")
    return Scrubbed(read, total, tuple(damaged), tuple(unreached))


def _state(workspace: Workspace) -> Mapping[str, str]:
    try:
        state = json.loads((workspace.stores / STATE).read_text("utf-8"))
        return state if isinstance(state, dict) and isinstance(state.get("at"), int) else {}
    except (OSError, ValueError):
        return {}


def _files(workspace: Workspace, remote: bool) -> Iterator[_File]:
    """Every file of a current store, and every source file that looks as it did when it was pinned."""
    for family, kind in FAMILIES.items():
        if not workspace.has(family):
            continue
        domains = workspace.family(kind).domains
        for asset in family_assets(workspace, family).values():
            for partition in asset.partitions(workspace):
                published = _published(workspace.place(asset.name, partition))
                if published is None:
                    continue
                label = f"{asset.name}/{partition}/{published.version}"
                # what is kept elsewhere is read there, and not what was fetched of it
                read = None if published.keeper is None else partial(published.keeper.blocks, published.version)
                for name, entry in published.manifest.files.items():
                    size, blocks, kept = entry["bytes"], entry["blocks"], read and partial(read, name)
                    yield _File(f"{label}/{name}", f"{published.where}/{name}", size, blocks, asset, partition, kept, published)
                if asset.name.endswith("_raw"):
                    yield from _sources(workspace, published, asset, partition, domains[partition], remote)


def _published(place: Place) -> Published | None:
    try:
        published = place.current()
    except PrepAssetsError:  # a manifest that cannot be read shows when the store is opened
        return None
    return None if published is None or published.manifest.format < 2 else published


def _sources(workspace: Workspace, raw: Published, asset: Asset, partition: str, domain: Domain, remote: bool) -> Iterator[_File]:
    try:
        listed, blocks = read_sources(raw), read_hashes(raw)
    except StoreError:  # it is among the files of stores
        return
    for role, files in (("files", workspace.files(domain)), ("test_files", workspace.test_files(domain))):
        pinned = {entry["name"]: entry for entry in listed[role]}
        pins = {pin.name: pin.identity for pin in workspace.pins(files)}
        for file in files:
            entry = pinned.get(file.name)
            remote_file = is_remote(file.url)
            if entry and remote >= remote_file and pins[file.name]["sha256"] == entry["sha256"]:
                key, touch = f"{asset.name}/{partition}/sources/{file.name}", "" if remote_file else f"touch {shlex.quote(file.url)} && "
                size, sums, read = entry["size"], blocks[role][file.name], partial(_stored, file) if remote_file else None
                yield _File(key, file_name(file.url), size, sums, asset, partition, read, source=touch)


def _stored(file: SourceFile, start: int) -> Iterator[bytes]:
    with open_stored(replace(file, blocks="")) as stream:
        if start and stream.seekable():
            stream.seek(start)
        else:
            stream.read(start)
        try:
            while block := stream.read(BLOCK):
                yield block
        except Exception as error:  # each remote file system raises its own kinds
            raise unreadable(error, f"{file.name}: reading {file_name(file.url)} failed ({error_text(error, file.url)})") from error


def _compare(file: _File, begin: int, most: int, ends: float) -> tuple[int, str]:
    """How far a file was read from a block on, and what is wrong where it stopped.

    Raises:
        SourceUnavailable, Unanswered: its server does not answer, or this process may not read it, which says nothing of the file.
    """
    at = begin
    try:
        with closing(_on_disk(file, begin) if file.read is None else _in_blocks(file.read(begin))) as blocks:
            for known in hashes(file.blocks)[begin // BLOCK :]:
                if at - begin >= most or time.monotonic() > ends:
                    return at, ""
                block = next(blocks, b"")
                if xxh3_64_intdigest(block) != known:
                    return at, f"bytes {at:,} to {at + len(block):,} of {file.where} are not what they were"
                at += len(block)
            if next(blocks, b""):
                return at, f"{file.where} has more than {file.size:,} bytes, which it had"
    except OSError as error:
        why = f"{file.where} cannot be read: {error.strerror or error}"
        if error.errno not in _DAMAGE and not isinstance(error, FileNotFoundError):
            raise SourceUnavailable(why) from error
        return at, why
    except SourceUnavailable:
        raise
    except SourceError as error:
        return at, str(error)
    return at, ""


def _on_disk(file: _File, begin: int) -> Generator[bytes]:
    with Path(file.where).open("rb", buffering=0) as opened:
        forget(opened.fileno())  # what is in memory says nothing of the disk
        if (size := os.fstat(opened.fileno()).st_size) != file.size:
            raise SourceError(f"{file.where} has {size:,} bytes, it had {file.size:,}")
        while block := os.pread(opened.fileno(), BLOCK, begin):
            yield block
            begin += len(block)


def _in_blocks(parts: Iterator[bytes]) -> Generator[bytes]:
    """The same bytes in blocks of `BLOCK`, the last of what is left."""
    held = bytearray()
    for part in parts:
        held += part
        while len(held) >= BLOCK:
            yield bytes(held[:BLOCK])
            del held[:BLOCK]
    if held:
        yield bytes(held)


def _damage(workspace: Workspace, file: _File, wrong: str) -> Iterator[Damage]:
    """Set a store aside, so that nothing reads it, and have those made from it checked again. One that was replaced meanwhile may be gone."""
    built = tuple(_made_from(workspace, file.asset, file.partition))
    remedy = build_command(file.asset.name, file.partition)
    if file.store is None:
        remedy_text = "pin it again" if file.source else "write it there again, so that its time or ETag is another, and pin it again"
        message = f"{wrong}, though it looks untouched: restore it; or, where the change is meant, {remedy_text}:\n  {file.source}{remedy}"
    else:
        results = {INTEGRITY.name: Result(False, f"scrub: {wrong}")}
        if not workspace.place(file.asset.name, file.partition).set_aside(file.store, results):
            return
        message = f"{wrong}. Build it again:\n  {remedy}"
    for place in built:
        if (current := _published(place)) is not None and current.results is not None:
            place.record(current, {INTEGRITY.name: Result(False, f"scrub: {file.key} was damaged, which it is made from: check it again")})
    yield Damage(file.asset.name, file.partition, message, tuple(place.label for place in built), file.store is None)


def _made_from(workspace: Workspace, asset: Asset, partition: str) -> Iterator[Place]:
    """The stores that are made from one, directly or not, in the order of the graph."""
    reached = {(asset.name, partition)}
    for derived in family_assets(workspace, asset.family).values():
        for derived_partition in derived.partitions(workspace):
            if any(
                (above.name, above_partition) in reached for above, above_partition in upstream_of(workspace, derived, derived_partition)
            ):
                reached.add((derived.name, derived_partition))
                yield workspace.place(derived.name, derived_partition)
