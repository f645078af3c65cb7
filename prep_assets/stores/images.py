"""Images, audio and video of token stores: which file each run of placeholder tokens stands for.

A stream or a packed table with such files has a folder ``<name>.images/``, with one entry per file, ascending by record and start:

    record.npy int64      its record; in a packed table its row
    start.npy int64       offset of its first token in that record or row
    length.npy int64      number of its placeholder tokens
    end.npy int64         byte at which its line in images.jsonl ends
    images.jsonl          {"path": as the source has it, "sha256": of the file, null for a URL}; with "width" and "height" where the number of
                          its tokens follows from them; of audio with "kind": "audio", and "samples" and "sampling_rate" of the file; of video with
                          "kind": "video", and "frames", "fps", "width" and "height"
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct

from prep_assets import plugins
from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.samples import AUDIO, IMAGE, VIDEO
from prep_assets.stores.arrays import Columns
from prep_assets.stores.guards import Guards, load_columns
from prep_assets.stores.verification import WrittenFile

FIELDS = ("record", "start", "length", "end")
LINES = "images.jsonl"
BLOCK = 1 << 14
"""References read at a time."""


MEASURES = {IMAGE: ("width", "height"), AUDIO: ("samples", "sampling_rate"), VIDEO: ("frames", "fps", "width", "height")}
"""Kind of a file → what the number of its tokens depends on."""


class Image(Struct, frozen=True):
    """A reference to an image, audio or video: its path or URL, the sha256 of the file, `None` for a URL, its `MEASURES` if the number of its tokens depends on
    them, and its kind."""

    path: str
    sha256: str | None
    size: tuple[float, ...] | None = None
    kind: str = IMAGE

    def line(self) -> bytes:
        """Return its line in ``images.jsonl``."""
        kind = {} if self.kind == IMAGE else {"kind": self.kind}
        size = {} if self.size is None else dict(zip(MEASURES[self.kind], self.size, strict=True))
        return json.dumps({"path": self.path, "sha256": self.sha256, **kind, **size}).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Image:
        """Parse a line of ``images.jsonl``."""
        fields = json.loads(line)
        kind = fields.get("kind", IMAGE)
        size = tuple(fields[name] for name in MEASURES[kind] if name in fields)
        return cls(fields["path"], fields["sha256"], size or None, kind)


class ImageBlock(Struct, frozen=True):
    """Images of a batch of records: int64[k] each, ascending by record and start, `record` counted within the batch."""

    record: Ints
    start: Ints
    length: Ints
    images: Sequence[Image]


class ImageWriter:
    """Writes the images of a stream; writes nothing if there are none."""

    def __init__(self, directory: Path, name: str) -> None:
        self._folder = directory / f"{name}.images"
        self._lines: WrittenFile | None = None
        self._columns: Columns | None = None

    def append(self, block: ImageBlock, first: int) -> None:
        """Append the images of a batch whose first record has the number `first`."""
        if not len(block.images):
            return
        if self._lines is None or self._columns is None:
            self._columns = Columns(self._folder, dict.fromkeys(FIELDS, np.int64))
            self._lines = WrittenFile(self._folder / LINES)
        lines = [image.line() for image in block.images]
        ends = self._lines.tell() + np.cumsum([len(line) for line in lines])
        self._lines.write(b"".join(lines))
        self._columns.append({"record": block.record + first, "start": block.start, "length": block.length, "end": ends})

    def close(self) -> None:
        """Finish the files."""
        for file in (self._lines, self._columns):
            if file is not None:
                file.close()


@dataclass(frozen=True)
class Images:
    """The images of a stream or a packed table, opened for reading; k of them, ascending by record and start.

    Attributes:
        record, start, length: int64[k], see above.
        ends: int64[k], bytes at which their lines in `lines` end.
        lines: path of ``images.jsonl``; `None` if there are no images.
    """

    record: Ints
    start: Ints
    length: Ints
    ends: Ints
    lines: Path | None = None

    def __len__(self) -> int:
        return len(self.record)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of files that occur."""
        parts = (np.arange(first, min(first + BLOCK, len(self))) for first in range(0, len(self), BLOCK))
        return frozenset(image.kind for numbers in parts for image in self.references(numbers))

    def of(self, first: int, stop: int) -> slice:
        """Return the images of records ``first … stop - 1``, as a slice of the arrays."""
        low, high = np.searchsorted(self.record, [first, stop])
        return slice(int(low), int(high))

    def references(self, numbers: Ints) -> list[Image]:
        """Read the references of the images with these numbers from disk."""
        if self.lines is None or not len(numbers):
            return []
        begins = np.where(numbers > 0, self.ends[numbers - 1], 0).tolist()
        with self.lines.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return [Image.read(text[begin:end]) for begin, end in zip(begins, self.ends[numbers].tolist(), strict=True)]


NO_IMAGES = Images(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def open_images(directory: Path, name: str, guards: Guards | None = None) -> Images:
    """Open the images of the stream or table `name` of a store; `NO_IMAGES` if it has none.

    Raises:
        StoreError: the files are inconsistent, or no extension knows them.
    """
    folder = directory / f"{name}.images"
    if not folder.is_dir():
        return NO_IMAGES
    if not plugins.ours("media"):
        raise StoreError(f"{folder} says which files tokens stand for, and the extension `media` is not there. Install prep-assets whole")
    guards = guards or Guards()
    columns, lines = load_columns(folder, FIELDS, guards), guards.whole(folder / LINES)
    count, size = len(columns["end"]), lines.stat().st_size
    if not count or int(columns["end"][-1]) != size:
        raise StoreError(f"{folder}: its parts do not fit together: {count:,} images, {LINES} has {size:,} bytes. Build it again")
    return Images(columns["record"], columns["start"], columns["length"], columns["end"], lines)
