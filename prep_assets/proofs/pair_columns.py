"""Preference pairs in columns: each a prompt and two answers, as lists of messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.chat_columns import ChatColumns
from prep_assets.proofs.message_rows import MessageFields, MessageRows, Messages, Strings

PAIR_FIELDS = MessageFields(("prompt", "chosen", "rejected"), "role", "content", strings=True)
_ROLES = ("system", "user", "assistant")
_LAST = ("user", "assistant", "assistant")
"""Who says the last of each; all of it where it is a string."""

Bools = npt.NDArray[np.bool_]


def are_lines(pairs: MessageRows, lines: MessageRows, searched: ByteSearch) -> Bools:
    """Which pairs are their lines for certain: two different answers to a user, nothing in them blank, none of the strings in them that are searched. None
    are where one line among them says something else, or an answer has more than one turn."""
    import pyarrow.compute as pc

    once = all((np.diff(each.first) == 1).all() for each in pairs.lists[1:])
    if not once or not all(map(_says, lines.lists, pairs.lists, _LAST)):
        return np.zeros(len(pairs), bool)
    good: Bools = np.asarray(pc.not_equal(*(each.texts for each in pairs.lists[1:])))
    for each, last in zip(pairs.lists, _LAST, strict=True):
        good &= _said(each, last, searched)
    return good


def _says(line: Strings, row: Strings, role: str) -> bool:
    """Whether a column of lines is that of their rows: a string is a message of this role."""
    if type(line) is type(row):
        return bool(line.column.equals(row.column))
    messages, strings = (line, row) if isinstance(line, Messages) else (row, line)
    once = bool((np.diff(messages.first) == 1).all())
    return once and bool(messages.texts.equals(strings.texts)) and bool(_said_by(messages, (role,)).all())


def _said_by(column: Strings, roles: Sequence[str]) -> Bools:
    """Of which messages the role is one of these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert isinstance(column, Messages)
    found: Bools = np.asarray(pc.is_in(column.roles, value_set=pa.array(roles)))
    return found


def _said(column: Strings, last: str, searched: ByteSearch) -> Bools:
    """Of which rows this column says something, without the strings that are searched, in known roles, of which this is the last."""
    chats = ChatColumns.of_texts(*column.contents, column.first)
    said: Bools = ~chats.white()[0] & ~chats.holding(searched)
    if isinstance(column, Messages):
        before = np.append(False, _said_by(column, (last,)))  # one more, for the last of no messages
        said &= before[column.first[1:]] & ~chats.having(np.flatnonzero(~_said_by(column, _ROLES)))
    return said
