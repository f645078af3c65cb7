"""Pins: what the source files of a domain held when a build read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prep_assets.errors import SourceError
from prep_assets.records.files import SourceFile, fingerprint, stored_sums
from prep_assets.records.remote import file_name, is_remote

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Pin:
    """The content of one source file.

    Attributes:
        name: stable name of the file.
        size: size in bytes, as stored.
        sha256: hash of the stored bytes, in hex.
        blocks: hashes of its blocks, see `prep_assets.disk.blocks`.
        fingerprint: cheap sign of a change, valid on this machine only (see `fingerprint`); no part of a build's identity.
        url_hint: where a remote file came from, for people; `None` for a local one. No part of a build's identity.
    """

    name: str
    size: int
    sha256: str
    blocks: str
    fingerprint: str
    url_hint: str | None = None

    @property
    def identity(self) -> dict[str, str | int]:
        """What goes into a build's identity: the same on every machine."""
        return {"name": self.name, "size": self.size, "sha256": self.sha256}


def pin_files(files: Iterable[SourceFile], known: Sequence[Pin] = ()) -> tuple[Pin, ...]:
    """Pin `files`, in their order. A file whose name and fingerprint equal those of a `known` pin is not hashed again.

    Raises:
        SourceError: a file that cannot be read, or that changes while it is hashed.
    """
    by_name, files = {pin.name: pin for pin in known}, list(files)
    if len(files) < 2:
        return tuple(_listed(file, by_name.get(file.name)) for file in files)
    pool = ThreadPoolExecutor(os.cpu_count())  # hashing and reading release the global lock
    try:
        return tuple(pool.map(lambda file: _listed(file, by_name.get(file.name)), files))
    finally:
        pool.shutdown(cancel_futures=True)


def verify_pins(files: Sequence[SourceFile], pins: Sequence[Pin]) -> None:
    """Check that `files` hold what `pins` say. Only files whose fingerprint differs are hashed.

    Raises:
        SourceError: a file that changed, is missing or is new; with the size and hash expected and found.
    """
    found, expected = {file.name: file for file in files}, {pin.name: pin for pin in pins}
    wrong = [f"{name}: pinned, but no longer there" for name in expected if name not in found]
    wrong += [f"{name}: there, but not pinned" for name in found if name not in expected]
    for name, pin in expected.items():
        if name in found and (now := _pin(found[name], pin)).identity != pin.identity:
            wrong.append(f"{name}: expected {pin.size:,} bytes with sha256 {pin.sha256}, found {now.size:,} bytes with sha256 {now.sha256}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise SourceError(
            f"the source files changed since they were pinned: {'; '.join(wrong[:_SHOWN])}{more}. Pin them again, or restore the old files"
        )


def _listed(file: SourceFile, known: Pin | None) -> Pin:
    """The pin of a file that was just listed: where the list says that it is what it was, nothing is asked of it."""
    return known if known is not None and file.listed and known.fingerprint == file.listed else _pin(file, known)


def _pin(file: SourceFile, known: Pin | None) -> Pin:
    before = fingerprint(file)
    if known is not None and before and known.fingerprint == before:
        return known
    found = stored_sums(file)
    if fingerprint(file) != before:
        raise SourceError(
            f"{file.name}: the file changes while it is read ({file_name(file.url)}). Wait until it is written, then build again"
        )
    # The query of an address may hold a signature, which must stay private.
    return Pin(file.name, *found, before, file_name(file.url) if is_remote(file.url) else None)
