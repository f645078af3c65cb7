"""Data sets of the Hugging Face hub: `hub://owner/name@commit` or `hub://owner/name@commit/path/*.parquet`.

The commit is written out in full, so that the address means the same bytes for ever. Files land in the cache of `huggingface_hub`, which
answers offline when it has all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from prep_assets.errors import ConfigError, SourceError
from prep_assets.records.find import Found, is_data, walk
from prep_assets.records.remote import unreadable

SCHEME = "hub://"
_ADDRESS = re.compile(r"hub://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<commit>[^/]+))?(?:/(?P<path>.+))?")
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A pinned data set on the hub.

    Attributes:
        repository: `owner/name`.
        commit: full commit, 40 hexadecimal digits.
        path: file, folder or glob within it; `None` for every data file.
    """

    repository: str
    commit: str
    path: str | None


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
        raise ConfigError(f"{text!r} is no hub address. It must be hub://owner/name@commit or hub://owner/name@commit/path/*.parquet")
    commit = match["commit"] or ""
    if not _FULL_COMMIT.fullmatch(commit):
        raise ConfigError(
            f"{text!r} needs a full commit after @ (40 hexadecimal digits), not {commit!r}: copy it from the history of the data set"
        )
    return HubAddress(match["repository"], commit, match["path"])


def find_on_hub(pattern: str) -> list[Found]:
    """The local copies of the files that a `hub://` address stands for.

    Raises:
        ConfigError: an address of another form.
        SourceError: no such data set or commit, no connection and no full copy in the cache, or no file that matches.
    """
    address = hub_address(pattern)
    folder = _snapshot(address)
    root = f"{SCHEME}{address.repository}"
    if address.path is None or (folder / address.path).is_dir():
        local = list(walk(folder / (address.path or "")))
    else:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        local = [Found(str(p), p.as_posix()) for p in paths if _is_meant(p.relative_to(folder).as_posix(), address.path)]
    if not local:
        raise SourceError(f"{pattern!r} matches no file of the data set at commit {address.commit}. Check the path on the hub's page of it")
    return [_on_hub(one, folder, root) for one in local]


def _is_meant(path: str, wanted: str) -> bool:
    return path == wanted or (fnmatchcase(path, wanted) and is_data(path.rpartition("/")[2]))


def _on_hub(one: Found, folder: Path, root: str) -> Found:
    def move(path: str) -> str:
        return f"{root}/{Path(path).relative_to(folder).as_posix()}".removesuffix("/.")

    return Found(one.url, move(one.place), move(one.group) if one.group else "", one.position)


def _snapshot(address: HubAddress) -> Path:
    """A local folder with the files of `address`, downloaded where they are not in the cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise SourceError("reading hub:// addresses needs huggingface_hub: pip install huggingface_hub") from error
    allow = None if address.path is None else [address.path, f"{address.path.rstrip('/')}/**"]
    try:
        return Path(snapshot_download(address.repository, repo_type="dataset", revision=address.commit, allow_patterns=allow))
    except (OSError, ValueError) as error:  # what huggingface_hub raises derives from these
        where = f"hub data set {address.repository!r} at commit {address.commit}"
        raise unreadable(error, f"cannot fetch {where}: {error}. Check the name, the access token (HF_TOKEN) and the connection") from error
