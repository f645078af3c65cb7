"""Pages of mapped files, which this process gives back while it goes through them.

What was read of a mapped file counts as memory of the process, although the system could take it back. Given back, it stays where the system keeps
files, and is there again as soon as somebody reads it. So work on a long file takes the memory of a stretch of it, and never of the file.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

ROOM = 24 << 20
"""Bytes of mapped files that a process keeps. To get a page again takes 2 µs, so it gives back many at a time, and not often."""
LOOK = 4 << 20
"""Bytes that are gone through between two looks at how much it has."""
_MEMORY = Path("/proc/self/statm")
_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_since_look = 0
_others = 0


def mapped(array: np.memmap[Any, Any]) -> npt.NDArray[Any]:
    """The elements of a mapped file, which are given back from now on. A slice of them is several times cheaper than one of an `np.memmap`."""
    if isinstance(array.base, mmap.mmap):
        _MAPPED.add(array.base)
    return np.asarray(array)


def went_through(count: int) -> None:
    """Note that about so many bytes of mapped files were read or written one after another, and give pages back where it is time."""
    global _since_look
    _since_look += count
    if _since_look >= LOOK:
        give_back()


def give_back() -> None:
    """Give all pages back where there are more than `ROOM`. Whoever still reads them gets them again."""
    global _since_look, _others
    _since_look = 0
    found = _of_files()
    _others = min(_others, found)
    if found > _others + ROOM:
        for each in list(_MAPPED):
            each.madvise(mmap.MADV_DONTNEED)
        _others = _of_files()


def _of_files() -> int:
    """Bytes of files, the code of libraries among them, that this process has in memory; 0 where the system does not say."""
    try:
        return int(_MEMORY.read_bytes().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
