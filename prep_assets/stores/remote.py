"""Stores that are kept elsewhere: what an address names, and its mirror on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from prep_assets import plugins
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores import files
from prep_assets.stores.files import FOLDER, os_errors_in_words
from prep_assets.stores.verification import replace_text
from prep_assets.stores.version_folders import Backend, LocalBackend

# Where stores are kept is decided by the scheme of an address. The entry point `prep_assets.backends` of that name is a function from an address to a
# `Remote`; `prep_assets.extensions.buckets` has ours.


class Unanswered(StoreError):
    """Where stores are kept did not answer, or its answer does not say whether the request took effect."""


class Depot(Protocol):
    """Finished shards of a build, for workers that share no folder with the process that merges them. A shard is whole or absent."""

    def names(self, folder: str = "") -> Iterator[str]:
        """Yield the names of shards, of all or of one folder."""

    def put(self, name: str, folder: Path) -> None:
        """Store the files of a folder."""

    def fetch(self, name: str, folder: Path) -> None:
        """Write what is stored under a name into `folder`."""


class Remote(Protocol):
    """What an address names: a store, or a folder with stores below it. It is pickled as its address, and holds no credentials."""

    @property
    def url(self) -> str:
        """The address, normalized; messages show it."""

    @property
    def is_store(self) -> bool:
        """Whether a store is here."""

    def folders(self) -> list[str]:
        """The names of the folders directly below it that may hold stores, sorted."""

    def below(self, path: str) -> Remote:
        """What is at a path below it."""

    def backend(self, mirror: LocalBackend) -> Backend:
        """The versions of the store here; they are written to and read from `mirror`."""

    def depot(self) -> Depot:
        """Shards of a build below this address."""


def remote_at(url: str) -> Remote:
    """Return what an address names.

    Raises:
        ConfigError: an unknown scheme, or an address that its package does not take. No message repeats credentials in it.
    """
    known = plugins.ours("backends")
    known |= plugins.added("backends", known)
    if (scheme := url.partition("://")[0]) not in known:
        raise ConfigError(f"{scheme}://…: stores are written to {', '.join(f'{name}://' for name in known)} or a folder")
    remote: Remote = plugins.load(known[scheme])(url)
    return remote


def is_address(location: str | Path) -> bool:
    """Return whether a location is an address and not a path."""
    return isinstance(location, str) and "://" in location


# The mirror: the local folder of stores that are kept elsewhere. Builds are written to it, and what is read is fetched to it.
#
# It has the layout of a folder of stores on disk, so every reader of stores can read it. Its file `MIRROR` has the address.
#
#     <cache>/stores/<end of the address>-<hash of it>/
#         bucket.json                          the address
#         <asset>[/<partition>]/versions/…     versions that were built here or fetched

MIRROR = "bucket.json"


def cache_folder() -> Path:
    """Return the folder of mirrors."""
    folder = files.cache_folder()
    if folder is None:
        raise ConfigError(f"stores in a bucket need a folder on this machine, and {FOLDER} is empty. Name one, or leave the variable out")
    return folder


def local_root(location: str | Path) -> Path:
    """Return the local folder of stores for a folder or an address, whose mirror is made.

    Raises:
        ConfigError: see `remote_at`.
    """
    if not is_address(location):
        return Path(location)
    url = remote_at(str(location)).url
    name = re.sub(r"[^A-Za-z0-9]+", "-", url.rpartition("/")[2])
    root = cache_folder() / "stores" / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    with os_errors_in_words(root):
        root.mkdir(parents=True, exist_ok=True)
        if not (root / MIRROR).exists():
            replace_text(root / MIRROR, json.dumps({"url": url}) + "\n")
    return root


def remote_of(folder: Path) -> Remote | None:
    """Return what a folder in a mirror stands for; `None` for any other folder."""
    resolved = os.path.realpath(folder)
    for parts_below in range(3):
        above, *below = resolved.rsplit("/", parts_below) if parts_below else (resolved,)
        if os.path.isfile(f"{above}/{MIRROR}"):  # noqa: PTH113 each look at a store asks for three of them
            remote = remote_at(json.loads(Path(above, MIRROR).read_text("utf-8"))["url"])
            return remote.below("/".join(below)) if below else remote
    return None


def backend_of(directory: Path) -> Backend:
    """Return the backend of the store in a folder: what the folder mirrors, or the folder itself."""
    remote, local = remote_of(directory), LocalBackend(directory)
    return local if remote is None else remote.backend(local)


Item = TypeVar("Item")
T = TypeVar("T")
AT_ONCE = 8
"""Requests that are under way at a time."""


def at_once(work: Callable[[Item], T], items: Iterable[Item], workers: int = AT_ONCE) -> list[T]:
    """Map `work` over the items in `workers` threads. The first failure, or Ctrl-C, cancels the items that have not begun."""
    pool = ThreadPoolExecutor(workers)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)
