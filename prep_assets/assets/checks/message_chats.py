"""Chats of rows that were read into columns, as what checks compare stores with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np

from prep_assets.proofs.chat_columns import ChatColumns
from prep_assets.proofs.message_rows import MessageRows, Messages
from prep_assets.samples import PlainChat, Sample
from prep_assets.schemas.plain_rows import PlainMessages
from prep_assets.schemas.reader import Reader

ReadRows = Callable[[Sequence[Mapping[str, Any]], Callable[[int], str]], list[Sample | PlainChat]]
"""Fields of some rows, and what gives the id of each → what of them is to be rendered."""


@dataclass(frozen=True, slots=True)
class MessageChats(Sequence[Sample | PlainChat]):
    """Such chats.

    Attributes:
        columns: all of them; a row that is no plain chat, or that the schema may refuse, has no kind.
        rows: what they were read from.
        identity: gives the id of one.
        read: reads those that have no kind, and those that are proven by themselves.
    """

    columns: ChatColumns
    rows: MessageRows
    identity: Callable[[int], str]
    read: ReadRows

    @classmethod
    def of(cls, reader: Reader, rows: MessageRows, identity: Callable[[int], str], read: ReadRows) -> MessageChats | None:
        """Those of some rows; `None` where their schema reads more of them than the texts."""
        plain = reader.plain(rows[0]) if len(rows) else None
        if not isinstance(plain, PlainMessages):
            return None
        [messages] = rows.lists
        assert isinstance(messages, Messages)
        tags = messages.roles.dictionary_encode()
        roles = [plain.roles.get(tag) for tag in tags.dictionary.to_pylist()]
        codes, borders = np.asarray(tags.indices, np.int32).tobytes(), (4 * messages.first).tolist()
        numbers: dict[bytes, int] = {}
        kinds: list[tuple[str, ...]] = []
        kind = np.empty(len(rows), np.int64)
        for at, (low, high) in enumerate(pairwise(borders)):
            pattern = codes[low:high]
            if pattern not in numbers:
                own = tuple(roles[code] or "" for code in np.frombuffer(pattern, np.int32).tolist())
                accepted = bool(own) and all(own) and plain.accepts(own)
                numbers[pattern] = len(kinds) if accepted else -1
                kinds += [own] if accepted else []
            kind[at] = numbers[pattern]
        columns = ChatColumns(kinds, kind, *messages.contents, messages.first[:-1], np.diff(messages.first))
        return cls(columns, rows, identity, read)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Sample | PlainChat: ...
    @overload
    def __getitem__(self, at: slice) -> list[Sample | PlainChat]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        [found] = self.read([self.rows[at]], lambda _: self.identity(at))
        return found
