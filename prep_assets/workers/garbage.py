"""Fewer searches for garbage while rows are read: rows are dictionaries and lists by the million, none of which refers to itself.

Python looks for objects that refer to each other after each 700 new ones, and again and again through all that it has, most of it modules. Here
what is there already is left out, and a search comes after `BETWEEN` new objects. What nobody refers to is freed at once, as ever.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BETWEEN = 50_000
_LOCK = threading.Lock()
_inside = 0
_before = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Search for garbage less often. Uses may stand inside each other, or run in several threads: the last one to end restores what was."""
    global _inside, _before
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
