"""What `make test` leaves out: five sixths of the examples of random tests, four fifths of the code points on which engines are compared, and two thirds of
the cells of large grids, which `make soak` tries (PREP_ASSETS_SOAK=1), fsync, and the disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SOAK = os.environ.get("PREP_ASSETS_SOAK") == "1"


def examples(soak: int) -> int:
    """The number of examples of a test that tries `soak` of them in a soak run."""
    return soak if SOAK else max(10, soak // 6)


def thinned(values: Iterable[Any], every: int = 3) -> list[Any]:
    """Cells of a grid of one parameter, of which `make test` tries the first of so many, and a soak run all."""
    return [value if at % every == 0 else pytest.param(value, marks=pytest.mark.soak) for at, value in enumerate(values)]


FEW_CODE_POINTS = ((0, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xB000), (0xFE00, 0x10000), (0x1F300, 0x1FB00))


def few_code_points(patch: pytest.MonkeyPatch) -> None:
    """Let engines be compared on a fifth of the code points, what the samples have among them: on all it takes four seconds for each of fifty tokenizers.
    A text with one of the others goes to the reference. What is found is kept apart from what the user's own builds find."""
    from prep_assets.stores.files import Kept, key_of
    from prep_assets.text import engines, suspects

    if not SOAK:
        patch.setattr(suspects, "TRIED", FEW_CODE_POINTS)
        patch.setattr(engines, "KEPT", Kept(f"engines-{key_of(FEW_CODE_POINTS)[:8]}", 256))


FSYNC = os.fsync


def without_fsync() -> None:
    """Let builds in this process return before the disk has their bytes: an fsync costs more than the rest of a small build, and what it
    is good for shows only when the machine dies. The harnesses that simulate that take `FSYNC` or processes of their own.
    """
    os.fsync = lambda _: None


def one_thread() -> None:
    """Let each process, and those that it starts, compute in one thread: several processes share few processors, and threads of OpenMP wait for each other
    in loops. A small training step took twelve times as much of a processor in two threads."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


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
