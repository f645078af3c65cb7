"""A domain in shards: stretches of its files between some of the cuts that were pinned with them, all of about one size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from prep_assets.assets.reading.pinned import Pinned
from prep_assets.records import cuts
from prep_assets.records.cuts import parts, shard_size
from prep_assets.records.files import WHOLE, Part, SourceFile
from prep_assets.workers.shards import Shard

_EXPANDS = 3
"""How much larger compressed text is taken to be than its file."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of one file.

    Attributes:
        file: number of the file, training files first.
        part: which of its rows.
    """

    file: int
    part: Part = WHOLE


def whole_files(sources: Pinned) -> Iterator[Stretch]:
    """All rows of all files."""
    return (Stretch(number) for number in range(len(sources.files) + len(sources.test_files)))


def shards_of(sources: Pinned, count: int | Literal["auto"] = "auto") -> list[Shard]:
    """All rows of all files in shards, whose tasks are stretches. No shard has rows to train on and rows held out.

    Args:
        asked: about how many, see `shard_size`.
    """
    files = (*sources.files, *sources.test_files)
    listed = [list(parts(sources.cuts[number])) if sources.cuts else [WHOLE] for number in range(len(files))]
    sizes = [[_size(file, part, len(each)) for part in each] for file, each in zip(files, listed, strict=True)]
    enough = shard_size(sum(map(sum, sizes)), count) - cuts.SHARD_BYTES // 2
    found: list[Shard] = []
    gathered: list[Stretch] = []
    size = 0
    for number, each in enumerate(listed):
        for part, more in zip(each, sizes[number], strict=True):
            if gathered and gathered[-1].file == number:  # it goes on where the last one ends
                gathered[-1] = replace(gathered[-1], part=replace(gathered[-1].part, stop=part.stop))
            else:
                gathered.append(Stretch(number, part))
            size += more
            ends = part.stop is None and number + 1 in (len(sources.files), len(files))
            if size >= enough or ends:
                found.append(Shard(len(found), _label(files, gathered), size, tuple(gathered)))
                gathered, size = [], 0
    return found


def is_held_out(shard: Shard, sources: Pinned) -> bool:
    """Whether a shard's rows are held out."""
    return bool(shard.task[0].file >= len(sources.files))


def text_bytes(file: SourceFile) -> int:
    """Bytes of text in a file, about."""
    return file.size * (_EXPANDS if file.compression else 1)


def _size(file: SourceFile, part: Part, count: int) -> int:
    """Bytes of text, about. A table's rows do not say how large they are; its parts are equally large."""
    whole = text_bytes(file)
    if file.format in cuts.TABLES:
        return max(1, whole // count)
    return max(1, (whole if part.stop is None else part.stop) - part.start)


def _label(files: tuple[SourceFile, ...], stretches: list[Stretch]) -> str:
    first, last = stretches[0], stretches[-1]
    begin = f"{files[first.file].name} from row {first.part.row:,}"
    return begin if first.file == last.file else f"{begin} to {files[last.file].name}"
