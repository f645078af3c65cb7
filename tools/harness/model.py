"""A model of what a disk may keep: operations that a program made, and the folders that a crash may leave of them.

Nothing is certain but what was synced: the writes of a file by an fsync of the file, the entries of a folder by an fsync of the folder. Anything
else may be there or not, in any order; a write may be torn. (ALICE's model, without the promises that one file system makes.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from xxhash import xxh3_128_hexdigest


@dataclass(frozen=True)
class Operation:
    """One change, or one fsync.

    Attributes:
        kind: ``enter`` a name into a folder, ``leave`` it, ``move``, ``write``, ``cut``, ``sync``.
        of: number of the file or folder that it changes, and that has to be synced.
        data: what the kind needs.
    """

    kind: str
    of: int
    data: tuple[Any, ...] = ()


@dataclass
class Disk:
    """What a disk holds: by number, entries of folders, bytes of files, targets of links."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    files: dict[int, bytearray] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)

    def apply(self, operation: Operation, torn: bool = False) -> None:
        """Carry out one change, wholly or (a write) in half."""
        of, data = operation.of, operation.data
        if operation.kind == "enter":
            self.folders.setdefault(of, {})[data[0]] = data[1]
        elif operation.kind == "leave":
            self.folders.setdefault(of, {}).pop(data[0], None)
        elif operation.kind == "move":
            old, name, new, number = data
            self.folders.setdefault(old, {}).pop(name, None)
            self.folders.setdefault(of, {})[new] = number
        elif operation.kind == "write":
            at, content = data
            content = content[: len(content) // 2] if torn else content
            file = self.files.setdefault(of, bytearray())
            file.extend(bytes(max(0, at + len(content) - len(file))))
            file[at : at + len(content)] = content
        elif operation.kind == "cut":
            file = self.files.setdefault(of, bytearray())
            del file[data[0] :]
            file.extend(bytes(data[0] - len(file)))

    def copy(self) -> Disk:
        """Another one that holds the same."""
        return Disk(
            {number: dict(names) for number, names in self.folders.items()},
            {number: bytearray(data) for number, data in self.files.items()},
            dict(self.links),
        )

    def contents(self, number: int = 0) -> str:
        """A hash of what a program finds: equal for equal folders, however they came about."""
        found = []
        for name, entry in sorted(self.folders.get(number, {}).items()):
            if entry in self.links:
                found.append((name, "link", self.links[entry]))
            elif entry in self.folders:
                found.append((name, "folder", self.contents(entry)))
            else:
                found.append((name, "file", xxh3_128_hexdigest(bytes(self.files.get(entry, b"")))))
        return xxh3_128_hexdigest(repr(found).encode())

    def materialize(self, folder: Path, number: int = 0) -> None:
        """Make the folder that a program finds."""
        folder.mkdir(exist_ok=True)
        for name, entry in self.folders.get(number, {}).items():
            if entry in self.links:
                (folder / name).symlink_to(self.links[entry])
            elif entry in self.folders:
                self.materialize(folder / name, entry)
            else:
                (folder / name).write_bytes(self.files.get(entry, b""))


class Recorder:
    """Notes every operation below a folder, which begins empty. What Python's `os` does not do is not seen."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self.operations: list[Operation] = []
        self.start = Disk()
        self._now: dict[str, int] = {self._root: 0}
        self._open: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in CALLS}

    def _path(self, path: Any, dir_fd: int | None = None) -> str:
        text = os.fsdecode(path)
        if dir_fd is not None and not text.startswith("/"):
            text = f"{Path(f'/proc/self/fd/{dir_fd}').readlink()}/{text}"
        above, name = os.path.split(Path(text).absolute())
        return f"{os.path.realpath(above)}/{name}"

    def _add(self, kind: str, path: str, *data: Any) -> None:
        self.operations.append(Operation(kind, self._now[path], data))

    def _enter(self, path: str) -> int:
        above, name = os.path.split(path)
        number = self._now[path] = max(self._now.values()) + len(self.operations) + 1
        self._add("enter", above, name, number)
        return number

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Carry out a call of `os`, and note it."""
        path = args[1] if name == "symlink" else args[0]
        place = self._path(path, options.get("dir_fd")) if isinstance(path, str | bytes | os.PathLike) else None
        new = place is not None and not os.path.lexists(place)
        result = self._real[name](*args, **options)
        if place is not None and not place.startswith(self._root):
            return result
        getattr(self, f"_note_{name}", self._note_nothing)(place, new, result, *args, **options)
        return result

    def _note_nothing(self, *_: Any, **__: Any) -> None: ...

    def _note_open(self, place: str, new: bool, handle: int, _: Any, flags: int, *__: Any, **___: Any) -> None:
        self._open[handle] = place
        if new and flags & os.O_CREAT:
            number = self._enter(place)
            self.operations.append(Operation("cut", number, (0,)))
        elif flags & os.O_TRUNC:
            self._add("cut", place, 0)

    def _note_close(self, _: Any, __: bool, ___: Any, handle: int) -> None:
        self._open.pop(handle, None)

    def _note_pwrite(self, _: Any, __: bool, written: int, handle: int, data: Any, at: int) -> None:
        if handle in self._open:
            self._add("write", self._open[handle], at, bytes(data[:written]))

    def _note_ftruncate(self, _: Any, __: bool, ___: Any, handle: int, size: int) -> None:
        if handle in self._open:
            self._add("cut", self._open[handle], size)

    def _note_fsync(self, _: Any, __: bool, ___: Any, handle: int) -> None:
        if self._open.get(handle) in self._now:
            self._add("sync", self._open[handle])

    def _note_mkdir(self, place: str, *_: Any, **__: Any) -> None:
        self.start.folders.setdefault(self._enter(place), {})

    def _note_symlink(self, place: str, _: bool, __: Any, target: Any, *___: Any, **____: Any) -> None:
        self.start.links[self._enter(place)] = os.fsdecode(target)

    def _note_replace(self, place: str, _: bool, __: Any, ___: Any, target: Any, **____: Any) -> None:
        to = self._path(target)
        moved = {path: number for path, number in self._now.items() if path == place or path.startswith(place + os.sep)}
        (old, name), (above, new) = os.path.split(place), os.path.split(to)
        self._add("move", above, self._now[old], name, new, self._now[place])
        for path, number in moved.items():
            del self._now[path]
            self._now[to + path[len(place) :]] = number

    _note_rename = _note_replace

    def _note_unlink(self, place: str, *_: Any, **__: Any) -> None:
        above, name = os.path.split(place)
        if self._now.pop(place, None) is not None:
            self._add("leave", above, name)

    _note_rmdir = _note_unlink


CALLS = ("open", "close", "pwrite", "ftruncate", "fsync", "mkdir", "symlink", "replace", "rename", "unlink", "rmdir")


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Note what is done below `root` meanwhile."""

    def write_text(path: Path, text: str, encoding: str) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.pwrite(handle, text.encode(encoding), 0)
        os.close(handle)

    recorder = Recorder(root)
    for name in CALLS:
        setattr(os, name, lambda *args, _name=name, **options: recorder.call(_name, *args, **options))
    try:
        with mock.patch.object(Path, "write_text", write_text):
            yield recorder
    finally:
        for name, real in recorder._real.items():
            setattr(os, name, real)


def unsure(operations: Sequence[Operation]) -> list[int]:
    """Numbers of the changes that no later sync makes certain."""
    synced: set[int] = set()
    found = []
    for number in range(len(operations) - 1, -1, -1):
        operation = operations[number]
        if operation.kind == "sync":
            synced.add(operation.of)
        elif operation.of not in synced:
            found.append(number)
    return found[::-1]
