"""Second reading of source files: rows, their digests, and reasoning in answers."""

from __future__ import annotations

import ast
import bz2
import csv
import gzip
import io
import json
import lzma
import math
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Any, NoReturn

import orjson
from msgspec import Struct

from prep_assets.errors import CheckFailed
from prep_assets.samples import ASSISTANT, MEDIA, SEPARATOR, THINKING, TOOL, TOOL_CALL, Group, Region, Sample, Turn, changed
from prep_assets.stores.files import Digests

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# Digests of rows, computed a second time: whether rows are equal, and on which side of a split they belong.

_SORTED = json.JSONEncoder(sort_keys=True, default=lambda value: {type(value).__name__: str(value)})
_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_FLAT = {str, int, bool}
"""Types of values that hold no others, and that orjson never writes as null."""
_EXPONENT = re.compile(r"\de[+-]?\d")


class Seen:
    """Digests that a check has seen: the first ones in a set of Python's, further ones in the table of the builds, whose faults both would share.

    Args:
        plain: how many the first ones are; those of the default take some 0.4 MB.
    """

    def __init__(self, plain: int = 1 << 12) -> None:
        self._plain, self._first, self._others = plain, set[bytes](), Digests()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._first or (len(self._first) == self._plain and digest in self._others)

    def add(self, digest: bytes) -> bool:
        """Add a digest; return false if it was seen before."""
        if digest in self._first:
            return False
        if len(self._first) < self._plain:
            self._first.add(digest)
            return True
        return self._others.add(digest)


def fingerprint(payload: Any) -> bytes:
    """Return 16 bytes that are equal exactly if all fields are."""
    return digest(sorted_json(payload))


def digest(data: bytes) -> bytes:
    """Return the first 16 bytes of sha256."""
    return sha256(data).digest()[:16]


def sorted_json(payload: Any) -> bytes:
    """Return JSON with sorted keys, by orjson. It also writes null for NaN, and does not support every type: the standard library writes
    such rows."""
    try:
        written = orjson.dumps(payload, option=_OPTIONS)
    except TypeError:
        return _SORTED.encode(payload).encode()
    if (type(payload) is dict and _FLAT.issuperset(map(type, payload.values()))) or b"null" not in written:
        return written
    return _SORTED.encode(payload).encode()


def canonical_json(value: Any) -> bytes:
    """Return JSON without spaces, keys sorted, text as UTF-8: the held-out share is decided by it.

    The standard library writes it; msgspec writes values where both spell numbers differently (``1e16``), and values that JSON does not have.
    """
    with suppress(TypeError, ValueError):
        text = _PLAIN.encode(value)
        if not _EXPONENT.search(text):
            return text.encode()
    import msgspec

    return msgspec.json.encode(value, order="sorted")


def is_held_out(content: bytes, fraction: float) -> bool:
    """Whether the upper half of the content's xxh3-128, as a share of all its values, lies below `fraction`."""
    import xxhash

    numerator, denominator = fraction.as_integer_ratio()  # in whole numbers, as the share is not one that a float always has
    return (xxhash.xxh3_128_intdigest(content) >> 64) * denominator < numerator << 64


# Rows of JSON text, read a second time by the standard library.

DEPTH = 100
"""Deepest nesting of a row."""
_SURROGATE = re.compile(rb"\\u[dD]")


def object_of(line: bytes) -> dict[str, Any] | None:
    """Return the object on a line; `None` where there is none that can be a row."""
    try:
        value = _strict(line, _LINES)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    is_flat = _FLAT.issuperset(map(type, value.values()))  # which a look at fields tells sooner than one at a long text
    return value if is_flat or line.count(b"{") + line.count(b"[") <= DEPTH or depth_of(value) <= DEPTH else None


def _row(value: Any) -> dict[str, Any] | None:
    """Return a value if it is an object that is not nested too deep and has no duplicate key; else `None`."""
    return value if isinstance(value, dict) and depth_of(value) <= DEPTH else None


_WHITE = " \t\n\r"
"""White space of JSON."""


def _strict(data: bytes, scan: Callable[[str, int], tuple[Any, int]]) -> Any:
    """Parse JSON.

    Raises:
        ValueError, RecursionError: it is no JSON, holds a number that is no finite float, half a surrogate pair, or what the scanner does not take.
    """
    text = data.decode().strip(_WHITE)
    try:
        value, end = scan(text, 0)
    except StopIteration as nothing:
        raise ValueError("no JSON") from nothing
    if end < len(text):
        raise ValueError(f"more than one value: {text[end : end + 40]!r}")
    if _SURROGATE.search(data):
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    return value


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
        ValueError: it has a key twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


class _Ambiguous(dict[str, Any]):
    """An object with a duplicate key."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    return unique if len(unique) == len(pairs) else _Ambiguous(unique)


def depth_of(value: Any) -> int:
    """Return the depth of nested lists and objects; `sys.maxsize` with a duplicate key, so that the value is never a row."""
    depth, level = 0, [value]
    while nested := [node for node in level if isinstance(node, (list, dict))]:
        if _Ambiguous in map(type, nested):
            return sys.maxsize
        depth += 1
        level = [inner for node in nested for inner in (node if isinstance(node, list) else node.values())]
    return depth


def no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond every float")
    return value


_LINES, _LISTS = (
    json.JSONDecoder(parse_constant=no_number, parse_float=_finite, object_pairs_hook=hook).scan_once  # type: ignore[attr-defined]
    for hook in (unique, _pairs)
)
"""Scanners of a line, which is no row if any key stands in it twice, and of a list, of which only some elements may have such a key."""


# Second reading of source files: by the standard library and pyarrow, with none of the code in `data`.
#
# Row numbers are those of record ids: lines of JSONL and text files (blank ones counted, though they are no rows), elements of a JSON list, rows after the
# header of a CSV file, rows of a table.

NumberedRow = tuple[int, dict[str, Any] | None]
"""Number and fields of a row; `None` for an unreadable one."""
Rows = Iterator[NumberedRow]

LINE_BYTES = 32 << 20
"""Longest line that is a row."""
ROWS = 1024
"""Rows of a table that are held at a time."""
_PARQUET: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
_ONE_THREAD: Mapping[str, Any] = {"use_threads": False}
_AT_ONCE = 1 << 18
"""Bytes that are decompressed at a time."""
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


class Unsupported(Exception):
    """A file that this reader cannot parse."""


class Between(Struct, frozen=True):
    """Consecutive rows of a file: the bytes of their lines, the number of the first row, and of the one after the last; `None`
    for all that is left."""

    bytes: int | None = None
    first: int = 0
    end: int | None = None


ALL = Between()


def read_rows(
    stream: IO[bytes],
    format: str,
    compression: str | None,
    *,
    whole_file: bool = False,
    between: Between = ALL,
    at_once: int = ROWS,
) -> Rows:
    """Return the rows of an opened file.

    Args:
        format: ``jsonl``, ``json``, ``csv``, ``tsv``, ``txt``, ``parquet`` or ``arrow``.
        compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or `None`.
        whole_file: a file of text or of JSON lines is one row.
        between: which rows; lines begin at the position of the stream.
        at_once: rows of a table that fit into memory.

    Raises:
        CheckFailed: the lines do not match `between`.
        Unsupported: the file is damaged, so other rules decide which rows it has.
    """
    if format in ("parquet", "arrow"):
        return _tables(stream, format, between, min(at_once, ROWS))
    opened = decompressed(stream, compression)
    if format == "jsonl":
        return _json_file(opened) if whole_file else _json_lines(opened, between)
    if format == "json":
        return _json_list(opened)
    if format in ("csv", "tsv"):
        return _delimited(opened, "," if format == "csv" else "\t")
    return _text_file(opened) if whole_file else _text_lines(opened, between)


def decompressed(stream: IO[bytes], compression: str | None) -> IO[bytes]:
    """Return the decompressed, seekable bytes of an opened file."""
    if compression is None:
        return stream
    openers: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": _XzStreams, "zstd": _open_zstd}
    return io.BufferedReader(openers[compression](stream), _AT_ONCE)  # by itself it decompresses a few kilobytes at a time


class _XzStreams(io.RawIOBase):
    """The decompressed bytes of all streams of an xz file. `lzma.open` ends without an error at the zeros that may separate them."""

    def __init__(self, stored: IO[bytes]) -> None:
        self._stored = stored
        self._begin()

    def _begin(self) -> None:
        self._stored.seek(0)
        self._position, self._decoder = 0, lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; what is before it is decompressed again where it is passed already."""
        offset += self._position if whence == io.SEEK_CUR else 0
        if offset < self._position:
            self._begin()
        while self._position < offset and self.readinto(bytearray(min(_AT_ONCE, offset - self._position))):
            pass
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Decompress into a buffer.

        Raises:
            EOFError, lzma.LZMAError: the file is cut short or damaged.
        """
        out = b""
        while not out:
            data = b"" if self._decoder.eof or not self._decoder.needs_input else self._stored.read(_AT_ONCE)
            if self._decoder.eof:
                data = self._decoder.unused_data.lstrip(b"\0")
                while not data:
                    if not (stored := self._stored.read(_AT_ONCE)):
                        return 0
                    data = stored.lstrip(b"\0")
                self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._decoder.needs_input and not data:
                raise EOFError("the xz stream is cut short")
            out = self._decoder.decompress(data, len(buffer))
        buffer[: len(out)] = out
        self._position += len(out)
        return len(out)


def _open_zstd(stream: IO[bytes]) -> Any:
    zstd = import_module(_ZSTD)
    return zstd.open(stream, options={zstd.DecompressionParameter.window_log_max: 31})


def _lines(stream: IO[bytes], between: Between) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and text of lines that are not blank; `None` for one that is too long."""
    left, number, line = sys.maxsize if between.bytes is None else between.bytes, between.first, b""
    most = LINE_BYTES + 2
    while data := stream.readline(min(left, most)):
        left, line = left - len(data), data
        text = data.removesuffix(b"\n")
        if number == 0:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if len(text) > LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(min(left, most))
                left -= len(line)
            yield number, None
        elif text.strip():
            yield number, text
        elif isinstance(stream, io.BufferedReader):  # blank lines that follow, all at once
            waiting = stream.peek()[:left]
            white = waiting[: len(waiting) - len(waiting.lstrip())]
            blank = stream.read(white.rfind(b"\n") + 1)
            left, number = left - len(blank), number + blank.count(b"\n")
        number += 1
    if between.end is not None and (number != between.end or not line.endswith(b"\n")):
        raise CheckFailed(f"a file that is read in parts has row {number:,} where its cut says row {between.end:,}")


def _json_lines(stream: IO[bytes], between: Between) -> Rows:
    for number, line in _lines(stream, between):
        yield number, None if line is None else object_of(line)


def _json_file(stream: IO[bytes]) -> Rows:
    data = stream.read(LINE_BYTES + 4).removeprefix(b"\xef\xbb\xbf")
    if len(data) > LINE_BYTES:
        yield 0, None
    elif data.strip():
        objects = [object_of(line) for line in data.split(b"\n") if line.strip()]
        yield 0, None if None in objects else {"lines": objects}


def _json_list(stream: IO[bytes]) -> Rows:
    """Parse the whole list before anything is yielded."""
    try:
        value = _strict(stream.read().removeprefix(b"\xef\xbb\xbf"), _LISTS)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"the list as a whole is no JSON: {error}") from error
    return enumerate(map(_row, value if isinstance(value, list) else [value]))


def _delimited(stream: IO[bytes], delimiter: str) -> Rows:
    csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))
    text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="\n")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    parsed = (row for row in _parsed(reader) if row != [])
    header = next(parsed, None)
    if header is None:
        raise Unsupported("no header")
    for number, fields in enumerate(parsed):
        whole = fields is not None and len(fields) == len(header) and all(_is_text(field) for field in fields)
        yield number, dict(zip(header, fields or (), strict=True)) if whole else None


def _parsed(reader: Iterable[list[str]]) -> Iterator[list[str] | None]:
    rows = iter(reader)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise Unsupported(str(error)) from error
            yield None


def _is_text(value: str) -> bool:
    """Whether "surrogateescape" left no undecodable byte, and there is no NUL."""
    return "\0" not in value and (value.isascii() or not any("\udc80" <= char <= "\udcff" for char in value))


def _text_lines(stream: IO[bytes], between: Between) -> Rows:
    for number, line in _lines(stream, between):
        yield number, None if line is None else _text(line.removesuffix(b"\r"))


def _text_file(stream: IO[bytes]) -> Rows:
    data = stream.read(LINE_BYTES + 4).removeprefix(b"\xef\xbb\xbf")
    if len(data) > LINE_BYTES:
        yield 0, None
    elif data.strip():
        yield 0, _text(data)


def _text(data: bytes) -> dict[str, Any] | None:
    """Return a document; `None` for one that is no text in UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else {"text": text}


def _tables(stream: IO[bytes], format: str, between: Between, at_once: int) -> Rows:
    end = sys.maxsize if between.end is None else between.end
    for first, batch in _batches(stream, format, between.first, at_once):
        if first >= end:
            return
        low, high = (min(max(row - first, 0), batch.num_rows) for row in (between.first, end))
        for start in range(low, high, at_once):
            part = batch.slice(start, min(at_once, high - start))
            try:
                rows: list[dict[str, Any] | None] = list(part.to_pylist())
            except (ValueError, ArithmeticError):
                rows = [_table_row(part.slice(at, 1)) for at in range(part.num_rows)]
            yield from enumerate((None if row is None else {name: _members(row[name]) for name in row} for row in rows), first + start)


def _members(value: Any) -> Any:
    """Return a value without null members of objects: in a column each object has the members of all others."""
    if isinstance(value, list):
        return list(map(_members, value))
    return {name: _members(inner) for name, inner in value.items() if inner is not None} if isinstance(value, dict) else value


def _table_row(row: Any) -> dict[str, Any] | None:
    try:
        rows: list[dict[str, Any]] = row.to_pylist()
    except (ValueError, ArithmeticError):
        return None
    return rows[0]


def _batches(stream: IO[bytes], format: str, first: int, at_once: int) -> Iterator[tuple[int, Any]]:
    """Yield batches of a table with the number of their first row, from the row group of row `first` on."""
    begins, batches = _opened_table(stream, format, first, at_once)
    for batch in batches:
        yield begins, batch
        begins += batch.num_rows


def _opened_table(stream: IO[bytes], format: str, first: int, at_once: int) -> tuple[int, Iterator[Any]]:
    import pyarrow as pa

    if format == "parquet":
        import pyarrow.parquet as pq

        table = pq.ParquetFile(stream, **_PARQUET)
        begins = list(accumulate((table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)), initial=0))
        group = max(0, bisect_right(begins, first) - 1)
        return begins[group], table.iter_batches(at_once, row_groups=list(range(group, table.num_row_groups)), **_ONE_THREAD)
    magic = stream.read(6)
    stream.seek(0)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(stream)
        return 0, (reader.get_batch(number) for number in range(reader.num_record_batches))
    return 0, iter(pa.ipc.open_stream(stream))


# Second reading of reasoning in the text of an answer, for checks. It shares no code with the first.


def shown_by(template: ChatTemplate) -> dict[str, bool]:
    """Return what a template shows, as `read_again` takes it."""
    return {"shown": template.form.shows_reasoning, "calls": template.form.shows_calls}


def read_again(sample: Sample, options: Mapping[str, Any], *, shown: bool, calls: bool = False) -> Sample:
    """Return the sample as a build with the options ``reasoning``, ``reasoning_tags`` and ``calls`` must have rendered it.

    Only for stored records: what else a build rejects is not handled.

    Args:
        shown: whether the template writes reasoning.
        calls: whether the template writes calls.

    Raises:
        NoCall: an answer has something else than an object of a call between its tags.
    """
    return changed(sample, turns=_reread_turns(sample.turns, options, shown, calls))


def group_again(group: Group, options: Mapping[str, Any], *, shown: bool, calls: bool = False) -> Group:
    """Return a group as `read_again` does: its prompt and each of its responses."""
    responses = tuple(_reread_turns(response, options, shown, calls) for response in group.responses)
    return changed(group, prompt=_reread_turns(group.prompt, options, shown, calls), responses=responses)


def typed_tokens(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return what finds control tokens in a text, a longer one before those that it begins with."""
    return re.compile("|".join(map(re.escape, sorted(tokens, reverse=True))) or "(?!)")


def untyped(sample: Sample, typed: re.Pattern[str]) -> Sample:
    """Return the sample without the control tokens that are typed in its texts and calls, and those that come together where one is removed."""

    def bare(value: Any) -> Any:
        if isinstance(value, str):
            while (shorter := typed.sub("", value)) != value:
                value = shorter
            return value
        if isinstance(value, dict):
            return {bare(key): bare(inner) for key, inner in value.items()}
        return [*map(bare, value)] if isinstance(value, list) else value

    def bare_region(region: Region) -> Region:
        if region.kind in (SEPARATOR, *MEDIA):
            return region
        call = None
        with suppress(ValueError, RecursionError):  # a call that is no JSON is a text, and rejected later
            call = json.loads(region.text) if region.kind == TOOL_CALL else None
        if call is None:
            return changed(region, text=bare(region.text))
        return region if bare(call) == call else changed(region, text=json.dumps(bare(call), ensure_ascii=False))

    turns = (changed(turn, regions=tuple(map(bare_region, turn.regions))) for turn in sample.turns)
    return changed(sample, turns=tuple(turns))


def _reread_turns(turns: Sequence[Turn], options: Mapping[str, Any], shown: bool, calls: bool) -> tuple[Turn, ...]:
    moves = shown and options["reasoning"] == "auto"
    reread = [_reread_turn(turn, options["reasoning_tags"], moves) for turn in turns]
    if calls and options.get("calls") == "auto":
        reread = [part for turn in reread for part in _untyped(turn)]
    return tuple(reread)


def _untyped(turn: Turn) -> list[Turn]:
    """The turns that a turn becomes whose last text ends with calls between tags, or is results between tags and nothing else."""
    *others, last = turn.regions or (None,)
    if last is None or last.drop or last.kind in (THINKING, TOOL_CALL, *MEDIA):
        return [turn]
    words, blocks = blocks_of(last.text, turn.role)
    if turn.role == TOOL:
        return [changed(turn, regions=(changed(last, text=result.strip()),)) for result in blocks] if blocks and not others else [turn]
    texts = [changed(last, text=words.rstrip())] if words.strip() else []
    calls = (changed(last, kind=TOOL_CALL, text=call_again(call)) for call in blocks)
    return [changed(turn, regions=(*others, *texts, *calls))] if blocks else [turn]


def blocks_of(text: str, role: str) -> tuple[str, list[str]]:
    """The words of a text, and what the tags behind them hold: of an answer the calls at its end, which begin a line, of a tool the results, beside which it
    says nothing."""
    rest, blocks, tag = text, list[str](), {ASSISTANT: "tool_call", TOOL: "tool_response"}.get(role)
    while tag and rest.rstrip().endswith(f"</{tag}>"):
        before, opened, inside = rest.rstrip().removesuffix(f"</{tag}>").rpartition(f"<{tag}>")
        if not opened or f"</{tag}>" in inside:
            break
        rest, blocks = before, [inside, *blocks]
    return (text, []) if blocks and re.search(r"\S\s*\Z" if role == TOOL else r"\S[^\S\n]*\Z", rest) else (rest, blocks)


class NoCall(ValueError):
    """A text between the tags of a call that is no object of a call."""


_TEXT = re.compile(
    "|".join(rf"""{q}(?:[^{q}\\\r\n]|\\(?:[\\'"nrt]|x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}}))*{q}""" for q in "'\"")
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def call_object(text: str) -> Any:
    """Return the value of JSON, or of a Python literal that consists of what JSON has as well.

    Raises:
        ValueError, SyntaxError: the text is neither, names a member twice, or is nested too deep.
    """

    try:
        try:
            return json.loads(text, object_pairs_hook=unique)
        except ValueError:
            return _python_object(text)
    except (MemoryError, RecursionError) as error:  # what parsers raise for a text that is nested too deep
        raise NoCall(text) from error


def _python_object(text: str) -> Any:
    tree = ast.parse(text.strip(" \t\r\n"), mode="eval")
    wrote, plain = (
        _NUMBER.sub("0", _TEXT.sub("''", literal)).translate(dict.fromkeys(b" \t\r\n")) for literal in (text, ast.unparse(tree))
    )
    objects = [[getattr(key, "value", None) for key in node.keys] for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    named = all(len({*keys}) == len(keys) and all(isinstance(key, str) for key in keys) for keys in objects)
    if wrote != plain or not named or not re.fullmatch(r"(?:['0\[\]{}:,]|True|False|None)*", wrote):
        raise NoCall(text)
    return json.loads(json.dumps(ast.literal_eval(tree)))


def call_again(text: str) -> str:
    """Return the JSON of a call, compact.

    Raises:
        NoCall: the text is none.
    """
    try:
        call = call_object(text)
        arguments: Any = next((call[key] for key in ("arguments", "parameters") if key in call), {})
        arguments = call_object(arguments) if isinstance(arguments, str) else arguments
        again = {"name": call["name"], "arguments": arguments} | ({"id": str(call["id"])} if call.get("id") is not None else {})
        if isinstance(arguments, dict) and call["name"].strip() and not call.keys() - {"name", "arguments", "parameters", "id", "type"}:
            return json.dumps(again, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise NoCall(text) from error
    raise NoCall(text)


def _reread_turn(turn: Turn, tags: Sequence[Sequence[str]], moves: bool) -> Turn:
    if (found := _block(turn, tags, moves)) is None:
        return turn
    position, body, answer = found
    region = turn.regions[position]
    if not moves:
        return changed(turn, regions=tuple(each for each in turn.regions if each.kind != THINKING))
    parts = [] if _thoughts(turn) or not body else [changed(region, kind=THINKING, text=body)]
    parts += [changed(region, text=answer.lstrip())] if answer.strip() else []
    return changed(turn, regions=(*turn.regions[:position], *parts, *turn.regions[position + 1 :]))


def _block(turn: Turn, tags: Sequence[Sequence[str]], moves: bool) -> tuple[int, str, str] | None:
    """The first text of an answer that begins with one block of reasoning: number of its region, the reasoning, what stands behind it."""
    position = next((at for at, each in enumerate(turn.regions) if not each.drop and each.kind not in (THINKING, TOOL_CALL, *MEDIA)), None)
    if turn.role != ASSISTANT or position is None:
        return None
    whole = turn.regions[position].text
    text = whole.lstrip()
    for opening, closing in (pair for pair in tags if pair[1] in text):
        body, closed, answer = text.removeprefix(opening).partition(closing)
        tag = re.escape(closing)
        begins = text.startswith(opening) or (moves and re.search(rf"\n[ \t]*{tag}|{tag}[ \t]*\n", whole) is not None)
        if begins and closed and opening not in body + answer and closing not in answer:
            return position, body.strip(), answer
    return None


def _thoughts(turn: Turn) -> str:
    return "".join(region.text for region in turn.regions if region.kind == THINKING and not region.drop).strip()


def conflicting_thoughts(sample: Sample, options: Mapping[str, Any], *, shown: bool) -> bool:
    """Whether an answer has other reasoning in its text than beside it."""
    moves = shown and options["reasoning"] == "auto"
    blocks = ((turn, _block(turn, options["reasoning_tags"], moves)) for turn in sample.turns if _thoughts(turn))
    return any(found is not None and found[1] != _thoughts(turn) for turn, found in blocks)
