"""The source files of a domain: their stable names, formats and contents."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from prep_assets.data import local_files
from prep_assets.data.addresses import ListedFile, MatchedFile, error_text, file_name, is_remote, reader_of, unreadable
from prep_assets.data.local_files import FORMATS, SUFFIXES, format_of, is_whole_folder
from prep_assets.errors import ConfigError, SourceError, nearest
from prep_assets.stores.verification import BLOCK, Sums, hashes, proven, sums_of_stream


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a domain.

    Attributes:
        name: path relative to the common parent folder of all files of the domain, with `/`; the same on every machine.
        url: absolute local path, or an fsspec URL.
        size: size in bytes, as stored.
        format: `jsonl`, `json`, `csv`, `tsv`, `parquet`, `arrow` or `txt`.
        compression: `gzip`, `zstd`, `bz2`, `xz`, or `None`.
        blocks: hashes of the stored bytes (see `prep_assets.stores.verification`), once pinned; reading verifies them.
        remedy: the command that pins it again.
        listed: its `fingerprint` from the listing in which it was found; empty if that had none.
        sound: whether its raw asset checked all rows of the content with these `blocks` and rejected none.
        redact: gives a row, or the text of an unreadable one, without its private data, before anybody reads it; `None` leaves rows as they are.
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
    redact: Callable[[Any], Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """A consecutive part of a file.

    Attributes:
        start: its beginning: a decompressed byte of a file of lines, a row of a table.
        stop: its end, likewise; `None` for the end of the file.
        row: number of its first row.
    """

    start: int = 0
    stop: int | None = None
    row: int = 0


WHOLE = Part()


def record_id(file: SourceFile, row: int) -> str:
    """The id of a record within its domain, the same on every machine: `<file name>:<number>`, counted from 1 as editors count lines.

    Args:
        row: `Record.row`, counted from 0.
    """
    return f"{file.name}:{row + 1}"


def find_files(patterns: Sequence[str], base: Path, *, format: str | None = None, fetch: bool = True) -> tuple[SourceFile, ...]:
    """The files that `patterns` match, sorted by name, without duplicates.

    Args:
        patterns: files, globs, folders (searched recursively for known suffixes), fsspec URLs, addresses on the hub (`hub://owner/name@commit`).
        base: folder of relative patterns.
        format: the format of all files; `None` derives it from suffixes. Compression always comes from the suffix.
        fetch: whether hub data sets are downloaded; if not, a missing one is listed as one file with its address, which cannot be read.

    Raises:
        SourceError: a pattern without a file; a file that is empty or of unknown suffix.
        ConfigError: an unknown `format`, or a hub address without a full commit.
    """
    known = sorted(set(FORMATS.values()))
    if format is not None and format not in known:
        raise ConfigError(f"no format {format!r}{nearest(format, known) or '.'} Known: {', '.join(known)}")
    if isinstance(patterns, str):
        patterns = (patterns,)
    by_url: dict[str, tuple[str, MatchedFile]] = {}
    for pattern in patterns:
        whole_folder = format is None and is_whole_folder(pattern)
        for match in find(pattern, base, fetch=fetch):
            if whole_folder and not format_of(file_name(match.place))[0]:
                continue  # as in a folder; see `skipped_files`
            if match.url not in by_url or match.group:
                by_url[match.url] = (pattern, match)
    if not by_url:
        raise SourceError("no source files. Name at least one file, folder or glob with a file whose suffix has a format")
    names = stable_names(match.place for _, match in by_url.values())
    matches = sorted(by_url.values(), key=lambda entry: order(entry[1], names))
    return tuple(_source_file(pattern, match, names[match.place], format) for pattern, match in matches)


def find(pattern: str, base: Path, *, fetch: bool = True) -> list[MatchedFile]:
    """The files that one pattern matches, see `find_files`."""
    return reader_of(pattern).find(pattern, fetch=fetch) if is_remote(pattern) else local_files.find(pattern, base.absolute())


def stable_names(places: Iterable[str]) -> dict[str, str]:
    """Place -> path relative to the common parent folder of all places.

    Places of several kinds (local, `s3`, `hub` ...) have no common parent, so each kind becomes a top-level folder.

    Raises:
        SourceError: two places have one name, e.g. web addresses that differ only in their query.
    """
    by_kind: dict[str, dict[str, str]] = {}
    for place in places:
        kind, separator, path = file_name(place).partition("://") if "://" in place else ("file", "", place)
        by_kind.setdefault(kind if separator else "file", {})[place] = str(PurePosixPath(path)) if separator else place
    names: dict[str, str] = {}
    for kind, paths in by_kind.items():
        parent = os.path.commonpath({*map(os.path.dirname, paths.values())})
        prefix = f"{kind}/" if len(by_kind) > 1 else ""
        names |= {place: f"{prefix}{path[len(parent) :].lstrip('/')}" for place, path in paths.items()}
    repeated = [name for name, count in Counter(names.values()).items() if count > 1]
    if repeated:
        places_of_name = sorted(file_name(place) for place, name in names.items() if name == repeated[0])
        raise SourceError(f"{', '.join(places_of_name)} would have the same name {repeated[0]!r}: keep one of them")
    return names


def order(match: MatchedFile, names: dict[str, str]) -> tuple[str, int]:
    """Sort key: the name; for files of a saved data set the name of its folder, then their position in the data set."""
    name = names[match.place]
    return (name, -1) if not match.group else (name[: name.rfind("/") + 1], match.position)


def stored_sums(file: SourceFile) -> Sums:
    """Size and hashes of the bytes stored now, which may differ from `file.size` and `file.blocks`. Streams the file.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    with _open(file) as stream:
        try:
            return sums_of_stream(stream)
        except Exception as error:  # each remote file system raises its own kinds
            raise SourceError(
                f"{file.name}: reading its {file.size:,} bytes failed ({error_text(error, file.url)}). "
                "Try again, or fetch the file and name the local copy"
            ) from error


def fingerprint(file: SourceFile) -> str:
    """A cheap sign of a file's content: if it is equal the content is assumed equal, otherwise it is hashed again.

    Size and modification time (ns) of a local file; size and ETag, checksum or time of a remote one. Empty if a remote source gives none of
    these, which means: hash again. It differs between machines, so it never enters a build's identity.
    """
    if is_remote(file.url):
        return reader_of(file.url).look(file.url).fingerprint
    status = _stat(file.url)
    return f"{status.st_size}:{status.st_mtime_ns}"


def open_stored(file: SourceFile) -> BinaryIO:
    """The stored bytes of `file`, not decompressed. Those of a pinned file are compared with its hashes, a block at a time.

    Raises:
        SourceError: the file cannot be opened; while reading: a block differs from its pin.
    """
    known = hashes(file.blocks)
    return proven(_open(file), file.size, known, partial(_altered_error, file)) if known else _open(file)


def _altered_error(file: SourceFile, block: int) -> SourceError:
    begin, end = block * BLOCK, min((block + 1) * BLOCK, file.size)
    where, touch_command = file_name(file.url), "" if is_remote(file.url) else f"touch {shlex.quote(file.url)} && "
    return SourceError(
        f"{file.name}: bytes {begin:,} to {end:,} are not what they were when the file was pinned, though it looks untouched ({where}): the disk "
        f"or the memory altered them, or somebody did. Restore the file; or, where the change is meant, pin it again:\n  {touch_command}{file.remedy}"
    )


def _open(file: SourceFile) -> BinaryIO:
    try:
        return reader_of(file.url).open(file.url) if is_remote(file.url) else Path(file.url).open("rb")
    except Exception as error:  # each remote file system raises its own kinds
        message = f"{file.name}: cannot open {file_name(file.url)}: {error_text(error, file.url)}. Fetch it again or leave it out of the configuration"
        raise (unreadable(error, message) if is_remote(file.url) else SourceError(message)) from error


def _stat(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise SourceError(f"cannot look at {path}: {error}. Fetch it again or leave it out of the configuration") from error


def _source_file(pattern: str, match: MatchedFile, name: str, format: str | None) -> SourceFile:
    suffix_format, compression = format_of(file_name(match.place))
    if format is None and suffix_format is None and match.fetched:
        raise SourceError(f"{match.url} (of {pattern!r}): its suffix says nothing of its format. Known: {SUFFIXES}; or set `format`")
    if format is not None and suffix_format not in (None, "txt", format) and {format, suffix_format} != {"json", "jsonl"}:
        raise SourceError(
            f"{match.url} (of {pattern!r}): `format: {format}` contradicts its suffix, which says {suffix_format}. Name files of one format "
            "in a domain, or rename the file"
        )
    listed = match.listed or ListedFile(match.url)
    if listed.size < 0 and is_remote(match.url):
        listed = listed._replace(size=_remote_size(match.url))
    size = listed.size if listed.size >= 0 else _stat(match.url).st_size
    if size == 0 and not (is_remote(match.url) or Path(match.url).is_file()):
        raise SourceError(f"{match.url} (of {pattern!r}) is a pipe, a socket or a device. Save what it gives to a file, or leave it out")
    if size == 0:
        raise SourceError(f"{match.url} (of {pattern!r}) is empty (0 bytes). Fetch it again or leave it out")
    return SourceFile(name, match.url, size, format or suffix_format or "", compression, listed=listed.fingerprint)


def _remote_size(url: str) -> int:
    """Size in bytes.

    Raises:
        SourceError: the server states none, so a truncated download could not be detected.
    """
    if (size := reader_of(url).look(url).size) < 0:
        raise SourceError(f"{url!r}: the server states no size. Download the file and name the local copy")
    return size
