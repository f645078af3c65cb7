"""The source files of a domain: patterns, URLs, data sets of the hub, folders of images; their names and their pins."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import shlex
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import msgspec

from prep_assets.errors import ConfigError, SourceError, SourceUnavailable, nearest
from prep_assets.stores.files import loads
from prep_assets.stores.verification import BLOCK, Sums, hashes, proven, sums_of_stream

# Files behind an fsspec URL (`s3://`, `https://`, `memory://` ...): listing, opening, and what identifies a version of one.

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
        says_size = not is_http(url)
        return sorted(
            Listed(
                str(system.unstrip_protocol(path)),
                *((info["size"], _sign(info)) if says_size and isinstance(info.get("size"), int) else ()),
            )
            for path, info in found.items()
        )
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


def _sign(info: Mapping[str, Any]) -> str:
    """What changes when a remote file changes: its size with an ETag, a checksum or a time. Empty where the source gives none of these."""
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


# What a pattern of the configuration stands for: a file, a glob, a folder, a saved Hugging Face data set, or a URL.

# Descriptions of data sets, which `datasets` writes beside the data.
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


@dataclass(frozen=True, slots=True)
class Found:
    """A file behind a pattern.

    Attributes:
        url: where it is opened.
        place: the same on every machine up to a common prefix; names and the order of files come from it.
        group: folder of a saved data set, whose files keep the order that the data set gives them; empty elsewhere.
        position: position in that order.
        listed: what a list of remote files said of it.
    """

    url: str
    place: str
    group: str = ""
    position: int = 0
    listed: Listed | None = None


def find(pattern: str, base: Path) -> list[Found]:
    """The files that `pattern` stands for, seen from `base`.

    Raises:
        SourceError: it stands for none.
    """
    if "://" in pattern and not pattern.startswith("file://"):
        listed = (each for each in list_remote(pattern) if pattern.endswith(each.url) or is_data(each.url.rpartition("/")[2]))
        found = [Found(each.url, each.url, listed=each) for each in listed]
        if not found:
            raise SourceError(f"{pattern!r} matches no file. Check the address, or list the files one by one")
        return found
    path = Path(pattern.removeprefix("file://")).expanduser()
    here = Path(os.path.normpath(base / path))
    try:
        if here.is_file():
            found = [Found(str(here), here.as_posix())]
        else:
            found = (list(walk(here)) if here.is_dir() else []) or _globbed(path, base)
    except OSError as error:
        raise SourceError(f"{pattern!r}: cannot read {error.filename}: {error.strerror}. Make it readable, or name other files") from error
    if not found:
        raise SourceError(_nothing(pattern, here, base))
    return found


def is_data(name: str) -> bool:
    """Whether a file that a folder or a glob turns up is meant: not hidden, not unfinished, no description of a data set."""
    return not (name.startswith(".") or name.endswith(_UNFINISHED) or name in _METADATA)


def _globbed(pattern: Path, base: Path) -> list[Found]:
    anchor = Path(pattern.anchor) if pattern.anchor else base
    parts = pattern.relative_to(pattern.anchor).parts
    paths = sorted({Path(os.path.normpath(path)) for path in _matches(anchor, parts)})
    return [Found(str(path), path.as_posix()) for path in paths if path.is_file() and is_data(path.name)]


def _matches(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """What the rest of a glob matches in a folder. Python's own leave out a folder that cannot be read, whose files would be taken for removed, and follow
    links that lead back, again and again.

    Raises:
        OSError: such a folder.
    """
    if not parts:
        yield folder
    elif not folder.is_dir():
        return
    elif parts[0] == "**":
        for below in _folders(folder, folder):
            yield from _matches(below, parts[1:] or ("*",))
    elif not glob.has_magic(parts[0]):
        yield from _matches(folder / parts[0], parts[1:])
    else:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") or parts[0].startswith(".")]
        for name in fnmatch.filter(names, parts[0]):
            if parts[1:] and (folder / name).is_dir():
                os.scandir(folder / name).close()
            yield from _matches(folder / name, parts[1:])


def _folders(folder: Path, start: Path) -> Iterator[Path]:
    """A folder and all below it that are not hidden, none over a link that leads back."""
    yield folder
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not _goes_round(folder / name, start):
            yield from _folders(folder / name, start)


def _goes_round(folder: Path, start: Path) -> bool:
    """Whether a folder is a link to one that it is in, or that the way from `start` came through."""
    if not folder.is_symlink():
        return False
    way = {each.resolve() for each in folder.parents if each == start or start in each.parents}
    return folder.resolve() in {*way, *folder.parent.resolve().parents}


def walk(folder: Path, start: Path | None = None) -> Iterator[Found]:
    """The data files under `folder`: known suffixes, nothing hidden or unfinished; saved data sets in their own order.

    Args:
        start: where the walk began, where that is above.
    """
    start = start or folder
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from _saved_data_set(folder)
        return
    for path in sorted(folder.iterdir()):
        if not is_data(path.name):
            continue
        if path.is_dir():
            if not _goes_round(path, start):
                yield from walk(path, start)
        elif format_of(path.name)[0]:
            yield Found(str(path), path.as_posix())


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    data_files: list[_DataFile] = msgspec.field(name="_data_files")


def _saved_data_set(folder: Path) -> Iterator[Found]:
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
        yield Found(str(path), path.as_posix(), folder.as_posix(), position)


def _nothing(pattern: str, path: Path, base: Path) -> str:
    """What to say of a local pattern that stands for no file."""
    if path.is_dir():
        return f"{pattern!r}: the folder {path} has no data file. Known suffixes are in docs/sources.md; name other files one by one"
    if not glob.has_magic(str(path)):
        from_where = "" if Path(pattern.removeprefix("file://")).expanduser().is_absolute() else f"; it is looked up from the folder {base}"
        return f"{pattern!r}: there is no file {path}. Check the name{from_where}"
    looked_in = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    there = "" if looked_in.is_dir() else ", which does not exist"
    return f"{pattern!r} matches no file in {looked_in}{there}. Check the pattern; end it with /** to reach files of sub-folders"


def stable_names(places: Iterable[str]) -> dict[str, str]:
    """Place -> path from the common parent folder of all places.

    Places of several kinds (local, `s3`, `hub` ...) have no common parent, so that each kind becomes a folder of its own.

    Raises:
        SourceError: two places have one name, e.g. web addresses that differ in their query only.
    """
    by_kind: dict[str, dict[str, PurePosixPath]] = {}
    for place in places:
        kind, separator, path = file_name(place).partition("://")
        by_kind.setdefault(kind if separator else "file", {})[place] = PurePosixPath(path if separator else place)
    names: dict[str, str] = {}
    for kind, paths in by_kind.items():
        parent = os.path.commonpath([path.parent for path in paths.values()])
        prefix = f"{kind}/" if len(by_kind) > 1 else ""
        names |= {place: f"{prefix}{path.relative_to(parent)}" for place, path in paths.items()}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        same = sorted(file_name(place) for place, name in names.items() if name == twice[0])
        raise SourceError(f"{', '.join(same)} would have the same name {twice[0]!r}: keep one of them")
    return names


def order(one: Found, names: dict[str, str]) -> tuple[str, int]:
    """Sort key: the name; but the files of a saved data set stand at its folder's name, in the order that the data set gives them."""
    name = names[one.place]
    return (name, -1) if not one.group else (name[: name.rfind("/") + 1], one.position)


def format_of(name: str) -> tuple[str | None, str | None]:
    """`(format, compression)` of a file called `name`; the format is `None` where the suffix says nothing."""
    stem = name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if stem.endswith(suffix)), None)
    stem = stem.removesuffix(compression or "")
    format_suffix = next((suffix for suffix in FORMATS if stem.endswith(suffix)), "")
    return FORMATS.get(format_suffix), COMPRESSIONS.get(compression or "")


# Data sets of the Hugging Face hub: `hub://owner/name@commit` or `hub://owner/name@commit/path/*.parquet`.
#
# The commit is written out in full, so that the address always means the same bytes. `@follow:BRANCH` instead means the newest commit of a branch, as a file
# in a bucket means its newest content. Files land in the cache of `huggingface_hub`, which answers offline when it has all of those of a commit.

SCHEME = "hub://"
FOLLOW = "follow:"
_ADDRESS = re.compile(r"hub://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?")
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A data set on the hub.

    Attributes:
        repository: `owner/name`.
        commit: full commit, 40 hexadecimal digits; `None` where the address follows a branch.
        path: file, folder or glob within it; `None` for every data file.
        branch: the branch or tag that it follows.
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
        ConfigError: it has another form, or its revision is a branch, a tag or a short commit, which may mean other bytes tomorrow.
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


def find_on_hub(pattern: str, *, fetch: bool = True) -> list[Found]:
    """The local copies of the files that a `hub://` address stands for.

    Args:
        fetch: download what is not here yet; if not, it is listed as its address, with the commit as its fingerprint.

    Raises:
        ConfigError: an address of another form.
        SourceError: no such data set or commit, no connection and no full copy in the cache, or no file that matches.
    """
    address = hub_address(pattern)
    commit = address.commit or _newest(address)
    folder = _snapshot(address, commit, fetch)
    if folder is None:
        return [Found(pattern, pattern, listed=Listed(pattern, 1, f"commit={commit}"))]
    root = f"{SCHEME}{address.repository}"
    if address.path is None or (folder / address.path).is_dir():
        local = list(walk(folder / (address.path or "")))
    else:
        paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        expected = [name for name in fnmatch.filter(paths, address.path) if is_data(paths[name].name)]
        names = [name for name in paths if name == address.path or name in expected]
        local = [Found(str(paths[name]), paths[name].as_posix()) for name in names]
    if not local:
        raise SourceError(f"{pattern!r} matches no file of the data set at commit {commit}. Check the path on the hub's page of it")

    def on_hub(path: str) -> str:
        return f"{root}/{Path(path).relative_to(folder).as_posix()}".removesuffix("/.")

    return [Found(one.url, on_hub(one.place), on_hub(one.group) if one.group else "", one.position) for one in local]


def _newest(address: HubAddress) -> str:
    """The commit that a branch is at. The hub alone knows: what its cache remembers of a branch may be of yesterday."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise _not_installed() from error
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
    """A local folder with the files of `address`, downloaded where they are not in the cache; `None` where that is not wanted."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError as error:
        raise _not_installed() from error
    allow = None if address.path is None else [address.path, f"{address.path.rstrip('/')}/**"]
    kind, name = "dataset", address.repository
    try:
        return Path(snapshot_download(name, repo_type=kind, revision=commit, allow_patterns=allow, local_files_only=not fetch))
    except (OSError, ValueError) as error:  # what huggingface_hub raises derives from these
        if not fetch and isinstance(error, LocalEntryNotFoundError):
            return None
        where = f"hub data set {address.repository!r} at commit {commit}"
        raise unreadable(error, f"cannot fetch {where}: {error}. Check the name, the access token (HF_TOKEN) and the connection") from error


def _not_installed() -> SourceError:
    return SourceError("reading hub:// addresses needs huggingface_hub: pip install huggingface_hub")


# A folder of files pinned as a whole: one hash over the names, sizes and contents of everything in it.
#
# It is for folders of images, which may hold millions of files. So nothing is kept of them: the folder is walked in a fixed order, and what was known of it
# before, a file in the same order, is read beside it. A file that looks untouched is not hashed again.


@dataclass(frozen=True, slots=True)
class FolderPin:
    """What a folder held.

    Attributes:
        files, bytes: how many files there are below it, and their size.
        sha256: hash over the relative path, size and content hash of each of them.
    """

    files: int
    bytes: int
    sha256: str

    @property
    def identity(self) -> dict[str, str | int]:
        """What goes into a build's identity: the same on every machine."""
        return asdict(self)


def folder_sign(folder: Path) -> str:
    """A cheap sign of whether anything below `folder` may have changed: over names, sizes and times of change. It differs between machines.

    Raises:
        SourceError: it cannot be read, or is empty.
    """
    digest, files = hashlib.sha256(), 0
    with _readable(folder):
        for name, status in _walk(folder, "", ()):
            digest.update(json.dumps([name, status.st_size, status.st_mtime_ns]).encode() + b"\n")
            files += 1
    _check_any(folder, files)
    return digest.hexdigest()


def pin_folder(folder: Path, known: Path) -> FolderPin:
    """Pin everything below `folder`; links are followed.

    Args:
        known: file in which hashes are remembered between calls; deleting it only costs time.

    Raises:
        SourceError: no such folder, an empty one, a file that cannot be read, or one that changes while it is hashed.
    """
    if not folder.is_dir():
        raise SourceError(f"no folder of images at {folder}. Make it, or set image_dir to another one")
    known.parent.mkdir(parents=True, exist_ok=True)
    temporary, digest = known.with_name(f".{os.getpid()}-{threading.get_ident()}-{known.name}"), hashlib.sha256()
    files = total = 0
    try:
        with _readable(folder), temporary.open("w", encoding="utf-8") as out:
            remembered = _remembered(known)
            before = next(remembered, None)
            for name, status in _walk(folder, "", ()):
                sign = f"{status.st_size}:{status.st_mtime_ns}"
                while before is not None and before[0].split("/") < name.split("/"):
                    before = next(remembered, None)
                looks_as_it_did = before is not None and before[:2] == (name, sign)
                sha256 = before[2] if before is not None and looks_as_it_did else _hash(folder / name, sign)
                out.write(json.dumps([name, sign, sha256]) + "\n")
                digest.update(json.dumps([name, status.st_size, sha256]).encode() + b"\n")
                files, total = files + 1, total + status.st_size
        with _readable(folder):
            temporary.replace(known)
    finally:
        temporary.unlink(missing_ok=True)
    _check_any(folder, files)
    return FolderPin(files, total, digest.hexdigest())


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raises:
    SourceError: something below the folder cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"cannot read the folder of images {folder}: {error}. Make it readable, or set image_dir to another one"
        ) from error


def _check_any(folder: Path, files: int) -> None:
    """Raises:
    SourceError: an empty folder, as a drive leaves it that is not mounted. Its images are not taken for removed.
    """
    if not files:
        raise SourceError(
            f"the folder of images {folder} is empty. Mount its drive or bring the images back; or set image_dir to another one"
        )


def _walk(folder: Path, below: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Relative path and status of every file, in the order of the parts of their paths. `above` are the folders on the way, so that a link into one ends."""
    here = folder.stat()
    mark = here.st_dev, here.st_ino
    if mark in above:
        return
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{below}{entry.name}"
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{name}/", (*above, mark))
        elif entry.is_file():
            yield name, entry.stat()


def _hash(path: Path, sign: str) -> str:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    status = path.stat()
    if f"{status.st_size}:{status.st_mtime_ns}" != sign:
        raise SourceError(f"{path} changes while it is read. Wait until it is written, then build again")
    return sha256


def _remembered(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, sign and hash of the files of an earlier walk, in its order."""
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                name, sign, sha256 = loads(line)
                yield name, sign, sha256
    except (FileNotFoundError, ValueError, TypeError):
        return


# The source files of a domain: which they are, their stable names, and what they hold.


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a domain.

    Attributes:
        name: path relative to the common parent folder of all files of the domain, with `/`; the same on every machine.
        url: absolute local path, or an fsspec URL.
        size: size in bytes, as stored.
        format: `jsonl`, `json`, `csv`, `tsv`, `parquet`, `arrow` or `txt`.
        compression: `gzip`, `zstd`, `bz2`, `xz`, or `None`.
        blocks: hashes of what is stored (see `prep_assets.stores.verification`), once it is pinned: what is read is compared with them.
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
        patterns: files, globs, folders (searched recursively for known suffixes), fsspec URLs, addresses on the hub (`hub://owner/name@commit`).
        base: folder that relative patterns are looked up from.
        format: the format of all files; their suffixes decide where it is `None`. Compression always comes from the suffix.
        fetch: whether a data set of the hub is downloaded; if not, one that is not here yet is one file with its address, to look at only.

    Raises:
        SourceError: a pattern without a file; a file that is empty or of unknown suffix.
        ConfigError: an unknown `format`, or a hub address without a full commit.
    """
    known = sorted(set(FORMATS.values()))
    if format is not None and format not in known:
        raise ConfigError(f"no format {format!r}{nearest(format, known) or '.'} Known: {', '.join(known)}")
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
        return _sign(_info(file.url))
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


# Pins: what the source files of a domain held when a build read them.

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Pin:
    """The content of one source file.

    Attributes:
        name: stable name of the file.
        size: size in bytes, as stored.
        sha256: hash of the stored bytes, in hex.
        blocks: hashes of its blocks, see `prep_assets.stores.verification`.
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
        return tuple(_pin_by_listing(file, by_name.get(file.name)) for file in files)
    pool = ThreadPoolExecutor(os.cpu_count())  # hashing and reading release the global lock
    try:
        return tuple(pool.map(lambda file: _pin_by_listing(file, by_name.get(file.name)), files))
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


def _pin_by_listing(file: SourceFile, known: Pin | None) -> Pin:
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
