"""What readers give: blocks of records, with the rows that could not be read."""

from __future__ import annotations

from dataclasses import dataclass

from prep_assets.samples import Record

PAYLOAD_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that is refused at reading.

    Attributes:
        file: position of the file in its domain's sorted file list.
        row: zero-based row within the file, counted as `Record.row` is.
        reason: slug that is counted: `invalid_json`, `invalid_utf8`, `not_an_object`, `too_long`, `ragged_row`, `invalid_csv`,
            `unreadable_value`, `filtered_by_where`, `where_wrong_type`.
        detail: what exactly is wrong, for a person.
        payload: start of the raw text, at most 2000 characters, invalid bytes as backslash escapes. Empty where a filter refuses the row.
        length: full length of the row in bytes, where it has one.
    """

    file: int
    row: int
    reason: str
    detail: str
    payload: str
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Some consecutive rows of a file.

    Attributes:
        records: the readable rows, in file order.
        unreadable: the refused rows, in file order.
        bytes_read: bytes of the stored (compressed) file consumed up to the end of this block.
    """

    records: list[Record]
    unreadable: list[Unreadable]
    bytes_read: int


def shown(raw: bytes) -> str:
    """The start of a raw row as text: at most 2000 characters, invalid bytes as backslash escapes."""
    return raw[: 4 * PAYLOAD_CHARACTERS].decode("utf-8", "backslashreplace")[:PAYLOAD_CHARACTERS]


def refuse(file: int, row: int, reason: str, detail: str, raw: bytes) -> Unreadable:
    """The refusal of a row whose raw bytes are known."""
    return Unreadable(file, row, reason, detail, shown(raw), len(raw))


def invalid_byte(error: UnicodeDecodeError, raw: bytes) -> str:
    """Where and how `raw` is no UTF-8."""
    return f"byte {error.start} of {len(raw)} (0x{raw[error.start]:02x}): {error.reason}"


def refuse_long(file: int, row: int, start: bytes, length: int, limit: int) -> Unreadable:
    """The refusal of a row over the size limit; only its start is at hand."""
    return Unreadable(file, row, "too_long", f"{length:,} bytes; the limit is {limit:,} (max_record_bytes)", shown(start), length)
