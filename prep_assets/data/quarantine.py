"""The quarantine: a JSONL file of every record that was refused, in the order in which they were."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from prep_assets.data.blocks import PAYLOAD_CHARACTERS, Unreadable
from prep_assets.data.files import SourceFile, record_id
from prep_assets.errors import StoreError
from prep_assets.stores.verification import WrittenFile

_JSON = json.JSONEncoder(ensure_ascii=False, default=str).encode


@dataclass(frozen=True, slots=True)
class Refusal:
    """One line of a quarantine file.

    Attributes:
        id: id of the record, `<file name>:<row>`.
        stage: where on its way it was refused: `records`, `schema`, `template` ...
        reason: slug that is counted.
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
"""Of a string or a number what `_JSON` gives, in a tenth of the time."""
_LINE = b"{%s}\n" % b", ".join(b'"%s": %%s' % name.encode() for name in Refusal.__slots__)


class Quarantine:
    """Writes refused records to `path` as they come, and counts them.

    A context manager. Leaves no file where nothing was refused, and replaces the file of an earlier run. The same refusals give the same
    bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: WrittenFile | None = None
        self._counts: Counter[str] = Counter()
        self._held: list[Refusal] | None = None

    def __enter__(self) -> Quarantine:
        self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def counts(self) -> dict[str, int]:
        """`stage/reason` -> number of refused records, sorted."""
        return dict(sorted(self._counts.items()))

    def add(self, id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> None:
        """Write one refusal.

        Args:
            payload: a string is written as it is, anything else as JSON (what JSON does not have, as its `str`).
            length: length of the whole payload, where `payload` is only its start.
        """
        self.write(refusal(id, stage, reason, detail, payload, length=length))

    def add_unreadable(self, file: SourceFile, rows: Iterable[Unreadable]) -> None:
        """Write rows of `file` that were refused at reading, as stage `records`."""
        for row in rows:
            self.write(unreadable(file, row))

    def append(self, other: BufferedIOBase, counts: Mapping[str, int]) -> None:
        """Write all refusals of another quarantine file, which counted them."""
        shutil.copyfileobj(other, self._opened())
        self._counts.update(counts)

    def write(self, refusal: Refusal) -> None:
        """Write one refusal that `refusal` or `unreadable` made, for those who refuse in one thread and write in another."""
        self._counts[f"{refusal.stage}/{refusal.reason}"] += 1
        if self._held is not None:
            self._held.append(refusal)
        else:
            self._opened().write(_line(refusal))

    @contextmanager
    def by_row(self) -> Iterator[None]:
        """What is refused meanwhile, of rows of one file, is written in the order of the rows, whichever stage refuses them."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            if held:
                self._opened().write(b"".join(map(_line, sorted(held, key=_row))))

    def _opened(self) -> WrittenFile:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = WrittenFile(self._path)
        return self._file


def _line(refusal: Refusal) -> bytes:
    return _LINE % tuple(_TEXT(getattr(refusal, name)) for name in Refusal.__slots__)


def _row(refusal: Refusal) -> int:
    return int(refusal.id.rpartition(":")[2])


def refusal(id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> Refusal:
    """The refusal that `Quarantine.add` writes for these."""
    text = payload if isinstance(payload, str) else _JSON(payload)
    shown = _encodable(text[:PAYLOAD_CHARACTERS])
    return Refusal(id, stage, reason, _encodable(detail), shown, len(text) if length is None else length)


def unreadable(file: SourceFile, row: Unreadable) -> Refusal:
    """The refusal of a row of `file` that could not be read, of stage `records`."""
    return refusal(record_id(file, row.row), "records", row.reason, row.detail, row.payload, length=row.length)


def _encodable(text: str) -> str:
    """`text` with half surrogate pairs, which a Python string may hold but UTF-8 cannot, as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def read_quarantine(path: Path) -> Iterator[Refusal]:
    """The refusals in a quarantine file; without a file there are none, because nothing was refused.

    Raises:
        StoreError: a line is not a refusal, e.g. the last one of a killed run.
    """
    if not path.is_file():
        return
    decode = msgspec.json.Decoder(Refusal).decode
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise StoreError(f"{path}, line {number}: {error}. The run that wrote it was cut short: build again") from error
