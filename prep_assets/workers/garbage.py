"""Fewer searches for garbage while rows are read: rows are dictionaries and lists by the million, none of which refers to itself.

Python looks for objects that refer to each other after each 700 new ones, and again and again through all that it has, most of it modules. Here
what is there already is left out, and a search comes after `BETWEEN` new objects. Objects without references are freed at once, as ever.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

BETWEEN = 50_000
LARGE = 4 << 20
"""Bytes from which on freed memory goes back to the system at once."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LOCK = threading.Lock()
_inside = 0
_before = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Search for garbage less often. Uses may stand inside each other, or run in several threads: the last one to end restores what was."""
    global _inside, _before
    _give_large_pieces_back()
    with _LOCK:
        if not _inside:
            _before = gc.get_threshold()
            gc.freeze()
            gc.set_threshold(BETWEEN, *_before[1:])
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)
                gc.unfreeze()


@cache
def _give_large_pieces_back() -> None:
    """Else the C library (glibc) keeps what was freed for later, up to 32 MiB a piece once there was one of that size; a record may be as large. Arrow
    has a store of its own, which it is told not to use."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # read when it is imported
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.set_memory_pool(arrow.system_memory_pool())
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_M_MMAP_THRESHOLD, LARGE)
        set_option(_M_TRIM_THRESHOLD, 4 * LARGE)
