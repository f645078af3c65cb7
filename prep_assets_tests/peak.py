"""The most memory that Python and NumPy held at once while something ran. It depends on no machine, unlike what the system says of a process."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def peak(work: Callable[[], object]) -> int:
    """Bytes, beyond those that were held before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
