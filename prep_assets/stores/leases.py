"""Leases: a reader holds one on each version that it has open, and `prune` leaves those alone.

A lease is a shared lock of the kernel on the version's folder. It ends with the process, its forked workers included, so none is left behind.
Where a file system has no such locks (some network file systems), there are no leases, and an open file stays readable as long as that
system keeps it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

_HELD: WeakValueDictionary[tuple[int, Path], Lease] = WeakValueDictionary()
_LOCK = threading.Lock()


class Lease:
    """Held for as long as this object lives. All readers of a process share the one of a version."""

    def __init__(self, version: Path) -> None:
        self._handle = os.open(version, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # being pruned, which the reader finds out; or a file system without locks
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._handle)


def lease(version: Path) -> Lease | None:
    """The lease of this process on a version; `None` where it is not there."""
    key = (os.getpid(), version)
    with _LOCK:
        held = _HELD.get(key)
        if held is None:
            try:
                held = _HELD[key] = Lease(version)
            except OSError:
                return None
        return held


@contextmanager
def alone(version: Path) -> Iterator[bool]:
    """Whether a version has no readers; while the block lasts none can take a lease on it."""
    handle = os.open(version, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _locked(handle)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def is_read(version: Path) -> bool:
    """Whether a reader has a version open."""
    with alone(version) as nobody:
        return not nobody
