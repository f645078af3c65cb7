"""What `make test` leaves out: five sixths of the examples of random tests and two thirds of the cells of large grids, which `make soak` tries
(PREP_ASSETS_SOAK=1), fsync, and the disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

SOAK = os.environ.get("PREP_ASSETS_SOAK") == "1"


def examples(soak: int) -> int:
    """The number of examples of a test that tries `soak` of them in a soak run."""
    return soak if SOAK else max(10, soak // 6)


FSYNC = os.fsync


def without_fsync() -> None:
    """Let builds in this process return before the disk has their bytes: an fsync costs more than the rest of a small build, and what it
    is good for shows only when the machine dies. The harnesses that simulate that take `FSYNC` or processes of their own.
    """
    os.fsync = lambda _: None


MEMORY, ROOM = Path("/dev/shm"), 2 << 30
"""A file system in memory, and what must be free of it and of the memory itself: ten times what a run was seen to have there."""


def in_memory() -> None:
    """Let the files of tests lie in memory where there is room: on disk, the kernel spends a tenth of a run on making and deleting them.
    Whoever names a folder with TMPDIR gets that, and a soak run writes to disk, so that what holds of one file system alone comes to light.
    """
    if "TMPDIR" in os.environ or SOAK or not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:  # containers' own, of 64 MB
        return
    available = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text("utf-8"), re.MULTILINE)
    if available and min(int(available[1]) << 10, shutil.disk_usage(MEMORY).free) >= ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None
