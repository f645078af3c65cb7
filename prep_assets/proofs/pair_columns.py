"""Preference pairs in columns: each a prompt and two answers, as lists of messages."""

from __future__ import annotations

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
Ints = npt.NDArray[np.int64]


def are_lines(pairs: MessageRows, lines: MessageRows, searched: ByteSearch) -> Bools:
    """Which pairs are their lines for certain: two different answers to a user, nothing in them blank, none of the strings in them that are searched. None
    are where one line among them says something else, or an answer has more than one turn."""
    import pyarrow.compute as pc

    once = all((np.diff(each.first) == 1).all() for each in pairs.lists[1:])
    if not once or not all(map(_says, lines.lists, pairs.lists, _LAST)):
        return np.zeros(len(pairs), bool)
    good: Bools = np.asarray(pc.not_equal(*(each.texts for each in pairs.lists[1:])), bool)
    for each, last in zip(pairs.lists, _LAST, strict=True):
        good &= _said(each, last, searched)
    return good


def _says(line: Strings, row: Strings, role: str) -> bool:
    """Whether a column of lines is that of their rows: a string is a message of this role."""
    if type(line) is type(row):
        return bool(line.column.equals(row.column))
    messages, strings = (line, row) if isinstance(line, Messages) else (row, line)
    once = len(messages.texts) == len(strings.texts) and bool((np.diff(messages.first) == 1).all())
    return once and bool(messages.texts.equals(strings.texts)) and bool((_roles(messages) == _ROLES.index(role)).all())


def _roles(column: Strings) -> Ints:
    """Number of the role of each message, -1 of one that is none of `_ROLES`."""
    assert isinstance(column, Messages)
    tags = column.roles.dictionary_encode()
    known = [_ROLES.index(tag) if tag in _ROLES else -1 for tag in tags.dictionary.to_pylist()]
    found: Ints = np.array([*known, -1])[np.asarray(tags.indices)]
    return found


def _said(column: Strings, last: str, searched: ByteSearch) -> Bools:
    """Of which rows this column says something, without the strings that are searched, in known roles, of which this is the last."""
    chats = ChatColumns((), np.zeros(len(column.first) - 1, np.int64), *column.contents, column.first[:-1], np.diff(column.first))
    said: Bools = ~chats.white()[0] & ~chats.holding(searched)
    if isinstance(column, Messages):
        roles = np.append(_roles(column), -1)  # one more, for the last of no messages
        said &= (roles[column.first[1:] - 1] == _ROLES.index(last)) & ~chats.having(np.flatnonzero(roles[:-1] < 0))
    return said
