"""Settings of processes that are ours: the command and its workers. Only their entries import this; what runs in somebody else's process, such as Dagster's
or a notebook's, leaves its collector, its allocators and its signals alone."""

from __future__ import annotations

import ctypes
import gc
import os
from functools import cache

from prep_assets.limits import interrupt_main_thread

BETWEEN = 200_000
"""New objects between two searches for garbage: rows are dictionaries and lists by the million, none of which refers to itself, and modules are no garbage;
searching them as often as Python does takes a tenth of a short command."""
LARGE = 4 << 20
"""Bytes from which on freed memory goes back to the system at once."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def set_up() -> None:
    """Search for garbage less often, give large pieces of memory back, and let a signal end what goes on for too long.

    Else the C library (glibc) keeps what was freed for later, up to 32 MiB a piece once there was one of that size; a record may be as large. Arrow has
    a store of its own, and is told not to use it before it is imported.
    """
    gc.set_threshold(BETWEEN)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_M_MMAP_THRESHOLD, LARGE)
        set_option(_M_TRIM_THRESHOLD, 8 * LARGE)  # quality steps take 20 MiB for a block of texts, again and again
    interrupt_main_thread()
