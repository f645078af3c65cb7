"""Rows that are nothing but messages of two strings each, read from JSON lines into columns by pyarrow's own parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.held_out import digest

Ints = npt.NDArray[np.int64]
FEWEST = 64
"""Lines that are not halved further to find those that can be read."""


class MessageFields(NamedTuple):
    """How such a row is written: the column with the messages, and the two fields of a message."""

    messages: str
    role: str
    content: str

    def read(self, numbers: Sequence[int], lines: Sequence[bytes]) -> MessageRows | None:
        """The rows of these numbers on some lines; `None` where one of them is anything else, or the parser is not sure of it.

        Each line begins with a brace and ends with one. No JSON has a line break between a closing brace and an opening one, so that as many rows as
        lines are one on each.
        """
        import pyarrow as pa
        import pyarrow.json as pj

        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            return None
        data = b"\n".join(lines)
        message = pa.struct([(self.role, pa.string()), (self.content, pa.string())])
        schema = pa.schema([(self.messages, pa.list_(message))])
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
            )
            table.validate(full=True)  # strings are UTF-8
        except (pa.ArrowException, ValueError):  # what it says may be no UTF-8 either
            return None
        rows = MessageRows(self, numbers, table.column(0).combine_chunks())
        return rows if len(rows) == len(lines) and rows.has_all() else None

    def digest_of(self, payload: Mapping[str, Any]) -> bytes | None:
        """As `MessageRows.digests`; `None` for any other row."""
        messages = payload.get(self.messages)
        if len(payload) != 1 or type(messages) is not list:
            return None
        texts: list[bytes] = []
        for message in messages:
            if type(message) is not dict or len(message) != 2:
                return None
            role, content = message.get(self.role), message.get(self.content)
            if type(role) is not str or type(content) is not str:
                return None
            texts += [role.encode(), content.encode()]
        return _digest(np.array(list(map(len, texts)), np.int64).tobytes(), b"".join(texts[0::2]), b"".join(texts[1::2]))


@dataclass(frozen=True)
class MessageRows(Sequence[Mapping[str, Any]]):
    """Such rows.

    Attributes:
        fields: how they are written.
        numbers: of each in its file.
        column: a list of messages each.
    """

    fields: MessageFields
    numbers: Sequence[int]
    column: Any

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[Mapping[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._rows[at] if isinstance(at, slice) else {self.fields.messages: self.column[at].as_py()}

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Mapping[str, Any]]:
        return [{self.fields.messages: messages} for messages in self.column.to_pylist()]

    def has_all(self) -> bool:
        """Whether no row, message or string is null, or left out."""
        messages = self.column.values
        return not any(each.null_count for each in (self.column, messages, *messages.flatten()))

    @cached_property
    def first(self) -> Ints:
        """int64[n + 1], number of the first message of each row, and of all."""
        return np.asarray(self.column.offsets).astype(np.int64)

    @cached_property
    def roles(self) -> Any:
        """The first field of all messages, as a column of strings."""
        return self._messages.field(0)

    @cached_property
    def contents(self) -> tuple[bytes, Ints]:
        """The second field of all messages in UTF-8, one after the other; and where each begins, and the end of the last."""
        return _strings(self._messages.field(1))

    @cached_property
    def _messages(self) -> Any:
        return self.column.flatten()  # only those of these rows

    def digests(self) -> list[bytes]:
        """16 bytes for each row, that are equal exactly where every string is."""
        (roles, role_bounds), (contents, bounds) = _strings(self.roles), self.contents
        lengths = np.stack([np.diff(role_bounds), np.diff(bounds)], axis=1).tobytes()
        borders = (self.first * 16).tolist(), role_bounds[self.first].tolist(), bounds[self.first].tolist()
        parts = [[data[low:high] for low, high in pairwise(ends)] for data, ends in zip((lengths, roles, contents), borders, strict=True)]
        return list(map(_digest, *parts))


@dataclass(frozen=True)
class SomeMessageRows(Sequence[Mapping[str, Any]]):
    """Some of such rows.

    Attributes:
        every: the rows.
        which: int64[n], which of them, in ascending order.
    """

    every: MessageRows
    which: Ints

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[Mapping[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return [self.every[each] for each in self.which[at].tolist()] if isinstance(at, slice) else self.every[int(self.which[at])]


def _digest(lengths: bytes, roles: bytes, contents: bytes) -> bytes:
    """Of all lengths, by message, and all strings. JSON does not begin like this."""
    return digest(b"\0%d\0%b%b%b" % (len(lengths), lengths, roles, contents))


def _strings(column: Any) -> tuple[bytes, Ints]:
    """A column of strings that begins with its buffers: their bytes, and where each begins, and the end of the last."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1).astype(np.int64)
    return data.slice(0, int(places[-1])).to_pybytes() if data else b"", places
