"""Data sets of the Hugging Face hub: `hub://owner/name@commit` or `hub://owner/name@commit/path/*.parquet`.

The commit is written out in full, so that the address always means the same bytes. `@follow:BRANCH` instead means the newest commit of a
branch, as a file in a bucket means its newest content. Files land in the cache of `huggingface_hub`, which answers offline when it has all of
those of a commit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from prep_assets.errors import ConfigError, SourceError
from prep_assets.records.find import Found, is_data, walk
from prep_assets.records.remote import Listed, unreadable

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
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        local = [Found(str(p), p.as_posix()) for p in paths if _is_meant(p.relative_to(folder).as_posix(), address.path)]
    if not local:
        raise SourceError(f"{pattern!r} matches no file of the data set at commit {commit}. Check the path on the hub's page of it")
    return [_on_hub(one, folder, root) for one in local]


def _is_meant(path: str, wanted: str) -> bool:
    return path == wanted or (fnmatchcase(path, wanted) and is_data(path.rpartition("/")[2]))


def _on_hub(one: Found, folder: Path, root: str) -> Found:
    def move(path: str) -> str:
        return f"{root}/{Path(path).relative_to(folder).as_posix()}".removesuffix("/.")

    return Found(one.url, move(one.place), move(one.group) if one.group else "", one.position)


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
