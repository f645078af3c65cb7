"""Decompressed bytes of source files, their lines, and the readers of plain text."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import sys
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import chain
from types import TracebackType
from typing import IO, Any, Protocol

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.data.addresses import error_text, file_name, is_remote
from prep_assets.data.blocks import PAYLOAD_CHARACTERS, Block, Unreadable, invalid_byte, nul_byte, reject_long_row, reject_row
from prep_assets.data.files import WHOLE, Part, SourceFile, open_stored
from prep_assets.data.recognize import recognized
from prep_assets.errors import PrepAssetsError, SourceError
from prep_assets.samples import Record
from prep_assets.stores.arrays import prefetch

# Decompressors, behind one interface.


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
        # A full result may leave output inside zlib although all input is consumed.
        self.needs_input = not self._decoder.unconsumed_tail and len(out) < max_length
        return out


def _zstd() -> Any:
    zstd = _zstd_module()
    # Windows of up to 2 GiB (`zstd --long=31`) are common for large text corpora; only files that use them take the memory.
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
"""Compression -> the decoder of one member or frame."""

# Streams: the decompressed bytes of a source file, proven to be complete.

_STORED_CHUNK = 1 << 18
_COPY_CHUNK = 1 << 20
_FETCH_AGAIN = "The download is incomplete or damaged: fetch it again"


class Stream:
    """The decompressed bytes of a file, or of a part of it.

    A compressed file may have several members or frames. All of them must be whole, nothing else may follow, and the stored bytes must be
    `file.size`; otherwise `read` raises instead of ending early.

    Attributes:
        part: the part that is read.
        stored: bytes of the stored file that the output so far has consumed.
        rows: rows before the current position, for error messages; readers set it.
    """

    def __init__(self, file: SourceFile, part: Part = WHOLE, watch: Callable[[bytes], None] | None = None) -> None:
        """
        Args:
            watch: called with all bytes as they are read.
        """
        self.part = part
        self._watch = watch
        self._file = file
        self._raw = open_stored(file)
        self._decompressor: Decompressor | None = None
        self._pending = b""
        self._damage = (zlib.error, lzma.LZMAError, _zstd_module().ZstdError, OSError, ValueError, EOFError)
        self._position = self._consumed = 0
        self.stored = 0
        self.rows = part.row
        if part.start:
            self._seek(part.start)

    @classmethod
    def of(cls, file: SourceFile, part: Part = WHOLE, watch: Callable[[bytes], None] | None = None) -> Stream:
        """A stream of `file`. For parts of a compressed file in order, it continues the last stream instead of decompressing from the beginning."""
        if not (part.start and _WAITING and _WAITING[0]._file == file and _WAITING[0]._position <= part.start):
            return cls(file, part, watch)
        stream = _WAITING.pop()
        stream.part, stream._watch, stream.rows = part, watch, part.row
        stream._seek(part.start)
        return stream

    @property
    def format(self) -> str:
        """The format of the file."""
        return self._file.format

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and self._file.compression is not None and self._position == self.part.stop:
            while _WAITING:
                _WAITING.pop().close()
            _WAITING.append(self)
        else:
            self.close()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end of the file.

        Raises:
            SourceError: the file is cut short, damaged, or cannot be read.
        """
        with self._faults_as_errors():
            return self._read(size)

    def pieces(self, size: int) -> Iterator[bytes]:
        """The remaining bytes, `size` at a time. A separate thread decompresses a whole compressed file.

        Raises:
            SourceError: as `read`, after the pieces before the fault.
        """
        if self._file.compression is None or self.part != WHOLE:
            while piece := self.read(size):
                yield piece
            return
        with self._faults_as_errors(), closing(prefetch(self._read_pieces(size))) as pieces:
            for piece, self.stored in pieces:
                yield piece

    def _read_pieces(self, size: int) -> Iterator[tuple[bytes, int]]:
        while piece := self._read(size):
            yield piece, self._consumed

    @contextmanager
    def _faults_as_errors(self) -> Iterator[None]:
        """Turn a `_Fault` into the `SourceError` that says after how many rows and bytes reading failed."""
        try:
            yield
        except _Fault as fault:
            self.stored = self._consumed
            raise self.broken(*fault.args) from fault.__cause__
        self.stored = self._consumed

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (part := self._read_within_part(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read_within_part(self, size: int) -> bytes:
        if self.part.stop is not None:
            size = min(size, self.part.stop - self._position)
            if size <= 0:
                return b""
        data = self._read_stored(size) if self._file.compression is None else self._read_compressed(size)
        self._position += len(data)
        if self._watch is not None:
            self._watch(data)
        return data

    def _seek(self, start: int) -> None:
        """Skip the bytes before `start`. Compressed ones must be decompressed for it."""
        if self._file.compression is None and self._raw.seekable():
            self._position = self._consumed = self.stored = self._raw.seek(start)
            return
        with self._faults_as_errors():
            while self._position < start:
                read = self._read_stored if self._file.compression is None else self._read_compressed
                if not (data := read(min(_COPY_CHUNK, start - self._position))):
                    raise _Fault(f"the file ends before byte {start:,} of its text")
                self._position += len(data)

    def broken(self, problem: str, remedy: str = _FETCH_AGAIN) -> SourceError:
        """The error for a file that cannot be read further, with the file, the progress and the remedy."""
        progress = f"after {self.rows:,} rows, at byte {self.stored:,} of {self._file.size:,}"
        return SourceError(f"{self._file.name}: {problem} {progress} ({file_name(self._file.url)}). {remedy}")

    def _read_stored(self, size: int) -> bytes:
        try:
            data = self._raw.read(size)
        except PrepAssetsError:
            raise
        except Exception as error:  # each remote file system raises its own kinds
            raise _Fault(f"reading failed ({error_text(error, self._file.url)})") from error
        self._consumed += len(data)
        if not data and self._consumed != self._file.size:
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
        """Start the next member or frame; false at the end of the file."""
        data = self._pending or self._read_stored(_STORED_CHUNK)
        if self._decompressor is not None and self._file.compression in ("gzip", "xz"):
            while data and not (data := data.lstrip(b"\0")):  # both formats allow zeros as padding after a member
                data = self._read_stored(_STORED_CHUNK)
        if data:
            self._pending = data
            self._decompressor = _DECOMPRESSORS[self._file.compression or ""]()
        return bool(data)

    def _decompress(self, decoder: Decompressor, data: bytes, size: int) -> bytes:
        try:
            out = decoder.decompress(data, size)
        except self._damage as error:
            raise _Fault(f"the {self._file.compression} stream is damaged ({error})") from error
        if decoder.eof:
            self._pending = decoder.unused_data
        return out


class _Fault(Exception):
    """A fault in the stored bytes; its arguments are those of `Stream.broken`."""


_WAITING: list[Stream] = []
"""The last stream that stopped at the end of a part of a compressed file, for the next reader of a later part in this process."""


def blocks_of(
    read: Callable[[Stream], Iterator[Block]], file: SourceFile, part: Part = WHOLE, watch: Callable[[bytes], None] | None = None
) -> Iterator[Block]:
    """The blocks that `read` gives for a file or a part of it."""
    with Stream.of(file, part, watch) as stream:
        yield from read(stream)


@contextmanager
def seekable(file: SourceFile) -> Iterator[IO[bytes]]:
    """Open `file`, decompressed, for reading at any position. A remote or compressed file is copied to a temporary file, not to memory."""
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


# Lines of a stream, in pieces of bounded size, their blocks of records, and plain text: one document a line, or one a file.

_NEWLINE = ord("\n")
_PART = 1 << 16
_BOM = b"\xef\xbb\xbf"
_HEAD = 4096
"""Bytes of a file that show what it is."""
# Lines are split and decoded in pieces of this size, which fit into the processor's cache, whatever the size of blocks.
_PIECE = 1 << 20
_KEPT_OF_LONG = 4 * PAYLOAD_CHARACTERS  # bytes kept of a line that is too long: enough for the text that its rejection shows

# Magic numbers of files whose name says text but whose content is something else.
_TO_UTF8 = "Convert it to UTF-8: iconv -f {} -t UTF-8"
_NO_UTF8_TEXT = {
    b"\xff\xfe\0\0": ("is UTF-32 text", _TO_UTF8.format("UTF-32")),
    b"\0\0\xfe\xff": ("is UTF-32 text", _TO_UTF8.format("UTF-32")),
    b"\xff\xfe": ("is UTF-16 text", _TO_UTF8.format("UTF-16")),
    b"\xfe\xff": ("is UTF-16 text", _TO_UTF8.format("UTF-16")),
    b"\x1f\x8b": ("is compressed with gzip, but its name says otherwise", "Give it the suffix .gz"),
    b"\x28\xb5\x2f\xfd": ("is compressed with zstd, but its name says otherwise", "Give it the suffix .zst"),
    b"\xfd7zXZ\x00": ("is compressed with xz, but its name says otherwise", "Give it the suffix .xz"),
    b"BZh": ("is compressed with bzip2, but its name says otherwise", "Give it the suffix .bz2"),
    b"PAR1": ("is a Parquet file, but its name says otherwise", "Set `format: parquet`"),
}


class Lines(Struct, frozen=True):
    """Consecutive lines.

    Attributes:
        start: zero-based number of the first line.
        text: the lines, blank ones too, separated by newlines. A line that is too long is cut to its start.
        ends: int64[lines], the offset in `text` where each line ends: a newline, or for the last one maybe the end.
        size: their approximate bytes.
        too_long: number among these lines -> full length in bytes, of the lines over the limit.
    """

    start: int
    text: bytes
    ends: Ints
    size: int
    too_long: Mapping[int, int]

    @property
    def lines(self) -> list[bytes]:
        """Each line without its newline."""
        return self.text.split(b"\n")[: len(self.ends)]

    @property
    def filled(self) -> list[tuple[int, bytes]]:
        """Number among these lines and text of each line that is not blank, or too long."""
        lines, numbers = self.lines, np.flatnonzero(np.diff(self.ends, prepend=-1) > 1).tolist()
        return [(number, lines[number]) for number in numbers if number in self.too_long or not lines[number].isspace()]


def text_start(stream: Stream) -> bytes:
    """The first bytes of a text file or of a part of one, without a byte order mark.

    Raises:
        SourceError: the file is not UTF-8 text, but UTF-16 or UTF-32, compressed or Parquet.
    """
    head = stream.read(_HEAD)
    if stream.part.start:
        return head
    for magic, (problem, remedy) in _NO_UTF8_TEXT.items():
        if head.startswith(magic):
            raise stream.broken(problem, remedy)
    if encoding := _wide_encoding(head):
        raise stream.broken(f"is {encoding} text without a byte order mark", _TO_UTF8.format(encoding))
    return head.removeprefix(_BOM)


_NO_TEXT = bytes(set(range(0x20)) - {*b"\t\n\v\f\r\x1b"})
"""Control bytes that are rare in UTF-8, and common in UTF-16 and UTF-32 as upper bytes of letters and spaces."""


_SIGNS = re.compile("[\u3000-\u30ff，！？：；（）的是不了一在有人]")
"""Signs, kana and words in nearly every Chinese and Japanese text; what other encodings of the two give, read as UTF-16, has hardly any of them."""
_EAST_ASIAN = re.compile("[\u3000-\u30ff一-鿿！-～]*")


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, if the beginning of a file is text in it and not in UTF-8."""
    solid = len(head.translate(None, _NO_TEXT)) == len(head)  # so is text in UTF-16 without spaces and line feeds
    utf8, is_whole, signs = _is_utf8(head), len(head) < _HEAD, dict[str, int]()
    if solid and utf8:
        return None
    for encoding in ("UTF-16LE", "UTF-16BE") if solid else ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE"):
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head, is_whole)
        except UnicodeDecodeError:
            continue
        kinds = {unicodedata.category(char) for char in {*text} - {*"\t\n\v\f\r\x1b"}}
        # two bytes of UTF-8 are one letter beyond U+2000 in UTF-16, and half of the letters there are not valid UTF-8
        is_text = text and kinds.isdisjoint(("Cc", "Cn", "Co")) and not (utf8 and sum(char >= "\u2000" for char in text) > len(text) / 4)
        if is_text and not (solid and not (_EAST_ASIAN.fullmatch(text) and _SIGNS.search(text))):
            signs[encoding] = len(_SIGNS.findall(text))
    return max(signs, key=signs.__getitem__, default=None)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def read_lines(stream: Stream, block_bytes: int, max_line_bytes: int) -> Iterator[Lines]:
    """The lines of a text file, split at newlines (`\\n`), about `block_bytes` at a time or less.

    Holds at most one piece and one line of `max_line_bytes`; the rest of a longer line is skipped. The size of pieces changes neither the lines
    nor which of them are too long.
    """
    number = stream.part.row
    unfinished: list[bytes | memoryview] = []  # the pieces of the last line so far, so that a long one is joined once
    length = 0
    start = text_start(stream)
    if not stream.part.start and (found := recognized(start, stream.format, whole=len(start) + len(_BOM) < _HEAD)):
        raise stream.broken(*found)
    for chunk in chain([start], stream.pieces(min(block_bytes, _PIECE))):
        if end := chunk.rfind(b"\n") + 1:
            first_length, text = length + chunk.find(b"\n"), b"".join([*unfinished, memoryview(chunk)[:end]])
            unfinished, length = [chunk[end:]], len(chunk) - end
            lines = _split_lines(number, text, len(chunk), first_length, max_line_bytes)
            del text
            yield lines
            number += len(lines.ends)
        else:
            unfinished.append(chunk)
            length += len(chunk)
        if length > max_line_bytes:
            unfinished = [b"".join(unfinished)[:_KEPT_OF_LONG]]
    if length:
        yield _split_lines(number, b"".join(unfinished), length, length, max_line_bytes)


def _split_lines(start: int, text: bytes, size: int, first_length: int, limit: int) -> Lines:
    """Split `text` into lines, and cut those over `limit`. The first may have lost bytes already, so its length is passed in."""
    ends = _ends(text)
    lengths = np.diff(ends, prepend=-1) - 1
    lengths[0] = first_length
    if lengths.max() <= limit:
        return Lines(start, text, ends, size, {})
    too_long = {number: int(lengths[number]) for number in np.flatnonzero(lengths > limit).tolist()}
    lines = text.split(b"\n")
    for number in too_long:
        lines[number] = lines[number][:_KEPT_OF_LONG]
    text = b"\n".join(lines)
    return Lines(start, text, _ends(text), size, too_long)


def _ends(text: bytes) -> Ints:
    raw = np.frombuffer(text, np.uint8)  # in parts that fit into the processor's cache
    newlines = np.concatenate([np.flatnonzero(raw[at : at + _PART] == _NEWLINE) + at for at in range(0, len(raw), _PART)])
    return newlines if text.endswith(b"\n") else np.append(newlines, len(text))


AddLines = Callable[[Lines, list[Record], list[Unreadable]], None]
"""Adds lines of a format to records or unreadable rows; blank ones to neither."""


def blocks_of_lines(stream: Stream, block_bytes: int, max_line_bytes: int, add: AddLines) -> Iterator[Block]:
    """The lines of a text file as blocks of about `block_bytes`, through `add`."""
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    size = 0
    for lines in read_lines(stream, block_bytes, max_line_bytes):
        count_before = len(records) + len(unreadable)
        add(lines, records, unreadable)
        stream.rows += len(records) + len(unreadable) - count_before
        size += lines.size
        if size >= block_bytes:
            yield Block(records, unreadable, stream.stored)
            records, unreadable, size = [], [], 0
    yield Block(records, unreadable, stream.stored)


_SKIP_CHUNK = 1 << 20


def read_text_lines(stream: Stream, index: int, block_bytes: int, max_record_bytes: int) -> Iterator[Block]:
    """Read payloads `{"text": line}` without `\\n` or `\\r\\n`. `Record.row` is the line number; blank lines are skipped."""

    def add(lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None:
        for number, line in lines.filled:
            row = lines.start + number
            if number in lines.too_long:
                unreadable.append(reject_long_row(index, row, line, lines.too_long[number], max_record_bytes))
            else:
                _add_text(records, unreadable, index, row, line.removesuffix(b"\r"))

    return blocks_of_lines(stream, block_bytes, max_record_bytes, add)


def read_text_file(stream: Stream, index: int, max_record_bytes: int) -> Iterator[Block]:
    """Read one payload `{"text": whole file}`, row 0; no row if the file is only white space."""
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    start = text_start(stream)
    text = start + stream.read(max_record_bytes + 1 - len(start))
    if len(text) > max_record_bytes:
        skipped = sum(len(part) for part in iter(lambda: stream.read(_SKIP_CHUNK), b""))
        unreadable.append(reject_long_row(index, 0, text, len(text) + skipped, max_record_bytes))
    elif text.strip():
        _add_text(records, unreadable, index, 0, text)
    yield Block(records, unreadable, stream.stored)


def _add_text(records: list[Record], unreadable: list[Unreadable], index: int, row: int, raw: bytes) -> None:
    if b"\0" in raw:
        unreadable.append(reject_row(index, row, "nul_byte", nul_byte(raw), raw))
        return
    try:
        records.append(Record(index, row, {"text": raw.decode()}))
    except UnicodeDecodeError as error:
        unreadable.append(reject_row(index, row, "invalid_utf8", invalid_byte(error, raw), raw))
