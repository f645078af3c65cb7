"""The quarantine: a JSONL file of all rejected records, in the order of their rejection.

Ids count records from 1, as `record_id` does. In files they count from 0, as they did in every release.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from prep_assets.data.blocks import PAYLOAD_CHARACTERS, Unreadable
from prep_assets.data.files import SourceFile, record_id
from prep_assets.errors import StoreError
from prep_assets.stores.verification import WrittenFile

_JSON = json.JSONEncoder(ensure_ascii=False, default=str).encode


class Refusal(Struct, frozen=True):
    """One line of a quarantine file.

    Attributes:
        id: id of the record; see `record_id`.
        stage: the stage that rejected it: `records`, `schema`, `template` ...
        reason: counted slug.
        detail: what exactly is wrong with it.
        payload: its content as text (JSON where it was readable), at most 2000 characters.
        payload_length: length of the whole payload: characters, or bytes where the row could not be read as text.
    """

    id: str
    stage: str
    reason: str
    detail: str
    payload: str
    payload_length: int


_TEXT = msgspec.json.Encoder().encode
"""Encodes strings and numbers as `_JSON` does, in a tenth of the time."""
_LINE = b"{%s}\n" % b", ".join(b'"%s": %%s' % name.encode() for name in Refusal.__struct_fields__)


class Quarantine:
    """Writes rejected records to `path` as they come, and counts them.

    A context manager. Leaves no file if nothing was rejected, and replaces the file of an earlier run. The same rejections give the same
    bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: WrittenFile | None = None
        self._counts: Counter[str] = Counter()
        self._buffer: list[Refusal] | None = None

    def __enter__(self) -> Quarantine:
        self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def counts(self) -> dict[str, int]:
        """`stage/reason` -> number of rejected records, sorted."""
        return dict(sorted(self._counts.items()))

    def add(self, id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> None:
        """Write one rejection.

        Args:
            payload: a string is written as it is, anything else as JSON (types that JSON lacks as their `str`).
            length: length of the whole payload, where `payload` is only its start.
        """
        self.write(refusal(id, stage, reason, detail, payload, length=length))

    def add_unreadable(self, file: SourceFile, rows: Iterable[Unreadable]) -> None:
        """Write rows of `file` that were rejected at reading, as stage `records`."""
        for row in rows:
            self.write(unreadable(file, row))

    def append(self, lines: BufferedIOBase, counts: Mapping[str, int]) -> None:
        """Append the lines of another quarantine file and add its counts."""
        shutil.copyfileobj(lines, self._open_file())
        self._counts.update(counts)

    def write(self, rejection: Refusal) -> None:
        """Write one rejection from `refusal` or `unreadable`, for callers that reject in one thread and write in another."""
        self._counts[f"{rejection.stage}/{rejection.reason}"] += 1
        if self._buffer is not None:
            self._buffer.append(rejection)
        else:
            self._open_file().write(_line(rejection))

    @contextmanager
    def by_row(self, files: Sequence[str]) -> Iterator[None]:
        """Buffer the rejections of rows of `files` and write them in the order of files and rows at the end, whichever stage rejected them."""
        self._buffer = []
        try:
            yield
        finally:
            buffer, self._buffer = self._buffer, None
            if buffer:
                order = {name: number for number, name in enumerate(files)}
                self._open_file().write(b"".join(map(_line, sorted(buffer, key=partial(_place, order)))))

    def _open_file(self) -> WrittenFile:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = WrittenFile(self._path)
        return self._file


_NUMBER = re.compile(r":(\d+)(?= of [^:]*$|$)")
_NAMES_A_RECORD = {"duplicate", "contaminated", "held_out"}
"""Reasons whose details name another record, at the end or before "of"."""


def renumbered(text: str, by: int) -> str:
    """An id, or a detail that names a record, with another number: `by` is 1 from a file to people, and -1 back."""
    return _NUMBER.sub(lambda number: f":{int(number[1]) + by}", text)


def _renumbered(rejection: Refusal, by: int) -> Refusal:
    file, colon, number = rejection.id.rpartition(":")
    detail = renumbered(rejection.detail, by) if rejection.reason in _NAMES_A_RECORD else rejection.detail
    return replace(rejection, id=f"{file}{colon}{int(number) + by}", detail=detail) if number.isdecimal() else rejection


def _line(rejection: Refusal) -> bytes:
    rejection = _renumbered(rejection, -1)
    return _LINE % tuple(_TEXT(getattr(rejection, name)) for name in Refusal.__struct_fields__)


def _place(order: Mapping[str, int], rejection: Refusal) -> tuple[int, int]:
    name, _, row = rejection.id.rpartition(":")
    return order[name], int(row)


def refusal(id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> Refusal:
    """Build the line that `Quarantine.add` writes for these arguments."""
    text = payload if isinstance(payload, str) else _JSON(payload)
    start = _encodable(text[:PAYLOAD_CHARACTERS])
    return Refusal(id, stage, reason, _encodable(detail), start, len(text) if length is None else length)


def unreadable(file: SourceFile, row: Unreadable) -> Refusal:
    """Build the line for a row of `file` that could not be read, of stage `records`."""
    return refusal(record_id(file, row.row), "records", row.reason, row.detail, row.payload, length=row.length)


def _encodable(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot encode, as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def read_quarantine(path: Path) -> Iterator[Refusal]:
    """The rejections in a quarantine file; none if the file does not exist, because then nothing was rejected.

    Raises:
        StoreError: a line cannot be decoded, e.g. the last one of a killed run.
    """
    if not path.is_file():
        return
    decode = msgspec.json.Decoder(Refusal).decode
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _renumbered(decode(line), 1)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise StoreError(f"{path}, line {number}: {error}. The run that wrote it was cut short: build again") from error
