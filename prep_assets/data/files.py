"""Source files of a domain: patterns, URLs, hub data sets and image folders, with their names and pins."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import mimetypes
import os
import re
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from prep_assets.errors import ConfigError, SourceError, SourceUnavailable, nearest
from prep_assets.stores.files import loads
from prep_assets.stores.verification import BLOCK, Sums, hashes, proven, sums_of_stream

# Files behind an fsspec URL (`s3://`, `https://`, `memory://` ...): listing, opening, and the sign of a version.

# Keys with which the file systems of fsspec identify a version, the strongest first.
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "Content-MD5", "version_id", "generation", "mtime", "LastModified", "Last-Modified", "created")


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


def list_remote(url: str) -> list[ListedFile]:
    """The files that `url` (one file, a glob, or a folder) matches, by URL. In a bucket it lists objects and requests none of them.

    Raises:
        SourceError: the file system is not installed, does not answer, or needs credentials.
    """
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


def remote_size(url: str) -> int:
    """Size in bytes.

    Raises:
        SourceError: the server states none, so a truncated download could not be detected.
    """
    size = _info(url).get("size")
    if not isinstance(size, int):
        raise SourceError(f"{url!r}: the server states no size. Download the file and name the local copy")
    return size


def _version_sign(info: Mapping[str, Any]) -> str:
    """A sign that changes with a remote file: its size and an ETag, a checksum or a time. Empty if the source gives none of these."""
    size, version = info.get("size"), next((f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key)), "")
    return f"{size}:{version}" if isinstance(size, int) and version else ""


def open_remote(url: str) -> BinaryIO:
    """The stored bytes of `url` from the start. HTTP is read as one plain stream, which every server supports."""
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
        system.invalidate_cache()  # a cached listing would hide that a file has changed
        return dict(system.info(path))
    except Exception as error:  # each remote file system raises its own kinds
        raise unreadable(error, f"cannot look at {url!r}: {error}. Check the address and the credentials") from error


# Patterns of the configuration: a file, a glob, a folder, a saved Hugging Face data set, or a URL.

# Descriptions that `datasets` writes next to the data.
_METADATA = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_UNFINISHED = (".part", ".tmp", ".crdownload", ".incomplete")
FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "txt",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
SUFFIXES = f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"


class MatchedFile(Struct, frozen=True):
    """A file that a pattern matches.

    Attributes:
        url: the path or URL that opens it.
        place: path or address from which names and the order of files are derived; the same on every machine up to a common prefix.
        group: folder of a saved data set, whose files keep the order of the data set; empty for others.
        position: position in that order.
        listed: its entry in a remote listing.
    """

    url: str
    place: str
    group: str = ""
    position: int = 0
    listed: ListedFile | None = None


def find(pattern: str, base: Path) -> list[MatchedFile]:
    """The files that `pattern` matches, relative to `base`.

    Raises:
        SourceError: it matches none, or a folder cannot be read.
    """
    if "://" in pattern and not pattern.startswith("file://"):
        listed_files = (
            listed_file
            for listed_file in list_remote(pattern)
            if pattern.endswith(listed_file.url) or is_data(listed_file.url.rpartition("/")[2])
        )
        matches = [MatchedFile(listed_file.url, listed_file.url, listed=listed_file) for listed_file in listed_files]
        if not matches:
            raise SourceError(f"{pattern!r} matches no file. Check the address, or list the files one by one")
        return matches
    path = Path(pattern.removeprefix("file://")).expanduser()
    local_path = Path(os.path.normpath(base / path))
    try:
        if local_path.is_file():
            matches = [MatchedFile(str(local_path), local_path.as_posix())]
        else:
            matches = (list(walk(local_path)) if local_path.is_dir() else []) or _glob_local(path, base)
    except OSError as error:
        raise SourceError(f"{pattern!r}: cannot read {error.filename}: {error.strerror}. Make it readable, or name other files") from error
    if not matches:
        raise SourceError(_no_match_message(pattern, local_path, base))
    return matches


def is_data(name: str) -> bool:
    """Whether a file in a folder or a glob is data: not hidden, not unfinished, no description of a data set."""
    return not (name.startswith(".") or name.endswith(_UNFINISHED) or name in _METADATA)


def _glob_local(pattern: Path, base: Path) -> list[MatchedFile]:
    return [MatchedFile(path, path) for path in _paths_of_glob(pattern, base)]


def _paths_of_glob(pattern: Path, base: Path) -> list[str]:
    """The data files that a glob matches, sorted as paths. They are texts: a `Path` for each of thousands takes long."""
    anchor = Path(pattern.anchor) if pattern.anchor else base
    found = {os.path.normpath(path) for path in _glob_below(anchor, pattern.relative_to(pattern.anchor).parts)}
    paths, whole = list[str](), _is_whole_folder(str(pattern))
    for path in sorted(found, key=lambda path: path.split("/")):
        name = path.rpartition("/")[2]
        if not is_data(name):
            continue
        if os.path.isfile(path):  # noqa: PTH113
            paths.append(path)
        elif format_of(name)[0] or not whole:
            _reject_dangling(Path(path))
    return paths


def _reject_dangling(path: Path) -> None:
    """Raises:
    SourceError: a link leads nowhere, so that rows would be missing unnoticed.
    """
    if path.is_symlink() and not path.exists():
        raise SourceError(f"{path}: this link leads to {path.readlink()}, which does not exist. Fetch the file, or remove the link")


def _is_whole_folder(pattern: str) -> bool:
    """Whether a glob takes every file of its folders, whatever its name."""
    return pattern.rpartition("/")[2] in ("*", "**")


def skipped_files(pattern: str, base: Path) -> list[str]:
    """Names of the files in a local folder, or of a glob that ends with ``*`` or ``**``, whose suffix no format has.

    Pictures, sounds and films are left out: rows name them.
    """
    if "://" in pattern.removeprefix("file://"):
        return []
    path, base = Path(pattern.removeprefix("file://")).expanduser(), base.absolute()
    folder = Path(os.path.normpath(base / path))
    if not folder.is_dir() and not _is_whole_folder(pattern):
        return []
    paths = _paths_of_glob(folder / "**", folder) if folder.is_dir() else _paths_of_glob(path, base)
    names = [name for name in [path.rpartition("/")[2] for path in paths] if not format_of(name)[0]]
    return [name for name in names if not (mimetypes.guess_type(name)[0] or "").startswith(("image/", "audio/", "video/"))]


def _glob_below(folder: Path, parts: Sequence[str]) -> Iterator[Path | str]:
    """The paths in a folder that the remaining `parts` of a glob match. Python's globs skip unreadable folders, whose files would look removed, and
    follow cyclic links endlessly.

    Raises:
        OSError: a folder cannot be read.
    """
    if not parts:
        yield folder
    elif not folder.is_dir():
        _reject_dangling(folder)
    elif parts[0] == "**":
        for subfolder in _folders(folder, folder):
            yield from _glob_below(subfolder, parts[1:] or ("*",))
    elif not glob.has_magic(parts[0]):
        yield from _glob_below(folder / parts[0], parts[1:])
    else:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") or parts[0].startswith(".")]
        for name in fnmatch.filter(names, parts[0]):
            if not parts[1:]:
                yield f"{folder}/{name}"
                continue
            if (folder / name).is_dir():
                os.scandir(folder / name).close()
            yield from _glob_below(folder / name, parts[1:])


def _folders(folder: Path, start: Path) -> Iterator[Path]:
    """A folder and all folders below it, without hidden ones and links to ancestors."""
    yield folder
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not _links_to_ancestor(folder / name, start):
            yield from _folders(folder / name, start)


def _links_to_ancestor(folder: Path, start: Path) -> bool:
    """Whether a folder is a link to a folder that contains it, or to one on the way from `start`."""
    if not folder.is_symlink():
        return False
    ancestors = {parent.resolve() for parent in folder.parents if parent == start or start in parent.parents}
    return folder.resolve() in {*ancestors, *folder.parent.resolve().parents}


def walk(folder: Path, start: Path | None = None) -> Iterator[MatchedFile]:
    """The data files under `folder`: known suffixes, nothing hidden or unfinished; saved data sets in their own order.

    Args:
        start: the folder at which the walk began, if not `folder`.
    """
    start = start or folder
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from _saved_data_set(folder)
        return
    with os.scandir(folder) as entries:
        found = sorted([entry for entry in entries if is_data(entry.name)], key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir():
            path = Path(entry.path)
            if not _links_to_ancestor(path, start):
                yield from walk(path, start)
        elif entry.is_symlink() and not Path(entry.path).suffix:
            _reject_dangling(Path(entry.path))
        elif format_of(entry.name)[0]:
            yield MatchedFile(entry.path, entry.path)


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    data_files: list[_DataFile] = msgspec.field(name="_data_files")


def _saved_data_set(folder: Path) -> Iterator[MatchedFile]:
    """The Arrow files of a folder that `datasets.Dataset.save_to_disk` wrote, in the order of its `state.json`."""
    try:
        state = msgspec.convert(loads((folder / "state.json").read_bytes()), _State)
    except (msgspec.ValidationError, ValueError) as error:
        raise SourceError(f"{folder / 'state.json'} does not describe a saved data set: {error}. Save the data set again") from error
    for position, data_file in enumerate(state.data_files):
        path = folder / data_file.filename
        if not path.is_file():
            raise SourceError(
                f"{folder / 'state.json'} names {data_file.filename!r}, which is missing: the copy is incomplete, fetch it again"
            )
        yield MatchedFile(str(path), path.as_posix(), folder.as_posix(), position)


def _no_match_message(pattern: str, path: Path, base: Path) -> str:
    """The error message for a local pattern without a file."""
    if path.is_dir():
        return f"{pattern!r}: the folder {path} has no data file. Known suffixes are in docs/sources.md; name other files one by one"
    if not glob.has_magic(str(path)):
        base_hint = "" if Path(pattern.removeprefix("file://")).expanduser().is_absolute() else f"; it is looked up from the folder {base}"
        return f"{pattern!r}: there is no file {path}. Check the name{base_hint}"
    parent_folder = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    missing_hint = "" if parent_folder.is_dir() else ", which does not exist"
    return f"{pattern!r} matches no file in {parent_folder}{missing_hint}. Check the pattern; end it with /** to reach files of sub-folders"


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


def format_of(name: str) -> tuple[str | None, str | None]:
    """`(format, compression)` of a file called `name`; the format is `None` for an unknown suffix."""
    stem, dot, last = name.lower().rpartition(".")
    compression = COMPRESSIONS.get(dot + last)
    if compression:
        _, dot, last = stem.rpartition(".")
    return FORMATS.get(dot + last), compression


# Data sets of the Hugging Face hub: `hub://owner/name@commit` or `hub://owner/name@commit/path/*.parquet`.
#
# The commit is written in full, so that the address always means the same bytes. `@follow:BRANCH` means the newest commit of a branch instead, as a file in
# a bucket means its newest content. Files are kept in the cache of `huggingface_hub`, which works offline once it has all files of a commit.

SCHEME = "hub://"
FOLLOW = "follow:"
_ADDRESS = re.compile(r"hub://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?")
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubAddress(Struct, frozen=True):
    """A data set on the hub.

    Attributes:
        repository: `owner/name`.
        commit: full commit, 40 hexadecimal digits; `None` where the address follows a branch.
        path: file, folder or glob within it; `None` for every data file.
        branch: the branch or tag that it follows; `None` for a commit.
    """

    repository: str
    commit: str | None
    path: str | None
    branch: str | None = None


def is_hub(pattern: str) -> bool:
    """Whether `pattern` is an address on the hub."""
    return pattern.startswith(SCHEME)


def hub_address(text: str) -> HubAddress:
    """The parts of a `hub://` address.

    Raises:
        ConfigError: it is malformed, or its revision is a branch, a tag or a short commit, which may mean other bytes tomorrow.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or ".." in (match["path"] or "").split("/"):
        raise ConfigError(f"{text!r} is not a hub address. It must be hub://owner/name@commit or hub://owner/name@commit/path/*.parquet")
    revision = match["revision"] or ""
    if revision.startswith(FOLLOW) and (branch := unquote(revision.removeprefix(FOLLOW))):
        return HubAddress(match["repository"], None, match["path"], branch)
    if not _FULL_COMMIT.fullmatch(revision):
        raise ConfigError(
            f"{text!r} needs a full commit after @ (40 hexadecimal digits), not {revision!r}: copy it from the history of the data set. "
            f"To take whatever a branch holds, today and tomorrow, write @{FOLLOW}main"
        )
    return HubAddress(match["repository"], revision, match["path"])


def find_on_hub(pattern: str, *, fetch: bool = True) -> list[MatchedFile]:
    """The local copies of the files that a `hub://` address matches.

    Args:
        fetch: whether to download missing files; if not, the address is listed as one file, with the commit as its fingerprint.

    Raises:
        ConfigError: a malformed address.
        SourceError: no such data set or commit, no connection and no full copy in the cache, or no file that matches.
    """
    address = hub_address(pattern)
    commit = address.commit or _newest_commit(address)
    folder = _snapshot(address, commit, fetch)
    if folder is None:
        return [MatchedFile(pattern, pattern, listed=ListedFile(pattern, 1, f"commit={commit}"))]
    root = f"{SCHEME}{address.repository}"
    if address.path is None or (folder / address.path).is_dir():
        matches = list(walk(folder / (address.path or "")))
    else:
        paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        expected = [name for name in fnmatch.filter(paths, address.path) if is_data(paths[name].name)]
        names = [name for name in paths if name == address.path or name in expected]
        matches = [MatchedFile(str(paths[name]), paths[name].as_posix()) for name in names]
    if not matches:
        raise SourceError(f"{pattern!r} matches no file of the data set at commit {commit}. Check the path on the hub's page of it")

    def on_hub(path: str) -> str:
        return f"{root}/{Path(path).relative_to(folder).as_posix()}".removesuffix("/.")

    return [MatchedFile(match.url, on_hub(match.place), on_hub(match.group) if match.group else "", match.position) for match in matches]


def _newest_commit(address: HubAddress) -> str:
    """The commit of a branch, always from the hub: the cache may hold an older one."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise _hub_not_installed() from error
    where = f"branch {address.branch!r} of the hub data set {address.repository!r}"
    try:
        commit = HfApi().dataset_info(address.repository, revision=address.branch).sha
    except Exception as error:  # each version of huggingface_hub has the errors of another HTTP library
        raise unreadable(
            error, f"cannot look at {where}: {error}. Check the name, the access token (HF_TOKEN) and the connection"
        ) from error
    if not commit:
        raise SourceError(f"the hub names no commit for {where}. Name a full commit after @")
    return str(commit)


def _snapshot(address: HubAddress, commit: str, fetch: bool) -> Path | None:
    """The local folder with the files of `address`, downloaded if `fetch` and not in the cache; `None` if missing and not `fetch`."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError as error:
        raise _hub_not_installed() from error
    allow = None if address.path is None else [address.path, f"{address.path.rstrip('/')}/**"]
    kind, name = "dataset", address.repository
    try:
        return Path(snapshot_download(name, repo_type=kind, revision=commit, allow_patterns=allow, local_files_only=not fetch))
    except (OSError, ValueError) as error:  # what huggingface_hub raises derives from these
        if not fetch and isinstance(error, LocalEntryNotFoundError):
            return None
        where = f"hub data set {address.repository!r} at commit {commit}"
        raise unreadable(error, f"cannot fetch {where}: {error}. Check the name, the access token (HF_TOKEN) and the connection") from error


def _hub_not_installed() -> SourceError:
    return SourceError("reading hub:// addresses needs huggingface_hub: pip install huggingface_hub")


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


# The source files of a domain, their stable names and contents.


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
        whole_folder = format is None and _is_whole_folder(pattern)
        for match in find_on_hub(pattern, fetch=fetch) if is_hub(pattern) else find(pattern, base.absolute()):
            if whole_folder and not format_of(file_name(match.place))[0]:
                continue  # as in a folder; see `skipped_files`
            if match.url not in by_url or match.group:
                by_url[match.url] = (pattern, match)
    if not by_url:
        raise SourceError("no source files. Name at least one file, folder or glob with a file whose suffix has a format")
    names = stable_names(match.place for _, match in by_url.values())
    matches = sorted(by_url.values(), key=lambda entry: order(entry[1], names))
    return tuple(_source_file(pattern, match, names[match.place], format) for pattern, match in matches)


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
        return _version_sign(_info(file.url))
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
        return open_remote(file.url) if is_remote(file.url) else Path(file.url).open("rb")
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
    if format is None and suffix_format is None and not is_hub(match.url):
        raise SourceError(f"{match.url} (of {pattern!r}): its suffix says nothing of its format. Known: {SUFFIXES}; or set `format`")
    if format is not None and suffix_format not in (None, "txt", format) and {format, suffix_format} != {"json", "jsonl"}:
        raise SourceError(
            f"{match.url} (of {pattern!r}): `format: {format}` contradicts its suffix, which says {suffix_format}. Name files of one format "
            "in a domain, or rename the file"
        )
    listed = match.listed or ListedFile(match.url)
    size = listed.size if listed.size >= 0 else remote_size(match.url) if is_remote(match.url) else _stat(match.url).st_size
    if size == 0 and not (is_remote(match.url) or Path(match.url).is_file()):
        raise SourceError(f"{match.url} (of {pattern!r}) is a pipe, a socket or a device. Save what it gives to a file, or leave it out")
    if size == 0:
        raise SourceError(f"{match.url} (of {pattern!r}) is empty (0 bytes). Fetch it again or leave it out")
    return SourceFile(name, match.url, size, format or suffix_format or "", compression, listed=listed.fingerprint)


# Pins: the content of a domain's source files at the time of a build.

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
