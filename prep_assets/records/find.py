"""What a pattern of the configuration stands for: a file, a glob, a folder, a saved Hugging Face data set, or a URL."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prep_assets.disk.strict_json import loads
from prep_assets.errors import SourceError
from prep_assets.records.formats import format_of
from prep_assets.records.remote import Listed, list_remote

# Descriptions of data sets, written beside the data by `datasets`; they are no data.
_METADATA = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_UNFINISHED = (".part", ".tmp", ".crdownload", ".incomplete")


@dataclass(frozen=True, slots=True)
class Found:
    """A file behind a pattern.

    Attributes:
        url: where it is opened.
        place: the same on every machine up to a common prefix; names and the order of files come from it.
        group: folder of a saved data set, whose files keep the order that the data set gives them; empty elsewhere.
        position: position in that order.
        listed: what a list of remote files said of it.
    """

    url: str
    place: str
    group: str = ""
    position: int = 0
    listed: Listed | None = None


def find(pattern: str, base: Path) -> list[Found]:
    """The files that `pattern` stands for, seen from `base`.

    Raises:
        SourceError: it stands for none.
    """
    if "://" in pattern and not pattern.startswith("file://"):
        listed = (each for each in list_remote(pattern) if pattern.endswith(each.url) or is_data(each.url.rpartition("/")[2]))
        found = [Found(each.url, each.url, listed=each) for each in listed]
        if not found:
            raise SourceError(f"{pattern!r} matches no file. Check the address, or list the files one by one")
        return found
    path = Path(pattern.removeprefix("file://")).expanduser()
    here = Path(os.path.normpath(base / path))
    try:
        found = _named(here) or _globbed(os.path.join(glob.escape(str(base)), path))  # noqa: PTH118  (pathlib would take the escapes for names)
    except OSError as error:
        raise SourceError(f"{pattern!r}: cannot read {error.filename}: {error.strerror}. Mend it, or name other files") from error
    if not found:
        raise SourceError(_nothing(pattern, here, base))
    return found


def is_data(name: str) -> bool:
    """Whether a file that a folder or a glob turns up is meant: not hidden, not unfinished, no description of a data set."""
    return not (name.startswith(".") or name.endswith(_UNFINISHED) or name in _METADATA)


def _named(path: Path) -> list[Found]:
    return [Found(str(path), path.as_posix())] if path.is_file() else list(walk(path)) if path.is_dir() else []


def _globbed(pattern: str) -> list[Found]:
    # pathlib's own glob takes hidden files in and leaves files under `**` out.
    paths = (Path(os.path.normpath(name)) for name in sorted(glob.glob(pattern, recursive=True)))  # noqa: PTH207
    _check_readable(pattern)
    return [Found(str(path), path.as_posix()) for path in paths if path.is_file() and is_data(path.name)]


def _check_readable(pattern: str) -> None:
    """Raise where a folder that may hold matches cannot be read: `glob` leaves it out, and its files would be taken for removed."""
    above = os.path.dirname(pattern)  # noqa: PTH120
    while glob.has_magic(above):
        for folder in glob.iglob(f"{above}/", recursive=True):  # noqa: PTH207
            os.scandir(folder).close()
        above = os.path.dirname(above)  # noqa: PTH120


def walk(folder: Path) -> Iterator[Found]:
    """The data files under `folder`: known suffixes, nothing hidden or unfinished; saved data sets in their own order."""
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from _saved_data_set(folder)
        return
    for path in sorted(folder.iterdir()):
        if not is_data(path.name):
            continue
        if path.is_dir():
            yield from walk(path)
        elif format_of(path.name)[0]:
            yield Found(str(path), path.as_posix())


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    data_files: list[_DataFile] = msgspec.field(name="_data_files")


def _saved_data_set(folder: Path) -> Iterator[Found]:
    """The Arrow files of a folder that `datasets.Dataset.save_to_disk` wrote, in the order of its `state.json`."""
    try:
        state = msgspec.convert(loads((folder / "state.json").read_bytes()), _State)
    except (msgspec.ValidationError, ValueError) as error:
        raise SourceError(f"{folder / 'state.json'} does not describe a saved data set: {error}. Save the data set again") from error
    for position, data_file in enumerate(state.data_files):
        path = folder / data_file.filename
        if not path.is_file():
            raise SourceError(
                f"{folder / 'state.json'} names {data_file.filename!r}, which is missing: the copy is incomplete, fetch it again"
            )
        yield Found(str(path), path.as_posix(), folder.as_posix(), position)


def _nothing(pattern: str, path: Path, base: Path) -> str:
    """What to say of a local pattern that stands for no file."""
    if path.is_dir():
        return f"{pattern!r}: the folder {path} has no data file. Known suffixes are in docs/sources.md; name other files one by one"
    if not glob.has_magic(str(path)):
        from_where = "" if Path(pattern.removeprefix("file://")).expanduser().is_absolute() else f"; it is looked up from the folder {base}"
        return f"{pattern!r}: there is no file {path}. Check the name{from_where}"
    looked_in = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    there = "" if looked_in.is_dir() else ", which does not exist"
    return f"{pattern!r} matches no file in {looked_in}{there}. Check the pattern; end it with /** to reach files of sub-folders"
