"""Files behind an fsspec URL (`s3://`, `https://`, `memory://` ...): listing, opening, and the fingerprint of a version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, cast

from prep_assets.data.addresses import ListedFile, MatchedFile, is_http, unreadable
from prep_assets.data.local_files import is_data
from prep_assets.errors import SourceError

# Keys with which the file systems of fsspec identify a version, the strongest first.
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "Content-MD5", "version_id", "generation", "mtime", "LastModified", "Last-Modified", "created")


def find(pattern: str, *, fetch: bool = True) -> list[MatchedFile]:
    """The files that a URL (one file, a glob, or a folder) matches. In a bucket it lists objects and requests none of them.

    Raises:
        SourceError: it matches none; the file system is not installed, does not answer, or needs credentials.
    """
    listed = [each for each in _list(pattern) if pattern.endswith(each.url) or is_data(each.url.rpartition("/")[2])]
    if not listed:
        raise SourceError(f"{pattern!r} matches no file. Check the address, or list the files one by one")
    return [MatchedFile(each.url, each.url, listed=each) for each in listed]


def _list(url: str) -> list[ListedFile]:
    try:
        system, path = _file_system(url)
        system.invalidate_cache()  # a cached listing would hide new files
        if "*" in url or ("[" in url and not is_http(url)):
            infos = _glob_remote(system, path)
        elif url.endswith("/") or (not is_http(url) and system.isdir(path)):
            infos = _files_below(system, path)
        else:
            infos = {path: {}} if _exists(system, path, url) else {}
        has_sizes = not is_http(url)
        return sorted(
            ListedFile(
                str(system.unstrip_protocol(path)),
                *((info["size"], _version_sign(info)) if has_sizes and isinstance(info.get("size"), int) else ()),
            )
            for path, info in infos.items()
        )
    except Exception as error:  # each remote file system raises its own kinds
        extra = {"http": "http", "https": "http", "s3": "s3"}.get(url.partition(":")[0], "")
        if isinstance(error, ImportError) and extra:
            raise SourceError(f"cannot list {url!r}: {error}. Install it with:\n  pip install 'prep-assets[{extra}]'") from error
        message = f"cannot list {url!r}: {error}. Check the address, the credentials and that the file system is installed"
        raise unreadable(error, message) from error


def _glob_remote(system: Any, pattern: str) -> dict[str, Any]:
    """The files that a glob matches: path -> info."""
    from fsspec.utils import glob_translate

    root = pattern[: pattern.rfind("/", 0, re.search(r"[*?[]", pattern).start()) + 1]  # type: ignore[union-attr]
    depth = None if "**" in pattern else pattern.count("/", len(root)) + 1
    matcher = re.compile(glob_translate(pattern))
    return {path: info for path, info in _files_below(system, root, depth).items() if matcher.match(path)}


def _files_below(system: Any, folder: str, depth: int | None = None) -> dict[str, Any]:
    """All files below a folder, at most `depth` levels down: path -> info.

    fsspec's generic walk, and so its glob, skips folders whose listing fails: their files would look removed. A system with its own `find` does
    not use that walk.
    """
    if depth is None and _has_native_find(system):
        infos: dict[str, Any] = system.find(folder, detail=True)
        return infos
    infos, pending = {}, [(folder.rstrip("/"), 1)]
    while pending:
        current, level = pending.pop()
        with suppress(FileNotFoundError):
            for info in system.ls(current, detail=True):
                if info["type"] != "directory":
                    infos[info["name"]] = info
                elif info["name"].rstrip("/") != current and (depth is None or level < depth):
                    pending.append((info["name"].rstrip("/"), level + 1))
    return infos


def _has_native_find(system: Any) -> bool:
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    if isinstance(system, AsyncFileSystem):
        return type(system)._find is not AsyncFileSystem._find
    return type(system).find is not AbstractFileSystem.find


def _exists(system: Any, path: str, url: str) -> bool:
    """Whether the file exists.

    fsspec's `exists` returns false for every failure: a bad certificate, a refused connection, a broken server.

    Raises:
        Exception: the server does not answer properly, so existence is unknown.
    """
    try:
        system.info(path)
    except FileNotFoundError as error:
        if not is_http(url):
            return False
        cause = error.__cause__
        if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) in (404, 410):
            return False
        raise OSError(f"{type(cause).__name__}: {cause}") from error
    return True


def look(url: str) -> ListedFile:
    """Size and fingerprint of a file: its size and an ETag, a checksum or a time.

    Raises:
        SourceError: it cannot be looked at.
    """
    try:
        system, path = _file_system(url)
        system.invalidate_cache()  # a cached listing would hide that a file has changed
        info = system.info(path)
    except Exception as error:  # each remote file system raises its own kinds
        raise unreadable(error, f"cannot look at {url!r}: {error}. Check the address and the credentials") from error
    return ListedFile(url, info["size"] if isinstance(info.get("size"), int) else -1, _version_sign(info))


def _version_sign(info: Mapping[str, Any]) -> str:
    """A sign that changes with a remote file: its size and an ETag, a checksum or a time. Empty if the source gives none of these."""
    size, version = info.get("size"), next((f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key)), "")
    return f"{size}:{version}" if isinstance(size, int) and version else ""


def open(url: str) -> BinaryIO:
    """The stored bytes of `url` from the start. HTTP is read as one plain stream, which every server supports."""
    system, path = _file_system(url)
    options: dict[str, Any] = {"block_size": 0} if is_http(url) else {}
    return cast(BinaryIO, system.open(path, "rb", **options))


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return system, path
