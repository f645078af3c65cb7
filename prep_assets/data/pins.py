"""Pins: the content of source files, and of folders of images, at the time of a build."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import Struct

from prep_assets.data.addresses import file_name, is_remote
from prep_assets.data.files import SourceFile, fingerprint, stored_sums
from prep_assets.errors import SourceError
from prep_assets.stores.files import loads

_MOST_SHOWN = 5


class Pin(Struct, frozen=True):
    """The content of one source file.

    Attributes:
        name: stable name of the file.
        size: size in bytes, as stored.
        sha256: hash of the stored bytes, in hex.
        blocks: hashes of its blocks, see `prep_assets.stores.verification`.
        fingerprint: cheap sign of a change, valid on this machine only (see `fingerprint`); not in a build's identity.
        url_hint: address of a remote file, for people; `None` for a local one. Not in a build's identity.
    """

    name: str
    size: int
    sha256: str
    blocks: str
    fingerprint: str
    url_hint: str | None = None

    @property
    def identity(self) -> dict[str, str | int]:
        """Its part of a build's identity, the same on every machine."""
        return {"name": self.name, "size": self.size, "sha256": self.sha256}


def pin_files(files: Iterable[SourceFile], known: Sequence[Pin] = ()) -> tuple[Pin, ...]:
    """Pin `files`, in their order. A file whose name and fingerprint equal those of a `known` pin is not hashed again.

    Raises:
        SourceError: a file that cannot be read, or that changes while it is hashed.
    """
    by_name, files = {pin.name: pin for pin in known}, list(files)
    # of a local file a look says at once whether it is known
    pins = [None if is_remote(file.url) else _known(file, by_name.get(file.name)) for file in files]
    unknown = [file for file, pin in zip(files, pins, strict=True) if pin is None]
    pool = ThreadPoolExecutor(os.cpu_count())  # hashing and reading release the global lock
    try:
        new = pool.map(lambda file: _pin_by_listing(file, by_name.get(file.name)), unknown)
        return tuple([next(new) if pin is None else pin for pin in pins])
    finally:
        pool.shutdown(cancel_futures=True)


def _known(file: SourceFile, pin: Pin | None) -> Pin | None:
    """The pin of a file that looks untouched; `None` for any other."""
    return pin if pin is not None and (sign := fingerprint(file)) and pin.fingerprint == sign else None


def verify_pins(files: Sequence[SourceFile], pins: Sequence[Pin]) -> None:
    """Check that `files` match `pins`. Only files whose fingerprint differs are hashed.

    Raises:
        SourceError: a file changed, is missing or is new; with the expected and actual size and hash.
    """
    files_by_name, pins_by_name = {file.name: file for file in files}, {pin.name: pin for pin in pins}
    problems = [f"{name}: pinned, but no longer there" for name in pins_by_name if name not in files_by_name]
    problems += [f"{name}: there, but not pinned" for name in files_by_name if name not in pins_by_name]
    for name, pin in pins_by_name.items():
        if name in files_by_name and (actual := _pin(files_by_name[name], pin)).identity != pin.identity:
            problems.append(
                f"{name}: expected {pin.size:,} bytes with sha256 {pin.sha256}, found {actual.size:,} bytes with sha256 {actual.sha256}"
            )
    if problems:
        and_more = f"; and {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
        raise SourceError(
            f"the source files changed since they were pinned: {'; '.join(problems[:_MOST_SHOWN])}{and_more}. Pin them again, or restore the old files"
        )


def _pin_by_listing(file: SourceFile, known: Pin | None) -> Pin:
    """The pin of a file that was just listed. If its listed fingerprint is unchanged, the file is not accessed."""
    return known if known is not None and file.listed and known.fingerprint == file.listed else _pin(file, known)


def _pin(file: SourceFile, known: Pin | None) -> Pin:
    if found := _known(file, known):
        return found
    sign, sums = fingerprint(file), stored_sums(file)
    if fingerprint(file) != sign:
        raise SourceError(
            f"{file.name}: the file changes while it is read ({file_name(file.url)}). Wait until it is written, then build again"
        )
    # The query of an address may hold a signature, which must stay private.
    return Pin(file.name, *sums, sign, file_name(file.url) if is_remote(file.url) else None)


# Folders pinned as a whole: one hash over the names, sizes and contents of all files below.
#
# This is for folders of images, which may hold millions of files. So no list of them is kept in memory: the folder is walked in a fixed order, in step with
# a cache file in the same order. A file that looks unchanged is not hashed again.


@dataclass(frozen=True, slots=True)
class FolderPin:
    """The content of a folder.

    Attributes:
        files, bytes: number and total size of the files below it.
        sha256: hash over the relative path, size and content hash of each file.
    """

    files: int
    bytes: int
    sha256: str

    @property
    def identity(self) -> dict[str, str | int]:
        """Its part of a build's identity, the same on every machine."""
        return asdict(self)


def folder_sign(folder: Path) -> str:
    """A cheap sign that changes if anything below `folder` does: a hash of names, sizes and modification times. It differs between machines.

    Raises:
        SourceError: it cannot be read, or is empty.
    """
    digest, files = hashlib.sha256(), 0
    with _os_errors_as_source_errors(folder):
        for name, status in _walk_files(folder, "", ()):
            digest.update(json.dumps([name, status.st_size, status.st_mtime_ns]).encode() + b"\n")
            files += 1
    _require_files(folder, files)
    return digest.hexdigest()


def pin_folder(folder: Path, cache: Path) -> FolderPin:
    """Pin everything below `folder`; links are followed.

    Args:
        cache: file in which hashes are kept between calls; deleting it only costs time.

    Raises:
        SourceError: no such folder, an empty one, a file that cannot be read, or one that changes while it is hashed.
    """
    if not folder.is_dir():
        raise SourceError(f"no folder of images at {folder}. Make it, or set image_dir to another one")
    temporary, digest = cache.with_name(f".{os.getpid()}-{threading.get_ident()}-{cache.name}"), hashlib.sha256()
    files = total = 0
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        kept = temporary
    except OSError:  # a folder of stores that can only be read: images are hashed again the next time
        kept = Path(os.devnull)
    try:
        with _os_errors_as_source_errors(folder), kept.open("w", encoding="utf-8") as out:
            cached = _read_cache(cache)
            cached_entry = next(cached, None)
            for name, status in _walk_files(folder, "", ()):
                sign = f"{status.st_size}:{status.st_mtime_ns}"
                while cached_entry is not None and cached_entry[0].split("/") < name.split("/"):
                    cached_entry = next(cached, None)
                is_unchanged = cached_entry is not None and cached_entry[:2] == (name, sign)
                sha256 = cached_entry[2] if cached_entry is not None and is_unchanged else _hash(folder / name, sign)
                out.write(json.dumps([name, sign, sha256]) + "\n")
                digest.update(json.dumps([name, status.st_size, sha256]).encode() + b"\n")
                files, total = files + 1, total + status.st_size
        with suppress(OSError):
            temporary.replace(cache)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    _require_files(folder, files)
    return FolderPin(files, total, digest.hexdigest())


@contextmanager
def _os_errors_as_source_errors(folder: Path) -> Iterator[None]:
    """Raises:
    SourceError: something below the folder cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"cannot read the folder of images {folder}: {error}. Make it readable, or set image_dir to another one"
        ) from error


def _require_files(folder: Path, files: int) -> None:
    """Raises:
    SourceError: an empty folder, such as the mount point of a missing drive. Its images are not considered removed.
    """
    if not files:
        raise SourceError(
            f"the folder of images {folder} is empty. Mount its drive or bring the images back; or set image_dir to another one"
        )


def _walk_files(folder: Path, prefix: str, ancestors: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Relative path and status of all files below `folder`, ordered by the parts of their paths. `ancestors` are the inodes on the way, to end cycles."""
    status = folder.stat()
    inode = status.st_dev, status.st_ino
    if inode in ancestors:
        return
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk_files(Path(entry.path), f"{name}/", (*ancestors, inode))
        elif entry.is_file():
            yield name, entry.stat()


def _hash(path: Path, sign: str) -> str:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    status = path.stat()
    if f"{status.st_size}:{status.st_mtime_ns}" != sign:
        raise SourceError(f"{path} changes while it is read. Wait until it is written, then build again")
    return sha256


def _read_cache(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, sign and hash of the files of the last walk, in its order."""
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                name, sign, sha256 = loads(line)
                yield name, sign, sha256
    except (FileNotFoundError, ValueError, TypeError):
        return
