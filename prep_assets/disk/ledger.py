"""Ledgers: which files were written below a folder, and what each was meant to hold.

    with recording(payload) as ledger:
        …write files with `WrittenFile`, in any thread…
    prove(payload, ledger)

A process that writes a shard has a ledger of its own, and sends what `meant_in` makes of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.disk.meant import Meant

Ledger = dict[Path, Meant]
"""By absolute path."""

_OPEN: dict[Path, Ledger] = {}
_LOCK = threading.Lock()


@contextmanager
def recording(folder: Path) -> Iterator[Ledger]:
    """A ledger of everything that is written below `folder` meanwhile."""
    folder = folder.absolute()
    ledger: Ledger = {}
    with _LOCK:
        _OPEN[folder] = ledger
    try:
        yield ledger
    finally:
        with _LOCK:
            del _OPEN[folder]


def note(path: Path, meant: Meant) -> None:
    """A file was written; whoever records below a folder that it is in is told."""
    path = path.absolute()
    with _LOCK:
        for folder in path.parents:
            if folder in _OPEN:
                _OPEN[folder][path] = meant
                return


def rename(path: Path, target: Path) -> Path:
    """Give a file that was written another name, which is returned."""
    path.rename(target)
    with _LOCK:
        for ledger in _OPEN.values():
            if path.absolute() in ledger:
                ledger[target.absolute()] = ledger.pop(path.absolute())
    return target
