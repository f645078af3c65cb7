"""Files are brought to disk, read back, and compared with what they were meant to hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prep_assets.disk.blocks import Sums, sums_of_stream
from prep_assets.disk.faults import FAULTY, named
from prep_assets.disk.ledger import Ledger
from prep_assets.disk.meant import Comparison, Meant
from prep_assets.errors import StoreError


def prove(folder: Path, ledger: Ledger) -> dict[str, Sums]:
    """Bring every file below a folder to disk, read it back, compare it, and return its sums by relative path, sorted.

    Files that are not in the ledger were written by a library of its own; they are brought to disk and summed.

    Raises:
        StoreError: a file is not there, or does not hold what was written to it.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    gone = sorted(path for path in ledger if path.is_relative_to(folder.absolute()) and not path.exists())
    if gone:
        raise StoreError(f"{gone[0]} was written and is not there. {FAULTY}")
    return {path.relative_to(folder).as_posix(): read_back(path, ledger.get(path.absolute())) for path in files}


def meant_in(folder: Path, ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Size and hashes of blocks of what every file below a folder was meant to hold, by relative path, sorted. The reader compares.

    Raises:
        StoreError: a file that was not written from front to end is not there, or does not hold what was written to it.
    """
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        meant = ledger.get(path.absolute())
        blocks = None if meant is None else meant.blocks
        size, blocks = (meant.size, blocks) if meant is not None and blocks is not None else read_back(path, meant)[::2]
        found[path.relative_to(folder).as_posix()] = {"bytes": size, "blocks": blocks}
    return found


def read_back(path: Path, meant: Meant | None) -> Sums:
    """The sums of what the disk gives back of a file.

    Raises:
        StoreError: it is not what was meant.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            os.fsync(handle)
        except OSError as error:
            raise named(error, path) from error
        if hasattr(os, "posix_fadvise"):  # what is in memory only would be compared with itself
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(handle).st_size
        if meant is not None and size != meant.size:
            raise StoreError(f"{path}: {size:,} bytes on disk, {meant.size:,} were written. {FAULTY}")
        comparing = Comparison(path, meant)
        with open(handle, "rb", buffering=0, closefd=False) as file:
            sums = sums_of_stream(file, comparing.add)
        comparing.finish()
        return sums
    finally:
        os.close(handle)
