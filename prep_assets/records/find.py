"""What a pattern of the configuration stands for: a file, a glob, a folder, a saved Hugging Face data set, or a URL."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from prep_assets.disk.strict_json import loads
from prep_assets.errors import ConfigError, SourceError, nearest
from prep_assets.records.remote import Listed, file_name, list_remote

# Descriptions of data sets, which `datasets` writes beside the data.
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
        raise SourceError(f"{pattern!r}: cannot read {error.filename}: {error.strerror}. Make it readable, or name other files") from error
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
    paths = sorted({Path(os.path.normpath(name)) for name in _matches(pattern)})
    _check_readable(pattern)
    return [Found(str(path), path.as_posix()) for path in paths if path.is_file() and is_data(path.name)]


def _matches(pattern: str) -> Iterator[str]:
    """What a pattern matches. `**` is looked into here: `glob` follows links that lead back, again and again."""
    head, found, rest = pattern.partition("/**")
    if not found or rest[:1] not in ("", "/"):
        yield from glob.iglob(pattern)  # noqa: PTH207
        return
    for name in glob.iglob(f"{head}/"):  # noqa: PTH207
        for folder in _folders(start := Path(name), start):
            yield from _matches(f"{glob.escape(str(folder))}/{rest.lstrip('/') or '*'}")


def _folders(folder: Path, start: Path) -> Iterator[Path]:
    """A folder and all below it that are not hidden, none over a link that leads back."""
    yield folder
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not _goes_round(folder / name, start):
            yield from _folders(folder / name, start)


def _goes_round(folder: Path, start: Path) -> bool:
    """Whether a folder is a link to one that it is in, or that the way from `start` came through."""
    if not folder.is_symlink():
        return False
    way = {each.resolve() for each in folder.parents if each == start or start in each.parents}
    return folder.resolve() in {*way, *folder.parent.resolve().parents}


def _check_readable(pattern: str) -> None:
    """Raise where a folder that may hold matches cannot be read: `glob` leaves it out, and its files would be taken for removed."""
    above = os.path.dirname(pattern)  # noqa: PTH120
    while glob.has_magic(above):
        for folder in _matches(f"{above}/"):
            if Path(folder).is_dir():
                os.scandir(folder).close()
        above = os.path.dirname(above)  # noqa: PTH120


def walk(folder: Path, start: Path | None = None) -> Iterator[Found]:
    """The data files under `folder`: known suffixes, nothing hidden or unfinished; saved data sets in their own order.

    Args:
        start: where the walk began, where that is above.
    """
    start = start or folder
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from _saved_data_set(folder)
        return
    for path in sorted(folder.iterdir()):
        if not is_data(path.name):
            continue
        if path.is_dir():
            if not _goes_round(path, start):
                yield from walk(path, start)
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


def stable_names(places: Iterable[str]) -> dict[str, str]:
    """Place -> path from the common parent folder of all places.

    Places of several kinds (local, `s3`, `hub` ...) have no common parent, so that each kind becomes a folder of its own.

    Raises:
        SourceError: two places have one name, e.g. web addresses that differ in their query only.
    """
    by_kind: dict[str, dict[str, PurePosixPath]] = {}
    for place in places:
        kind, separator, path = file_name(place).partition("://")
        by_kind.setdefault(kind if separator else "file", {})[place] = PurePosixPath(path if separator else place)
    names: dict[str, str] = {}
    for kind, paths in by_kind.items():
        parent = os.path.commonpath([path.parent for path in paths.values()])
        prefix = f"{kind}/" if len(by_kind) > 1 else ""
        names |= {place: f"{prefix}{path.relative_to(parent)}" for place, path in paths.items()}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        same = sorted(file_name(place) for place, name in names.items() if name == twice[0])
        raise SourceError(f"{', '.join(same)} would have the same name {twice[0]!r}: keep one of them")
    return names


def order(one: Found, names: dict[str, str]) -> tuple[str, int]:
    """Sort key: the name; but the files of a saved data set stand at its folder's name, in the order that the data set gives them."""
    name = names[one.place]
    return (name, -1) if not one.group else (name[: name.rfind("/") + 1], one.position)


def format_of(name: str) -> tuple[str | None, str | None]:
    """`(format, compression)` of a file called `name`; the format is `None` where the suffix says nothing."""
    stem = name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if stem.endswith(suffix)), None)
    stem = stem.removesuffix(compression or "")
    format_suffix = next((suffix for suffix in FORMATS if stem.endswith(suffix)), "")
    return FORMATS.get(format_suffix), COMPRESSIONS.get(compression or "")


def check_format(format: str) -> str:
    """`format`, if it is one.

    Raises:
        ConfigError: no such format; the message names the known ones and the nearest match.
    """
    known = sorted(set(FORMATS.values()))
    if format not in known:
        raise ConfigError(f"no format {format!r}{nearest(format, known) or '.'} Known: {', '.join(known)}")
    return format
