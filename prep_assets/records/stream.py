"""The bytes of a source file, decompressed while they are read, and proven to be all there."""

from __future__ import annotations

import bz2
import lzma
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import IO, Any, Protocol

from prep_assets.errors import PrepAssetsError, SourceError
from prep_assets.records.blocks import Block
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
        stored: bytes of the stored file consumed so far.
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
        self._at = 0
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
            self._at = self.stored = self._raw.seek(start)
            return
        while self._at < start:
            read = self._read_stored if self._file.compression is None else self._read_compressed
            if not (data := read(min(_COPY_CHUNK, start - self._at))):
                raise self.broken(f"the file ends before byte {start:,} of its text")
            self._at += len(data)

    def read_fully(self, size: int) -> bytes:
        """`size` bytes, or all that are left."""
        parts: list[bytes] = []
        while size > 0 and (part := self.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

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
            raise self.broken(f"reading failed ({error_text(error, self._file.url)})") from error
        self.stored += len(data)
        if not data and self.stored != self._file.size:
            raise self.broken("the file ends early")
        return data

    def _read_compressed(self, size: int) -> bytes:
        while True:
            if (self._decompressor is None or self._decompressor.eof) and not self._next_member():
                return b""
            data, self._pending = self._pending, b""
            assert self._decompressor is not None
            if not data and self._decompressor.needs_input and not (data := self._read_stored(_STORED_CHUNK)):
                raise self.broken(f"the {self._file.compression} stream is cut short")
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
            raise self.broken(f"the {self._file.compression} stream is damaged ({error})") from error
        if decoder.eof:
            self._pending = decoder.unused_data
        return out


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


class Decompressor(Protocol):
    """The interface of `bz2.BZ2Decompressor`, which lzma and zstd share: one member or frame, output in bounded pieces."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's gzip decoder with the interface that bz2, lzma and zstd have."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)
        # A full answer may leave output inside zlib although all input is consumed.
        self.needs_input = not self._decoder.unconsumed_tail and len(out) < max_length
        return out


def _zstd() -> Any:
    zstd = _zstd_module()
    # Windows of up to 2 GiB (`zstd --long=31`) are common for large text corpora; the memory is taken only for files that ask for it.
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31})


def _zstd_module() -> Any:
    """Python's own from 3.14 on, its backport before."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


_DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {
    "gzip": _Gzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ),
    "zstd": _zstd,
}


def decompressor(compression: str) -> Decompressor:
    """A decoder for one member or frame of `gzip`, `bz2`, `xz` or `zstd` data."""
    return _DECOMPRESSORS[compression]()


def damage() -> tuple[type[Exception], ...]:
    """What the decoders raise on data that is damaged."""
    return (zlib.error, lzma.LZMAError, _zstd_module().ZstdError, OSError, ValueError, EOFError)
