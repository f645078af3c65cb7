"""`current`, `candidate`, `draft`, `damaged`: links in the folder of a store, each to one of its versions, replaced in one step.

Where a file system has no links, a pointer is a file with the path in it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prep_assets.disk.folders import sync
from prep_assets.disk.written import write_text
from prep_assets.errors import StoreError


@dataclass(frozen=True, slots=True)
class Pointers:
    """The versions that have a name of their own; empty where there is none. Of `damaged` and `current` one at most leads somewhere."""

    current: str = ""
    candidate: str = ""
    draft: str = ""
    damaged: str = ""

    @property
    def used(self) -> set[str]:
        """The versions that they lead to."""
        return {self.current, self.candidate, self.draft, self.damaged} - {""}


Move = Callable[[Pointers], Mapping[str, str]]
"""Which pointers lead where from now on; those left out stay. It may be called several times, and raises to leave all as they are."""

POINTERS = ("current", "candidate", "draft", "damaged")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems without links answer; anything else is a fault."""


def target(folder: Path, name: str) -> Path | None:
    """Where a pointer leads, without links; `None` where it is not there or leads nowhere."""
    pointer = folder / name
    if not pointer.exists():
        return None
    try:
        return (folder / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer).resolve()
    except ValueError as error:
        raise StoreError(f"{pointer} holds no path ({error}). Delete it, then build the store again") from error


def point(folder: Path, name: str, version: Path) -> None:
    """Have a pointer lead to a version, on disk. A candidate that a crash forgets is found again by the next build."""
    relative = version.resolve().relative_to(folder.resolve())
    pointer, temporary = folder / name, folder / f".{name}-new"
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(relative, target_is_directory=True)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        write_text(temporary, relative.as_posix() + "\n")
        sync(temporary)
    temporary.replace(pointer)
    if name != "candidate":
        sync(folder)


def unpoint(folder: Path, name: str) -> None:
    """Remove a pointer, if it is there."""
    (folder / name).unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Delete what a process that was killed left of a pointer."""
    for name in POINTERS:
        (folder / f".{name}-new").unlink(missing_ok=True)
