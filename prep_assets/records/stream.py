"""The bytes of a source file, decompressed while they are read, and proven to be all there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import IO

from prep_assets.disk.ahead import ahead
from prep_assets.errors import PrepAssetsError, SourceError
from prep_assets.records.blocks import Block
from prep_assets.records.decompress import Decompressor, damage, decompressor
from prep_assets.records.files import WHOLE, Part, SourceFile, open_stored
from prep_assets.records.remote import error_text, file_name, is_remote

_STORED_CHUNK = 1 << 18
_COPY_CHUNK = 1 << 20
_FETCH_AGAIN = "The download is incomplete or damaged: fetch it again"


class Stream:
    """The decompressed bytes of a file, from the start to the end, or those of a part of it.

    A compressed file may have several members or frames one after the other. Every one must be whole, nothing foreign may follow, and the
    stored bytes must be as many as `file.size` says; else `read` raises instead of ending early.

    Attributes:
        part: which bytes.
        stored: bytes of the stored file consumed so far, for all that was given.
        rows: rows of the file before the place where reading is; readers set it, error messages state it.
    """

    def __init__(self, file: SourceFile, part: Part = WHOLE, watch: Callable[[bytes], None] | None = None) -> None:
        """
        Args:
            watch: is shown all bytes as they go by.
        """
        self.part = part
        self._watch = watch
        self._file = file
        self._raw = open_stored(file)
        self._decompressor: Decompressor | None = None
        self._pending = b""
        self._errors = damage()
        self._at = self._taken = 0
        self.stored = 0
        self.rows = part.row
        if part.start:
            self._go_to(part.start)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and self._file.compression is not None and self._at == self.part.stop:
            _stay(self)
        else:
            self.close()

    def go_on(self, part: Part, watch: Callable[[bytes], None] | None) -> None:
        """Read another part, which begins where reading is, or later."""
        self.part, self._watch, self.rows = part, watch, part.row
        self._go_to(part.start)

    def is_before(self, file: SourceFile, part: Part) -> bool:
        """Whether it is a stream of this file that has not come to the part yet."""
        return self._file == file and self._at <= part.start

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def read(self, size: int) -> bytes:
        """At least one and at most `size` bytes; `b""` at the end of the file only.

        Raises:
            SourceError: the file is cut short, damaged, or cannot be read.
        """
        with self._told():
            return self._next(size)

    def pieces(self, size: int) -> Iterator[bytes]:
        """All bytes from here on, `size` at a time. Those of a whole file that is compressed are decompressed by a thread of its own.

        Raises:
            SourceError: as `read`, after the pieces that come before.
        """
        if self._file.compression is None or self.part != WHOLE:
            while piece := self.read_fully(size):
                yield piece
            return
        with self._told(), closing(ahead(self._taken_pieces(size))) as pieces:
            for piece, self.stored in pieces:
                yield piece

    def _taken_pieces(self, size: int) -> Iterator[tuple[bytes, int]]:
        while piece := _fully(self._next, size):
            yield piece, self._taken

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in words where reading failed: by the rows and bytes that were given before."""
        try:
            yield
        except _Fault as fault:
            self.stored = self._taken
            raise self.broken(*fault.args) from fault.__cause__
        self.stored = self._taken

    def _next(self, size: int) -> bytes:
        if self.part.stop is not None:
            size = min(size, self.part.stop - self._at)
            if size <= 0:
                return b""
        data = self._read_stored(size) if self._file.compression is None else self._read_compressed(size)
        self._at += len(data)
        if self._watch is not None:
            self._watch(data)
        return data

    def _go_to(self, start: int) -> None:
        """Pass over the bytes before `start`. What is compressed must be decompressed for it."""
        if self._file.compression is None and self._raw.seekable():
            self._at = self._taken = self.stored = self._raw.seek(start)
            return
        with self._told():
            while self._at < start:
                read = self._read_stored if self._file.compression is None else self._read_compressed
                if not (data := read(min(_COPY_CHUNK, start - self._at))):
                    raise _Fault(f"the file ends before byte {start:,} of its text")
                self._at += len(data)

    def read_fully(self, size: int) -> bytes:
        """`size` bytes, or all that are left."""
        return _fully(self.read, size)

    def broken(self, what: str, remedy: str = _FETCH_AGAIN) -> SourceError:
        """The error for a file that cannot be read on: which file, how far reading came, and the remedy."""
        at = f"after {self.rows:,} rows, at byte {self.stored:,} of {self._file.size:,}"
        return SourceError(f"{self._file.name}: {what} {at} ({file_name(self._file.url)}). {remedy}")

    def _read_stored(self, size: int) -> bytes:
        try:
            data = self._raw.read(size)
        except PrepAssetsError:
            raise
        except Exception as error:  # each remote file system raises its own kinds
            raise _Fault(f"reading failed ({error_text(error, self._file.url)})") from error
        self._taken += len(data)
        if not data and self._taken != self._file.size:
            raise _Fault("the file ends early")
        return data

    def _read_compressed(self, size: int) -> bytes:
        while True:
            if (self._decompressor is None or self._decompressor.eof) and not self._next_member():
                return b""
            data, self._pending = self._pending, b""
            assert self._decompressor is not None
            if not data and self._decompressor.needs_input and not (data := self._read_stored(_STORED_CHUNK)):
                raise _Fault(f"the {self._file.compression} stream is cut short")
            if out := self._decompress(self._decompressor, data, size):
                return out

    def _next_member(self) -> bool:
        """Start on the next member or frame; false where the file ends with the last one."""
        data = self._pending or self._read_stored(_STORED_CHUNK)
        if self._decompressor is not None and self._file.compression in ("gzip", "xz"):
            while data and not (data := data.lstrip(b"\0")):  # both formats allow zeros as padding after a member
                data = self._read_stored(_STORED_CHUNK)
        if data:
            self._pending = data
            self._decompressor = decompressor(self._file.compression or "")
        return bool(data)

    def _decompress(self, decoder: Decompressor, data: bytes, size: int) -> bytes:
        try:
            out = decoder.decompress(data, size)
        except self._errors as error:
            raise _Fault(f"the {self._file.compression} stream is damaged ({error})") from error
        if decoder.eof:
            self._pending = decoder.unused_data
        return out


class _Fault(Exception):
    """What is wrong with the stored bytes, as `Stream.broken` is told."""


def _fully(read: Callable[[int], bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


_WAITING: list[Stream] = []
"""The stream that stopped last at the end of a part that was decompressed, for the next reader of a later part of that file in this process."""


def _stay(stream: Stream) -> None:
    while _WAITING:
        _WAITING.pop().close()
    _WAITING.append(stream)


def stream_of(file: SourceFile, part: Part = WHOLE, watch: Callable[[bytes], None] | None = None) -> Stream:
    """The bytes of a file or of a part of it. What is compressed is not decompressed from its beginning for each part, where parts come in order."""
    if part.start and _WAITING and _WAITING[0].is_before(file, part):
        stream = _WAITING.pop()
        stream.go_on(part, watch)
        return stream
    return Stream(file, part, watch)


def blocks_of(
    read: Callable[[Stream], Iterator[Block]], file: SourceFile, part: Part = WHOLE, watch: Callable[[bytes], None] | None = None
) -> Iterator[Block]:
    """What a reader makes of the bytes of a file or of a part of it."""
    with stream_of(file, part, watch) as stream:
        yield from read(stream)


@contextmanager
def seekable(file: SourceFile) -> Iterator[IO[bytes]]:
    """`file`, decompressed, open for reading at any position. What is remote or compressed is copied to a temporary file, not to memory."""
    if file.compression is None and not is_remote(file.url):
        with open_stored(file) as stored:
            yield stored
        return
    with tempfile.TemporaryFile() as copy:
        with Stream(file) as stream:
            while data := stream.read(_COPY_CHUNK):
                copy.write(data)
        copy.seek(0)
        yield copy
