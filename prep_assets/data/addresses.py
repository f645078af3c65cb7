"""Addresses of source files: a path, or a URL whose scheme an entry point of the group `addresses` reads."""

from __future__ import annotations

import re
from typing import BinaryIO, NamedTuple, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from prep_assets import plugins
from prep_assets.errors import SourceError, SourceUnavailable


def is_remote(location: str) -> bool:
    """Whether `location` is a URL other than `file://`."""
    return "://" in location and not location.startswith("file://")


def is_http(url: str) -> bool:
    """Whether `url` is served over HTTP, where a folder cannot be listed and `?` starts a query."""
    return url.startswith(("http://", "https://"))


def file_name(url: str) -> str:
    """`url` without the query, fragment and user of an HTTP address."""
    if not is_http(url):
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def error_text(error: Exception, url: str) -> str:
    """Type and text of an error, without the query of an HTTP address, which may hold a signature."""
    query = urlsplit(url).query if is_http(url) else ""
    text = str(error).replace(f"?{query}", "") if query else str(error)
    return f"{type(error).__name__}: {text}"


_TRANSIENT = re.compile("^(?!.*Certificate).*(Connect|Timeout|Disconnected|Transport|SlowDown)")
"""Names of errors, in any library, of a server that could not be reached."""


def unreadable(error: Exception, message: str) -> SourceError:
    """The error for a source that cannot be fetched: `SourceUnavailable` if its server was not reached, is busy or failed, else `SourceError`."""
    chain, cause = list[BaseException](), error.__cause__ or error.__context__
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    statuses = [_status(link) for link in (error, *chain)]
    known_statuses = [status for status in statuses if status is not None]
    transient = [status in (408, 425, 429) or status >= 500 for status in known_statuses] or [
        bool(_TRANSIENT.match(type(link).__name__)) for link in (error, *chain)
    ]
    return SourceUnavailable(message) if any(transient) else SourceError(message)


def _status(error: BaseException) -> int | None:
    """The HTTP status in an error; `None` if it has none."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


class ListedFile(NamedTuple):
    """A file in a remote listing: its size (-1 if not listed) and its `fingerprint` (empty if not listed)."""

    url: str
    size: int = -1
    fingerprint: str = ""


class MatchedFile(Struct, frozen=True):
    """A file that a pattern matches.

    Attributes:
        url: the path or URL that opens it.
        place: path or address from which names and the order of files are derived; the same on every machine up to a common prefix.
        group: folder of a saved data set, whose files keep the order of the data set; empty for others.
        position: position in that order.
        listed: its entry in a remote listing.
        fetched: whether it can be read; if not, its copy is missing.
    """

    url: str
    place: str
    group: str = ""
    position: int = 0
    listed: ListedFile | None = None
    fetched: bool = True


class AddressReader(Protocol):
    """Finds and opens the files of one scheme."""

    def find(self, pattern: str, *, fetch: bool) -> list[MatchedFile]:
        """The files that an address, a folder or a glob matches.

        Args:
            fetch: whether to download what can only be read from a copy; if not, a missing copy is listed as one file with its address.

        Raises:
            ConfigError: it is malformed.
            SourceError: it matches none, or cannot be listed.
        """

    def look(self, url: str) -> ListedFile:
        """Size and fingerprint of a file as it is now.

        Raises:
            SourceError: it cannot be looked at.
        """

    def open(self, url: str) -> BinaryIO:
        """The stored bytes of a file from the start; may raise anything."""


def reader_of(url: str) -> AddressReader:
    """What reads an address: the entry point that its scheme names, else that of all URLs."""
    ours = plugins.ours("addresses")
    reader: AddressReader = plugins.load(({**ours, **plugins.added("addresses", ours)}).get(url.partition("://")[0], ours["url"]))
    return reader
