"""Files behind an fsspec URL (`s3://`, `https://`, `memory://` ...): listing, opening, and what identifies a version of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import urlsplit

from prep_assets.errors import SourceError, SourceUnavailable

# What the file systems of fsspec call "this is another version", the strongest first.
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "Content-MD5", "version_id", "generation", "mtime", "LastModified", "Last-Modified", "created")


def is_remote(location: str) -> bool:
    """Whether `location` is a URL other than `file://`."""
    return "://" in location and not location.startswith("file://")


def is_http(url: str) -> bool:
    """Whether `url` is served over HTTP, where a folder cannot be listed and `?` starts a query."""
    return url.startswith(("http://", "https://"))


def file_name(url: str) -> str:
    """The part of `url` that names the file: without the query of an HTTP address, and who asks there."""
    if not is_http(url):
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def error_text(error: Exception, url: str) -> str:
    """Kind and text of an error, without the query of an HTTP address, which may hold a signature."""
    query = urlsplit(url).query if is_http(url) else ""
    text = str(error).replace(f"?{query}", "") if query else str(error)
    return f"{type(error).__name__}: {text}"


_PASSING = re.compile("^(?!.*Certificate).*(Connect|Timeout|Disconnected|Transport|SlowDown)")
"""Names of errors, in any library, of a server that was not reached."""


def unreadable(error: Exception, message: str) -> SourceError:
    """What to raise where a source cannot be fetched: `SourceUnavailable` where its server was not reached, is busy or failed."""
    chain, seen = list[BaseException](), error.__cause__ or error.__context__
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    answers = [_status(each) for each in (error, *chain)]
    stated = [status for status in answers if status is not None]
    passing = [status in (408, 425, 429) or status >= 500 for status in stated] or [
        bool(_PASSING.match(type(each).__name__)) for each in (error, *chain)
    ]
    return SourceUnavailable(message) if any(passing) else SourceError(message)


def _status(error: BaseException) -> int | None:
    """What an HTTP server answered, where an error says so."""
    own = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return own if isinstance(own, int) else None


class Listed(NamedTuple):
    """What a list says of a file: its size, -1 where it says none, and what `fingerprint` would say of it, empty where it does not."""

    url: str
    size: int = -1
    fingerprint: str = ""


def list_remote(url: str) -> list[Listed]:
    """The files that `url` (one file, a glob, or a folder) stands for, by URL. A bucket is asked for one list, and for none of its objects.

    Raises:
        SourceError: the file system is not installed, does not answer, or wants credentials.
    """
    try:
        system, path = _file_system(url)
        system.invalidate_cache()  # a listing kept from before would hide what is new
        if "*" in url or ("[" in url and not is_http(url)):
            found = _matching(system, path)
        elif url.endswith("/") or (not is_http(url) and system.isdir(path)):
            found = _below(system, path)
        else:
            found = {path: {}} if _exists(system, path, url) else {}
        return sorted(_listed(str(system.unstrip_protocol(path)), info) for path, info in found.items())
    except Exception as error:  # each remote file system raises its own kinds
        message = f"cannot list {url!r}: {error}. Check the address, the credentials and that the file system is installed"
        raise unreadable(error, message) from error


def _matching(system: Any, pattern: str) -> dict[str, Any]:
    """The files that a glob stands for."""
    from fsspec.utils import glob_translate

    root = pattern[: pattern.rfind("/", 0, re.search(r"[*?[]", pattern).start()) + 1]  # type: ignore[union-attr]
    depth = None if "**" in pattern else pattern.count("/", len(root)) + 1
    meant = re.compile(glob_translate(pattern))
    return {path: info for path, info in _below(system, root, depth).items() if meant.match(path)}


def _below(system: Any, folder: str, depth: int | None = None) -> dict[str, Any]:
    """Every file below a folder, at most so many levels down, with what the list says of it.

    fsspec's own walk, and so its glob, leaves out each folder whose list fails: its files would be taken for removed. A system that lists
    everything at once has no such walk.
    """
    if depth is None and _lists_at_once(system):
        found: dict[str, Any] = system.find(folder, detail=True)
        return found
    found, waiting = {}, [(folder.rstrip("/"), 1)]
    while waiting:
        here, level = waiting.pop()
        with suppress(FileNotFoundError):
            for info in system.ls(here, detail=True):
                if info["type"] != "directory":
                    found[info["name"]] = info
                elif info["name"].rstrip("/") != here and (depth is None or level < depth):
                    waiting.append((info["name"].rstrip("/"), level + 1))
    return found


def _lists_at_once(system: Any) -> bool:
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    if isinstance(system, AsyncFileSystem):
        return type(system)._find is not AsyncFileSystem._find
    return type(system).find is not AbstractFileSystem.find


def _listed(url: str, info: Mapping[str, Any]) -> Listed:
    size = info.get("size")
    return Listed(url, size, _sign(info)) if isinstance(size, int) and not is_http(url) else Listed(url)


def _exists(system: Any, path: str, url: str) -> bool:
    """Whether there is such a file.

    fsspec's `exists` says no whatever went wrong on the way: a certificate, a refused connection, a broken server.

    Raises:
        Exception: unknown, because the server does not answer properly.
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


def remote_size(url: str) -> int:
    """Size in bytes.

    Raises:
        SourceError: the server states none, so that a download cut short could not be told from a whole one.
    """
    size = _info(url).get("size")
    if not isinstance(size, int):
        raise SourceError(f"{url!r}: the server states no size. Download the file and name the local copy")
    return size


def remote_sign(url: str) -> str:
    """What changes when the file changes: its size with an ETag, a checksum or a time. Empty where the source gives none of these."""
    return _sign(_info(url))


def _sign(info: Mapping[str, Any]) -> str:
    size, version = info.get("size"), next((f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key)), "")
    return f"{size}:{version}" if isinstance(size, int) and version else ""


def open_remote(url: str) -> BinaryIO:
    """The stored bytes of `url` from the start. HTTP is read as one plain stream, which every server can do."""
    system, path = _file_system(url)
    options: dict[str, Any] = {"block_size": 0} if is_http(url) else {}
    return cast(BinaryIO, system.open(path, "rb", **options))


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return system, path


def _info(url: str) -> dict[str, Any]:
    try:
        system, path = _file_system(url)
        system.invalidate_cache()  # a listing kept from before would hide that a file has changed since
        return dict(system.info(path))
    except Exception as error:  # each remote file system raises its own kinds
        raise unreadable(error, f"cannot look at {url!r}: {error}. Check the address and the credentials") from error
