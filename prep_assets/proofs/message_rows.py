"""Rows that are nothing but strings, or lists of messages of two strings each, read from JSON lines into columns by pyarrow's own parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import in_arrow
from prep_assets.proofs.held_out import digest

Ints = npt.NDArray[np.int64]
_ONE_THREAD: Mapping[str, Any] = {"use_threads": False}
FEWEST = 64
"""Lines that are not halved further to find those that can be read."""


class MessageFields(NamedTuple):
    """How such a row is written: its columns, each with a list of messages, and the two fields of a message. With `strings` a row may have a string in
    each column instead."""

    columns: tuple[str, ...]
    role: str
    content: str
    strings: bool = False

    def read(self, numbers: Sequence[int], lines: Sequence[bytes]) -> MessageRows | None:
        """The rows of these numbers on some lines; `None` where one of them is anything else, or the parser is not sure of it.

        Each line begins with a brace and ends with one. No JSON has a line break between a closing brace and an opening one, so that as many rows as
        lines are one on each.
        """
        import pyarrow as pa
        import pyarrow.json as pj

        if not lines or not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            return None
        data = b"\n".join(lines)
        message = pa.struct([(self.role, pa.string()), (self.content, pa.string())])
        string = self.strings and lines[0].partition(b":")[2].lstrip().startswith(b'"')
        schema = pa.schema([(column, pa.string() if string else pa.list_(message)) for column in self.columns])
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(block_size=len(data), **_ONE_THREAD),
                parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
            )
            table.validate(full=True)  # strings are UTF-8
        except (pa.ArrowException, ValueError):  # what it says may be no UTF-8 either
            return None
        rows = MessageRows(self, numbers, tuple([(Strings if string else Messages)(column.combine_chunks()) for column in table.columns]))
        return rows if len(rows) == len(lines) and all(each.has_all() for each in rows.lists) else None

    def digest_of(self, payload: Mapping[str, Any]) -> bytes | None:
        """As `MessageRows.digests`; `None` for any other row."""
        if payload.keys() != {*self.columns}:
            return None
        listed = [self._texts(payload[column]) for column in self.columns]
        return None if None in listed else digest(b"".join(_known_by(*texts) for texts in listed if texts is not None))

    def _texts(self, messages: Any) -> tuple[bytes, bytes, bytes] | None:
        """Lengths, roles and contents, see `Strings.each`; `None` for anything else."""
        if self.strings and type(messages) is str:
            data = messages.encode()
            return np.int64(len(data)).tobytes(), b"", data
        texts: list[bytes] = []
        for message in messages if type(messages) is list else [None]:
            if type(message) is not dict or len(message) != 2:
                return None
            role, content = message.get(self.role), message.get(self.content)
            if type(role) is not str or type(content) is not str:
                return None
            texts += [role.encode(), content.encode()]
        return np.array(list(map(len, texts)), np.int64).tobytes(), b"".join(texts[0::2]), b"".join(texts[1::2])


@dataclass(frozen=True)
class Strings:
    """A column of such rows: a string in each."""

    column: Any

    def has_all(self) -> bool:
        """Whether nothing is null, or left out."""
        return not self.column.null_count

    @cached_property
    def first(self) -> Ints:
        """int64[n + 1], number of the first text of each row, and of all."""
        return np.arange(len(self.column) + 1)

    @property
    def texts(self) -> Any:
        """All texts, as a column of strings."""
        return self.column

    @cached_property
    def contents(self) -> tuple[bytes, Ints]:
        """The same in UTF-8, one after the other; and where each begins, and the end of the last."""
        return _strings(self.texts)

    def each(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Of each row the lengths of its strings, its roles, and its texts."""
        data, bounds = self.contents
        lengths = np.diff(bounds).tobytes()
        return ((lengths[8 * at : 8 * at + 8], b"", data[low:high]) for at, (low, high) in enumerate(pairwise(bounds.tolist())))


class Messages(Strings):
    """A list of messages in each."""

    def has_all(self) -> bool:
        """Whether no list, message or string is null, or left out."""
        messages = self.column.values
        return not any(each.null_count for each in (self.column, messages, *messages.flatten()))

    @cached_property
    def first(self) -> Ints:
        """See `Strings`."""
        return np.asarray(self.column.offsets).astype(np.int64)

    @property
    def roles(self) -> Any:
        """The first field of all messages, as a column of strings."""
        return self._messages.field(0)

    @property
    def texts(self) -> Any:
        """The second, likewise."""
        return self._messages.field(1)

    @cached_property
    def _messages(self) -> Any:
        return self.column.flatten()  # only those of these rows

    def each(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Of each row the lengths of role and content of each message, its roles, and its contents."""
        (roles, role_bounds), (contents, bounds) = _strings(self.roles), self.contents
        lengths = np.stack([np.diff(role_bounds), np.diff(bounds)], axis=1).tobytes()
        borders = (self.first * 16).tolist(), role_bounds[self.first].tolist(), bounds[self.first].tolist()
        parts = [[data[low:high] for low, high in pairwise(ends)] for data, ends in zip((lengths, roles, contents), borders, strict=True)]
        return zip(*parts, strict=True)


@dataclass(frozen=True)
class MessageRows(Sequence[Mapping[str, Any]]):
    """Such rows.

    Attributes:
        fields: how they are written.
        numbers: of each in its file.
        lists: the columns.
    """

    fields: MessageFields
    numbers: Sequence[int]
    lists: tuple[Strings, ...]

    def __len__(self) -> int:
        return len(self.lists[0].column)

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[Mapping[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self._rows[at]
        return {name: each.column[at].as_py() for name, each in zip(self.fields.columns, self.lists, strict=True)}

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Mapping[str, Any]]:
        lists = zip(*(each.column.to_pylist() for each in self.lists), strict=True)
        return [dict(zip(self.fields.columns, own, strict=True)) for own in lists]

    def taken(self, which: Ints) -> MessageRows:
        """Some of them, in ascending order."""
        if len(which) == len(self):
            return self
        chosen = in_arrow(which)
        numbers = [self.numbers[at] for at in which.tolist()]
        return MessageRows(self.fields, numbers, tuple([type(each)(each.column.take(chosen)) for each in self.lists]))

    def digests(self) -> list[bytes]:
        """16 bytes for each row, that are equal exactly where every string is."""
        return [digest(b"".join([_known_by(*own) for own in row])) for row in zip(*(each.each() for each in self.lists), strict=True)]


def _known_by(lengths: bytes, roles: bytes, contents: bytes) -> bytes:
    """What a list of messages is known by: all lengths, and all strings. JSON does not begin like this."""
    return b"\0%d\0%b%b%b" % (len(lengths), lengths, roles, contents)


def _strings(column: Any) -> tuple[bytes, Ints]:
    """A column of strings that begins with its buffers: their bytes, and where each begins, and the end of the last."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1).astype(np.int64)
    return data.slice(0, int(places[-1])).to_pybytes() if data else b"", places
