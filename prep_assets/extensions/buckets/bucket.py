"""The objects of a bucket."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, StoreError, error_text
from prep_assets.stores.remote import Unanswered

# A bucket of S3, Google Cloud or Azure, accessed with `obstore`, which signs, splits and retries requests. Its threads do not survive a fork.
#
# Publication needs four operations: put if absent, put if unchanged, get, and, for pruning, list.

BLOCK = 1 << 20
PAGE = 1000
"""Objects per page of a listing."""
REPEATED = 4
"""Most consecutive retries of a download that made no progress, or of a write that conflicts with another one."""
RETRIES: dict[str, Any] = {
    "max_retries": 8,
    "retry_timeout": timedelta(minutes=1),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 2},
}
_METADATA_SERVICE = "169.254.169.254"
"""The cloud's metadata service, which is asked for the machine's role when the environment has no credentials."""
CREDENTIALS = {"gs": "GOOGLE_APPLICATION_CREDENTIALS", "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"}
"""Environment variables with credentials, by scheme."""
T = TypeVar("T")


class Held(NamedTuple):
    """A small object.

    Attributes:
        data: its content.
        tag: changes with every write.
        modified: time of the last write, in seconds by the clock of the object store.
    """

    data: bytes
    tag: str
    modified: float


class Entry(NamedTuple):
    """An entry of a listing: key, size in bytes, and time of the last write, as in `Held`."""

    key: str
    size: int
    modified: float


def checked(url: str) -> str:
    """Return the address of a folder in a bucket, normalized.

    Raises:
        ConfigError: no bucket, or credentials in the address, which would end up in logs.
    """
    scheme, _, rest = url.partition("://")
    if "@" in rest.split("/", 1)[0] or "?" in rest or "#" in rest:
        raise ConfigError(
            f"the address of a {scheme} bucket holds only bucket and prefix. Give credentials by the environment "
            f"({_credentials(scheme)}, a role of the machine …), so that they stay out of logs"
        )
    parts = [part for part in rest.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise ConfigError(f"{url!r} names no bucket and prefix, e.g. {scheme}://bucket/stores")
    return f"{scheme}://{'/'.join(parts)}"


def _credentials(scheme: str) -> str:
    return CREDENTIALS.get("az" if scheme == "abfss" else scheme, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")


class Bucket(Struct, frozen=True):
    """The objects below an address, by key. Reads are strongly consistent: a finished write is visible to everybody at once.

    It is pickled as the address, and finds credentials in the process that unpickles it. Every method raises `Unanswered` when the object store keeps
    failing; whether a write took effect is then unknown.

    Attributes:
        url: holds no credentials, so messages show it.
    """

    url: str

    def below(self, prefix: str) -> Bucket:
        """Return the bucket of the objects below a prefix."""
        return Bucket(f"{self.url}/{prefix}")

    def get(self, key: str) -> Held | None:
        """Return an object, read into memory; `None` if it does not exist."""
        import obstore

        def fetch_object() -> Held:
            response = obstore.get(self._store, self._key(key))
            data = bytes(response.bytes())
            return Held(data, response.meta[self._tag] or "", response.meta["last_modified"].timestamp())

        try:
            return self._read(fetch_object, key)
        except FileNotFoundError:
            return None

    def read(self, key: str, start: int = 0) -> Iterator[bytes]:
        """Yield the blocks of an object from byte `start` on.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        import obstore

        def open_stream() -> Iterator[Any]:
            options: Any = {"range": {"offset": position}} if position else {}
            return iter(obstore.get(self._store, self._key(key), options=options).stream(min_chunk_size=BLOCK))

        position = start
        for block in self._resumed(open_stream, lambda: position, key):  # noqa: B023
            yield (data := bytes(block))
            position += len(data)

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing any that exists."""
        import obstore

        self._overwrite(lambda: obstore.put(self._store, self._key(key), data, use_multipart=False), key)

    def put_new(self, key: str, data: bytes) -> bool:
        """Write an object if it does not exist. Return false if it does; an earlier attempt of this very call may have written it."""
        return self._put(key, data, "create")

    def put_if(self, key: str, data: bytes, tag: str) -> bool:
        """Write an object if it still has that tag. Return false if it has not; an earlier attempt of this very call may have written it."""
        return self._put(key, data, {self._tag: tag})

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._request(lambda: obstore.put(self._store, self._key(key), data, mode=mode, use_multipart=False), key)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def upload(self, key: str, path: Path) -> None:
        """Write an object of any size, replacing any that exists."""
        import obstore

        self._overwrite(lambda: obstore.put(self._store, self._key(key), path), key)

    def _read(self, request: Callable[[], T], key: str) -> T:
        """Return the answer to a request, retried if it breaks off."""
        answer: T = next(self._resumed(lambda: iter([request()]), lambda: None, key))
        return answer

    def _overwrite(self, write: Callable[[], object], key: str) -> None:
        """Write an object; retry after a conflict with another writer of the same object (409)."""
        from obstore.exceptions import AlreadyExistsError

        for attempt in range(1, REPEATED + 1):
            try:
                self._request(write, key)
                return
            except AlreadyExistsError:
                self.pause(attempt)
        raise Unanswered(f"{self.url}/{key}: gave up after {REPEATED} conflicting writes. Try again")

    def delete(self, key: str) -> None:
        """Delete an object, if it exists."""
        import obstore

        try:
            self._request(lambda: obstore.delete(self._store, self._key(key)), key)
        except FileNotFoundError:
            return

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose keys begin with a prefix that ends with ``/``, in the order of their keys."""
        import obstore

        last = ""

        def pages() -> Iterator[Any]:
            return iter(obstore.list(self._store, self._key(prefix).rstrip("/"), offset=last or None, chunk_size=PAGE))

        for page in self._resumed(pages, lambda: last, prefix):  # noqa: B023
            for entry in page:
                if (path := str(entry["path"])) > last:  # a server may begin with the offset, or look past it
                    yield Entry(path[len(self._key("")) :], int(entry["size"]), entry["last_modified"].timestamp())
                    last = path

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the address, sorted."""
        import obstore

        listing = self._read(lambda: obstore.list_with_delimiter(self._store, self._key("").rstrip("/") or None), "")
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in listing["common_prefixes"])

    def _resumed(self, open_stream: Callable[[], Iterator[Any]], position: Callable[[], Any], key: str) -> Iterator[Any]:
        """Yield the parts of a streamed answer. If it breaks off, it is requested again from the `position` that the reader has reached."""
        last, failures = position(), 0
        while True:
            try:
                stream = self._request(open_stream, key)
                while (part := self._request(lambda: next(stream, None), key)) is not None:  # noqa: B023
                    yield part
                return
            except Unanswered:
                last, failures = position(), failures + 1 if position() == last else 1
                if failures > REPEATED:
                    raise
                self.pause(failures)

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, with exponential backoff and jitter."""
        time.sleep(min(5.0, 0.05 * 2**attempt) * random.random())

    def _key(self, key: str) -> str:
        prefix = self.url.partition("://")[2].partition("/")[2]
        return f"{prefix}/{key}" if prefix else key

    @property
    def _tag(self) -> Literal["version", "e_tag"]:
        """The precondition of a conditional write: Google Cloud compares generations, all others compare ETags."""
        return "version" if self.url.startswith("gs:") else "e_tag"

    @property
    def _store(self) -> Any:
        scheme, _, rest = self.url.partition("://")
        if not _CLIENT_PROCESS:
            _CLIENT_PROCESS.append(os.getpid())
        return _client(f"{scheme}://{rest.partition('/')[0]}", os.getpid())

    def _request(self, request: Callable[[], T], key: str) -> T:
        """Return the answer to a request; raise failures in one sentence without secrets."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            return request()
        except (AlreadyExistsError, PreconditionError):
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise StoreError(f"{self.url}: there is no such bucket. Create it, or fix the address") from None
            raise FileNotFoundError(f"{self.url}/{key}") from None
        except (ConfigError, StoreError):
            raise
        except Exception as error:
            if _METADATA_SERVICE in str(error):
                raise Unanswered(
                    f"{self.url}: no credentials were found. Set {_credentials(self.url.partition(':')[0])}, or run where the machine has a role"
                ) from None
            raise Unanswered(
                f"{self.url}/{key}: {error_text(error)}. Look at the address, the credentials and the network, then try again"
            ) from None


_CLIENT_PROCESS: list[int] = []
"""The id of the process that opened the first client; a forked process inherits it."""


@bounded_cache("clients of buckets", 64)
def _client(bucket: str, process: int) -> Any:
    """Return the client of a bucket.

    Raises:
        StoreError: this process was forked from one that has a client. The threads that carry out requests do not survive a fork, so a request would
            wait forever.
    """
    if process != _CLIENT_PROCESS[0]:
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
