"""How many workers `workers: auto` means on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from prep_assets.workers.memory import free_memory

Workers = int | Literal["auto"]
MEMORY = 600 << 20
"""Bytes that a worker may take; what builds take is in docs/reliability.md."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def worker_count(workers: Workers) -> int:
    """`workers`, or as many as this process may use processors, and as there is memory for now."""
    return min(_processors(), max(1, free_memory() // MEMORY)) if workers == "auto" else workers


def _processors() -> int:
    """Processors that this process may run on, or fewer where its container has a quota of their time."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text("ascii").split()
        return found if quota == "max" else max(1, min(found, int(quota) // int(period)))
    except (OSError, ValueError):
        return found
