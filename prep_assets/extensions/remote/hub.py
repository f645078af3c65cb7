"""Data sets of the Hugging Face hub: `hub://owner/name@commit` or `hub://owner/name@commit/path/*.parquet`.

The commit is written in full, so that the address always means the same bytes. `@follow:BRANCH` means the newest commit of a branch instead, as a file in
a bucket means its newest content. Files are kept in the cache of `huggingface_hub`, which works offline once it has all files of a commit.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from msgspec import Struct

from prep_assets.data.addresses import ListedFile, MatchedFile, unreadable
from prep_assets.data.local_files import is_data, walk
from prep_assets.errors import ConfigError, SourceError

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


def find(pattern: str, *, fetch: bool = True) -> list[MatchedFile]:
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
        return [MatchedFile(pattern, pattern, listed=ListedFile(pattern, 1, f"commit={commit}"), fetched=False)]
    root = f"hub://{address.repository}"
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


def look(url: str) -> ListedFile:
    """Raises:
    SourceError: always, as files of the hub are looked at in the folder to which they are fetched.
    """
    raise SourceError(f"{url} is not fetched")


def open(url: str) -> BinaryIO:
    """Raises:
    SourceError: always, see `look`.
    """
    raise SourceError(f"{url} is not fetched")
