"""The source files of a domain: which they are, their stable names, and what they hold."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from prep_assets.disk.blocks import BLOCK, Sums, hashes, proven, sums_of_stream
from prep_assets.errors import SourceError
from prep_assets.records.find import SUFFIXES, Found, check_format, find, format_of, order, stable_names
from prep_assets.records.hub import find_on_hub, is_hub
from prep_assets.records.remote import Listed, error_text, file_name, is_remote, open_remote, remote_sign, remote_size, unreadable


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a domain.

    Attributes:
        name: path relative to the common parent folder of all files of the domain, with `/`; the same on every machine.
        url: absolute local path, or an fsspec URL.
        size: size in bytes, as stored.
        format: `jsonl`, `json`, `csv`, `tsv`, `parquet`, `arrow` or `txt`.
        compression: `gzip`, `zstd`, `bz2`, `xz`, or `None`.
        blocks: hashes of what is stored (see `prep_assets.disk.blocks`), once it is pinned: what is read is compared with them.
        remedy: the command that pins it again.
        listed: its `fingerprint`, as the list in which it was found had it; empty where that says none.
        sound: its raw asset looked at every row of it, pinned as `blocks` say, and refused none.
    """

    name: str
    url: str
    size: int
    format: str
    compression: str | None
    blocks: str = field(default="", repr=False)
    remedy: str = field(default="", repr=False)
    listed: str = field(default="", repr=False, compare=False)
    sound: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a file.

    Attributes:
        start: where it begins, a decompressed byte of a file of lines, a row of a table.
        stop: where it ends; `None`: at the end of the file.
        row: number of its first row.
    """

    start: int = 0
    stop: int | None = None
    row: int = 0


WHOLE = Part()


def record_id(file: SourceFile, row: int) -> str:
    """The id of a record within its domain, the same on every machine: `<file name>:<zero-based row>`."""
    return f"{file.name}:{row}"


def find_files(patterns: Sequence[str], base: Path, *, format: str | None = None, fetch: bool = True) -> tuple[SourceFile, ...]:
    """The files that `patterns` stand for, sorted by name, each once.

    Args:
        patterns: files, globs, folders (searched recursively for known suffixes), fsspec URLs, addresses on the hub (see `records.hub`).
        base: folder that relative patterns are looked up from.
        format: the format of all files; their suffixes decide where it is `None`. Compression always comes from the suffix.
        fetch: whether a data set of the hub is downloaded; if not, one that is not here yet is one file with its address, to look at only.

    Raises:
        SourceError: a pattern without a file; a file that is empty or of unknown suffix.
        ConfigError: an unknown `format`, or a hub address without a full commit.
    """
    if format is not None:
        check_format(format)
    if isinstance(patterns, str):
        patterns = (patterns,)
    by_url: dict[str, tuple[str, Found]] = {}
    for pattern in patterns:
        for one in find_on_hub(pattern, fetch=fetch) if is_hub(pattern) else find(pattern, base.absolute()):
            if one.url not in by_url or one.group:
                by_url[one.url] = (pattern, one)
    if not by_url:
        raise SourceError("no source files: the list of patterns is empty. Name at least one file, folder or glob")
    names = stable_names(one.place for _, one in by_url.values())
    found = sorted(by_url.values(), key=lambda each: order(each[1], names))
    return tuple(_source_file(pattern, one, names[one.place], format) for pattern, one in found)


def stored_sums(file: SourceFile) -> Sums:
    """Size and hashes of what is stored now, which may differ from `file.size` and `file.blocks`. Streams the file.

    Raises:
        SourceError: the file cannot be opened, or reading it fails on the way.
    """
    with _opened(file) as stream:
        try:
            return sums_of_stream(stream)
        except Exception as error:  # each remote file system raises its own kinds
            raise SourceError(
                f"{file.name}: reading its {file.size:,} bytes failed ({error_text(error, file.url)}). "
                "Try again, or fetch the file and name the local copy"
            ) from error


def fingerprint(file: SourceFile) -> str:
    """A cheap sign of whether `file` may have changed: when it is equal the content is taken to be equal, else it is hashed again.

    Size and time of change (ns) of a local file; size and ETag, checksum or time of a remote one. Empty where a remote source gives none of
    these, which means: hash again. It differs between machines, so that it never goes into a build's identity.
    """
    if is_remote(file.url):
        return remote_sign(file.url)
    status = _stat(file.url)
    return f"{status.st_size}:{status.st_mtime_ns}"


def open_stored(file: SourceFile) -> BinaryIO:
    """The stored bytes of `file`, compressed as they are. Those of a pinned one are compared with its hashes, a block at a time.

    Raises:
        SourceError: the file cannot be opened; while it is read: a block is not what it was.
    """
    known = hashes(file.blocks)
    return proven(_opened(file), file.size, known, partial(_altered, file)) if known else _opened(file)


def _altered(file: SourceFile, block: int) -> SourceError:
    begin, end = block * BLOCK, min((block + 1) * BLOCK, file.size)
    where, touched = file_name(file.url), "" if is_remote(file.url) else f"touch {shlex.quote(file.url)} && "
    return SourceError(
        f"{file.name}: bytes {begin:,} to {end:,} are not what they were when the file was pinned, though it looks untouched ({where}): the disk "
        f"or the memory altered them, or somebody did. Restore the file; or, where the change is meant, pin it again:\n  {touched}{file.remedy}"
    )


def _opened(file: SourceFile) -> BinaryIO:
    try:
        return open_remote(file.url) if is_remote(file.url) else Path(file.url).open("rb")
    except Exception as error:  # each remote file system raises its own kinds
        message = f"{file.name}: cannot open {file_name(file.url)}: {error_text(error, file.url)}. Fetch it again or leave it out of the configuration"
        raise (unreadable(error, message) if is_remote(file.url) else SourceError(message)) from error


def _stat(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise SourceError(f"cannot look at {path}: {error}. Fetch it again or leave it out of the configuration") from error


def _source_file(pattern: str, one: Found, name: str, format: str | None) -> SourceFile:
    suffix_format, compression = format_of(file_name(one.place))
    if format is None and suffix_format is None and not is_hub(one.url):
        raise SourceError(f"{one.url} (of {pattern!r}): its suffix says nothing of its format. Known: {SUFFIXES}; or set `format`")
    listed = one.listed or Listed(one.url)
    size = listed.size if listed.size >= 0 else remote_size(one.url) if is_remote(one.url) else _stat(one.url).st_size
    if size == 0 and not (is_remote(one.url) or Path(one.url).is_file()):
        raise SourceError(f"{one.url} (of {pattern!r}) is a pipe, a socket or a device. Save what it gives to a file, or leave it out")
    if size == 0:
        raise SourceError(f"{one.url} (of {pattern!r}) is empty (0 bytes). Fetch it again or leave it out")
    return SourceFile(name, one.url, size, format or suffix_format or "", compression, listed=listed.fingerprint)
