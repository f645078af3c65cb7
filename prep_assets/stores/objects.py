"""What publication needs of an object store, and no more: put if absent, put if unchanged, read, and for pruning a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from prep_assets.errors import StoreError


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


class Objects(Protocol):
    """Objects by key below a common prefix. What was written is seen by everybody at once.

    Every method raises `Unanswered` where the store keeps failing; whether a write took effect is then unknown.
    """

    @property
    def url(self) -> str:
        """Where they are, for messages; it holds no credentials."""
        ...

    def get(self, key: str) -> Held | None:
        """An object in memory; `None` where there is none."""
        ...

    def read(self, key: str, start: int = 0) -> Iterator[bytes]:
        """An object from byte `start` on, in blocks.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object, whatever was there."""
        ...

    def put_new(self, key: str, data: bytes) -> bool:
        """Write an object if there is none. False: there is one, which may be what an earlier attempt of this very call wrote."""
        ...

    def put_if(self, key: str, data: bytes, tag: str) -> bool:
        """Write an object if it is still the one of that tag. False: it is not, or an earlier attempt of this very call has written it."""
        ...

    def upload(self, key: str, path: Path) -> None:
        """Write an object of any size, whatever was there."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        ...

    def entries(self, prefix: str) -> Iterator[Entry]:
        """The objects whose keys begin with a prefix that ends with ``/``."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """What follows a prefix that ends with ``/`` or is empty, up to the next ``/``, each once, sorted."""
        ...

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, the longer the more there were."""
        ...
