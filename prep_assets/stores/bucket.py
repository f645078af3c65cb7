"""A bucket, and the folder on this machine that stands for it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, StoreError, without_secrets
from prep_assets.stores import files
from prep_assets.stores.files import FOLDER, told

# A bucket of S3, Google Cloud or Azure, by way of `obstore`, which signs, splits and repeats requests. Its threads do not survive a fork.
#
# Publication needs no more of it than this: put if absent, put if unchanged, read, and for pruning a list.

SCHEMES = ("s3", "gs", "az", "abfss", "memory")
BLOCK = 1 << 20
PAGE = 1000
"""Objects in an answer to a list."""
REPEATED = 4
"""How often a download that breaks is taken up again without a byte having come, or a write is repeated that meets another one."""
RETRIES: dict[str, Any] = {
    "max_retries": 8,
    "retry_timeout": timedelta(minutes=1),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 2},
}
_NOBODY = "169.254.169.254"
"""Where a machine of a cloud is asked for its role, when the environment has no credentials."""
CREDENTIALS = {"gs": "GOOGLE_APPLICATION_CREDENTIALS", "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"}
"""Variables of the environment that have them, by scheme."""
T = TypeVar("T")


class Unanswered(StoreError):
    """The store did not answer, or not in a way that says whether anything was done."""


class Held(NamedTuple):
    """A small object.

    Attributes:
        data: what it holds.
        tag: changes whenever it is written.
        modified: when that was, in seconds by the clock of the store.
    """

    data: bytes
    tag: str
    modified: float


class Entry(NamedTuple):
    """An object of a list: its key, its size in bytes, and when it was written, as in `Held`."""

    key: str
    size: int
    modified: float


def is_bucket(location: str | Path) -> bool:
    """Whether a location is an address and not a path."""
    return isinstance(location, str) and "://" in location


def checked(url: str) -> str:
    """The address of a folder in a bucket, in one spelling.

    Raises:
        ConfigError: another scheme, no bucket, or credentials in it, which would end up in logs.
    """
    scheme, _, rest = url.partition("://")
    if "@" in rest.split("/", 1)[0] or "?" in rest or "#" in rest:
        raise ConfigError(
            f"the address of a {scheme} bucket holds only bucket and prefix. Give credentials by the environment "
            f"({_credentials(scheme)}, a role of the machine …), so that they stay out of logs"
        )
    if scheme not in SCHEMES:
        raise ConfigError(f"{url!r}: stores are written to {', '.join(f'{each}://' for each in SCHEMES[:-1])} or a folder")
    parts = [part for part in rest.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise ConfigError(f"{url!r} names no bucket and prefix, e.g. {scheme}://bucket/stores")
    return f"{scheme}://{'/'.join(parts)}"


def _credentials(scheme: str) -> str:
    return CREDENTIALS.get("az" if scheme == "abfss" else scheme, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects by key below an address. What was written is seen by everybody at once.

    It travels to other processes as the address, and finds its credentials there. Every method raises `Unanswered` where the store keeps failing;
    whether a write took effect is then unknown.

    Attributes:
        url: for messages as well; it holds no credentials.
    """

    url: str

    def below(self, prefix: str) -> Bucket:
        """The objects below a prefix of these."""
        return Bucket(f"{self.url}/{prefix}")

    def get(self, key: str) -> Held | None:
        """An object in memory; `None` where there is none."""
        import obstore

        def got() -> Held:
            found = obstore.get(self._store, self._key(key))
            data = bytes(found.bytes())
            return Held(data, found.meta[self._tag] or "", found.meta["last_modified"].timestamp())

        try:
            return self._read(got, key)
        except FileNotFoundError:
            return None

    def read(self, key: str, start: int = 0) -> Iterator[bytes]:
        """An object from byte `start` on, in blocks.

        Raises:
            FileNotFoundError: there is none.
        """
        import obstore

        def some() -> Iterator[Any]:
            options: Any = {"range": {"offset": at}} if at else {}
            return iter(obstore.get(self._store, self._key(key), options=options).stream(min_chunk_size=BLOCK))

        at = start
        for block in self._going_on(some, lambda: at, key):  # noqa: B023
            yield (data := bytes(block))
            at += len(data)

    def put(self, key: str, data: bytes) -> None:
        """Write an object, whatever was there."""
        import obstore

        self._unconditionally(lambda: obstore.put(self._store, self._key(key), data, use_multipart=False), key)

    def put_new(self, key: str, data: bytes) -> bool:
        """Write an object if there is none. False: there is one, which may be what an earlier attempt of this very call wrote."""
        return self._put(key, data, "create")

    def put_if(self, key: str, data: bytes, tag: str) -> bool:
        """Write an object if it is still the one of that tag. False: it is not, or an earlier attempt of this very call has written it."""
        return self._put(key, data, {self._tag: tag})

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._asked(lambda: obstore.put(self._store, self._key(key), data, mode=mode, use_multipart=False), key)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def upload(self, key: str, path: Path) -> None:
        """Write an object of any size, whatever was there."""
        import obstore

        self._unconditionally(lambda: obstore.put(self._store, self._key(key), path), key)

    def _read(self, ask: Callable[[], T], key: str) -> T:
        """What the bucket answers, asked again where the answer broke off."""
        answer: T = next(self._going_on(lambda: iter([ask()]), lambda: None, key))
        return answer

    def _unconditionally(self, write: Callable[[], object], key: str) -> None:
        """Write; try again after a conflict with another writer of the same object (409)."""
        from obstore.exceptions import AlreadyExistsError

        for attempt in range(1, REPEATED + 1):
            try:
                self._asked(write, key)
                return
            except AlreadyExistsError:
                self.pause(attempt)
        raise Unanswered(f"{self.url}/{key}: others wrote it {REPEATED} times at the same moment. Try again")

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        import obstore

        try:
            self._asked(lambda: obstore.delete(self._store, self._key(key)), key)
        except FileNotFoundError:
            return

    def entries(self, prefix: str) -> Iterator[Entry]:
        """The objects whose keys begin with a prefix that ends with ``/``."""
        import obstore

        last = ""

        def pages() -> Iterator[Any]:
            return iter(obstore.list(self._store, self._key(prefix).rstrip("/"), offset=last or None, chunk_size=PAGE))

        for page in self._going_on(pages, lambda: last, prefix):  # noqa: B023
            for each in page:
                if (path := str(each["path"])) > last:  # a server may begin with the offset, or look past it
                    yield Entry(path[len(self._key("")) :], int(each["size"]), each["last_modified"].timestamp())
                    last = path

    def folders(self, prefix: str) -> list[str]:
        """What follows a prefix that ends with ``/`` or is empty, up to the next ``/``, each once, sorted."""
        import obstore

        found = self._read(lambda: obstore.list_with_delimiter(self._store, self._key(prefix).rstrip("/") or None), prefix)
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def _going_on(self, begin: Callable[[], Iterator[Any]], place: Callable[[], Any], what: str) -> Iterator[Any]:
        """What an answer in parts gives. Where it breaks off it is asked for again, from the place that its reader has come to."""
        before, failed = place(), 0
        while True:
            try:
                stream = self._asked(begin, what)
                while (part := self._asked(lambda: next(stream, None), what)) is not None:  # noqa: B023
                    yield part
                return
            except Unanswered:
                before, failed = place(), failed + 1 if place() == before else 1
                if failed > REPEATED:
                    raise
                self.pause(failed)

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, the longer the more there were."""
        time.sleep(min(5.0, 0.05 * 2**attempt) * random.random())

    def _key(self, key: str) -> str:
        prefix = self.url.partition("://")[2].partition("/")[2]
        return f"{prefix}/{key}" if prefix else key

    @property
    def _tag(self) -> Literal["version", "e_tag"]:
        """What a conditional write names: Google Cloud compares generations, all others compare ETags."""
        return "version" if self.url.startswith("gs:") else "e_tag"

    @property
    def _store(self) -> Any:
        scheme, _, rest = self.url.partition("://")
        if not _FIRST:
            _FIRST.append(os.getpid())
        return _opened(f"{scheme}://{rest.partition('/')[0]}", os.getpid())

    def _asked(self, ask: Callable[[], T], key: str) -> T:
        """What the bucket answers; what it says of failures in one sentence without secrets."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            return ask()
        except (AlreadyExistsError, PreconditionError):
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise StoreError(f"{self.url}: there is no such bucket. Create it, or fix the address") from None
            raise FileNotFoundError(f"{self.url}/{key}") from None
        except (ConfigError, StoreError):
            raise
        except Exception as error:
            if _NOBODY in str(error):
                raise Unanswered(
                    f"{self.url}: no credentials were found. Set {_credentials(self.url.partition(':')[0])}, or run where the machine has a role"
                ) from None
            raise Unanswered(
                f"{self.url}/{key}: {error_text(error)}. Look at the address, the credentials and the network, then try again"
            ) from None


def error_text(error: Exception) -> str:
    """What a library says of a failure: its first lines, without credentials."""
    text = " ".join(str(error).split("\n\nDebug source")[0].split())[:500]
    return without_secrets(text)


_FIRST: list[int] = []
"""The process that opened the first client here, or the one that this one was forked from."""


@bounded_cache("clients of buckets", 64)
def _opened(bucket: str, process: int) -> Any:
    """The client of a bucket.

    Raises:
        StoreError: in a process that was forked from one that has a client: the threads that carry out requests do not come along, and it would
            wait forever.
    """
    if process != _FIRST[0]:
        raise StoreError(
            f"{bucket}: this process was forked from one that has used buckets, and cannot. Open the store before workers are forked, as "
            "data sets do, or have them started with multiprocessing_context='spawn'"
        )
    try:
        from obstore.store import MemoryStore, from_url
    except ModuleNotFoundError as error:
        raise ConfigError(f"{bucket}: buckets need obstore. Install it with: pip install 'prep-assets[s3]'") from error
    if bucket.startswith("memory:"):
        return MemoryStore()
    try:
        return from_url(bucket, retry_config=RETRIES)  # type: ignore[call-overload]
    except Exception as error:
        raise ConfigError(
            f"{bucket}: {error_text(error)}. Set {_credentials(bucket.partition(':')[0])}, and the region where there is one"
        ) from None


# The folder on this machine that stands for a folder of stores in a bucket: builds are written in it, what is read is fetched to it.
#
# It looks like a folder of stores on disk, so that whatever reads stores reads it. Its file `BUCKET` says which bucket it stands for.
#
#     <cache>/stores/<end of the address>-<hash of it>/
#         bucket.json                          the address
#         <asset>[/<partition>]/versions/…     versions that were built here or fetched
#     <cache>/blobs/<sha256>                   their files, under other names of the same bytes on disk

BUCKET = "bucket.json"


def cache_folder() -> Path:
    """Where mirrors and blobs are."""
    folder = files.cache_folder()
    if folder is None:
        raise ConfigError(f"stores in a bucket need a folder on this machine, and {FOLDER} is empty. Name one, or leave the variable out")
    return folder


def local_root(location: str | Path) -> Path:
    """The folder of stores on this machine for a folder or an address.

    Raises:
        ConfigError: an address that is not that of a bucket.
    """
    if not is_bucket(location):
        return Path(location)
    url = checked(str(location))
    name = re.sub(r"[^A-Za-z0-9]+", "-", url.rpartition("/")[2])
    root = cache_folder() / "stores" / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    with told(root):
        root.mkdir(parents=True, exist_ok=True)
        if not (root / BUCKET).exists():
            temporary = root / f".{BUCKET}-{os.getpid()}"
            temporary.write_text(json.dumps({"url": url}) + "\n", "utf-8")
            temporary.replace(root / BUCKET)
    return root


def bucket_of(folder: Path) -> Bucket | None:
    """What a folder in a mirror stands for; `None` for any other folder."""
    real = folder.resolve()
    for above in (real, *list(real.parents)[:2]):
        if (above / BUCKET).is_file():
            url = json.loads((above / BUCKET).read_text("utf-8"))["url"]
            below = real.relative_to(above).as_posix()
            return Bucket(url) if below == "." else Bucket(url).below(below)
    return None
