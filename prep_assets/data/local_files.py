"""Source files in local folders: patterns, globs, saved data sets, and the formats of names."""

from __future__ import annotations

import fnmatch
import glob
import mimetypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from prep_assets.data.addresses import MatchedFile
from prep_assets.errors import SourceError
from prep_assets.stores.files import loads

# Descriptions that `datasets` writes next to the data.
_METADATA = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_UNFINISHED = (".part", ".tmp", ".crdownload", ".incomplete")
FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "txt",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
SUFFIXES = f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"


def find(pattern: str, base: Path) -> list[MatchedFile]:
    """The files that `pattern` matches, relative to `base`.

    Raises:
        SourceError: it matches none, or a folder cannot be read.
    """
    path = Path(pattern.removeprefix("file://")).expanduser()
    local_path = Path(os.path.normpath(base / path))
    try:
        if local_path.is_file():
            matches = [MatchedFile(str(local_path), local_path.as_posix())]
        else:
            matches = (list(walk(local_path)) if local_path.is_dir() else []) or _glob_local(path, base)
    except OSError as error:
        raise SourceError(f"{pattern!r}: cannot read {error.filename}: {error.strerror}. Make it readable, or name other files") from error
    if not matches:
        raise SourceError(_no_match_message(pattern, local_path, base))
    return matches


def is_data(name: str) -> bool:
    """Whether a file in a folder or a glob is data: not hidden, not unfinished, no description of a data set."""
    return not (name.startswith(".") or name.endswith(_UNFINISHED) or name in _METADATA)


def _glob_local(pattern: Path, base: Path) -> list[MatchedFile]:
    return [MatchedFile(path, path) for path in _paths_of_glob(pattern, base)]


def _paths_of_glob(pattern: Path, base: Path) -> list[str]:
    """The data files that a glob matches, sorted as paths. They are texts: a `Path` for each of thousands takes long."""
    anchor = Path(pattern.anchor) if pattern.anchor else base
    found = {os.path.normpath(path) for path in _glob_below(anchor, pattern.relative_to(pattern.anchor).parts)}
    paths, whole = list[str](), is_whole_folder(str(pattern))
    for path in sorted(found, key=lambda path: path.split("/")):
        name = path.rpartition("/")[2]
        if not is_data(name):
            continue
        if os.path.isfile(path):  # noqa: PTH113
            paths.append(path)
        elif format_of(name)[0] or not whole:
            _reject_dangling(Path(path))
    return paths


def _reject_dangling(path: Path) -> None:
    """Raises:
    SourceError: a link leads nowhere, so that rows would be missing unnoticed.
    """
    if path.is_symlink() and not path.exists():
        raise SourceError(f"{path}: this link leads to {path.readlink()}, which does not exist. Fetch the file, or remove the link")


def is_whole_folder(pattern: str) -> bool:
    """Whether a glob takes every file of its folders, whatever its name."""
    return pattern.rpartition("/")[2] in ("*", "**")


def skipped_files(pattern: str, base: Path) -> list[str]:
    """Names of the files in a local folder, or of a glob that ends with ``*`` or ``**``, whose suffix no format has.

    Pictures, sounds and films are left out: rows name them.
    """
    if "://" in pattern.removeprefix("file://"):
        return []
    path, base = Path(pattern.removeprefix("file://")).expanduser(), base.absolute()
    folder = Path(os.path.normpath(base / path))
    if not folder.is_dir() and not is_whole_folder(pattern):
        return []
    paths = _paths_of_glob(folder / "**", folder) if folder.is_dir() else _paths_of_glob(path, base)
    names = [name for name in [path.rpartition("/")[2] for path in paths] if not format_of(name)[0]]
    return [name for name in names if not (mimetypes.guess_type(name)[0] or "").startswith(("image/", "audio/", "video/"))]


def _glob_below(folder: Path, parts: Sequence[str]) -> Iterator[Path | str]:
    """The paths in a folder that the remaining `parts` of a glob match. Python's globs skip unreadable folders, whose files would look removed, and
    follow cyclic links endlessly.

    Raises:
        OSError: a folder cannot be read.
    """
    if not parts:
        yield folder
    elif not folder.is_dir():
        _reject_dangling(folder)
    elif parts[0] == "**":
        for subfolder in _folders(folder, folder):
            yield from _glob_below(subfolder, parts[1:] or ("*",))
    elif not glob.has_magic(parts[0]):
        yield from _glob_below(folder / parts[0], parts[1:])
    else:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") or parts[0].startswith(".")]
        for name in fnmatch.filter(names, parts[0]):
            if not parts[1:]:
                yield f"{folder}/{name}"
                continue
            if (folder / name).is_dir():
                os.scandir(folder / name).close()
            yield from _glob_below(folder / name, parts[1:])


def _folders(folder: Path, start: Path) -> Iterator[Path]:
    """A folder and all folders below it, without hidden ones and links to ancestors."""
    yield folder
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not _links_to_ancestor(folder / name, start):
            yield from _folders(folder / name, start)


def _links_to_ancestor(folder: Path, start: Path) -> bool:
    """Whether a folder is a link to a folder that contains it, or to one on the way from `start`."""
    if not folder.is_symlink():
        return False
    ancestors = {parent.resolve() for parent in folder.parents if parent == start or start in parent.parents}
    return folder.resolve() in {*ancestors, *folder.parent.resolve().parents}


def walk(folder: Path, start: Path | None = None) -> Iterator[MatchedFile]:
    """The data files under `folder`: known suffixes, nothing hidden or unfinished; saved data sets in their own order.

    Args:
        start: the folder at which the walk began, if not `folder`.
    """
    start = start or folder
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from _saved_data_set(folder)
        return
    with os.scandir(folder) as entries:
        found = sorted([entry for entry in entries if is_data(entry.name)], key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir():
            path = Path(entry.path)
            if not _links_to_ancestor(path, start):
                yield from walk(path, start)
        elif entry.is_symlink() and not Path(entry.path).suffix:
            _reject_dangling(Path(entry.path))
        elif format_of(entry.name)[0]:
            yield MatchedFile(entry.path, entry.path)


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    data_files: list[_DataFile] = msgspec.field(name="_data_files")


def _saved_data_set(folder: Path) -> Iterator[MatchedFile]:
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
        yield MatchedFile(str(path), path.as_posix(), folder.as_posix(), position)


def _no_match_message(pattern: str, path: Path, base: Path) -> str:
    """The error message for a local pattern without a file."""
    if path.is_dir():
        return f"{pattern!r}: the folder {path} has no data file. Known suffixes are in docs/sources.md; name other files one by one"
    if not glob.has_magic(str(path)):
        base_hint = "" if Path(pattern.removeprefix("file://")).expanduser().is_absolute() else f"; it is looked up from the folder {base}"
        return f"{pattern!r}: there is no file {path}. Check the name{base_hint}"
    parent_folder = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    missing_hint = "" if parent_folder.is_dir() else ", which does not exist"
    return f"{pattern!r} matches no file in {parent_folder}{missing_hint}. Check the pattern; end it with /** to reach files of sub-folders"


def format_of(name: str) -> tuple[str | None, str | None]:
    """`(format, compression)` of a file called `name`; the format is `None` for an unknown suffix."""
    stem, dot, last = name.lower().rpartition(".")
    compression = COMPRESSIONS.get(dot + last)
    if compression:
        _, dot, last = stem.rpartition(".")
    return FORMATS.get(dot + last), compression
