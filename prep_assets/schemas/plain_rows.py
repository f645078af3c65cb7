"""Rows that are nothing but texts: messages with a role and a text each, or two answers to them. Most rows of chats and pairs are, and are read
without a view of each message.

What a schema reads of such a row is seen once for each set of columns, by a view (see `fields.View`). Where that is the columns with the texts alone, further
rows with the same columns are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Any, TypeVar

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, USER, PlainChat, PlainPair, Turn, turn

_PLAIN = (SYSTEM, USER, ASSISTANT)
_FEW = 8
"""Rows that are read one by one where one among them is not plain."""
_Convert = TypeVar("_Convert", bound=Callable[..., Any])


@dataclass(frozen=True)
class PlainMessages:
    """Reads such rows.

    Attributes:
        messages_key: the column with the messages.
        role_key, content_key: the two fields of a message.
        roles: the tags that are read here, and the roles they stand for.
        check: refuses turns whose roles the schema does not accept.
    """

    messages_key: str
    role_key: str
    content_key: str
    roles: Mapping[str, str]
    check: Callable[[tuple[Turn, ...]], None]
    _accepted: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @property
    def columns(self) -> frozenset[str]:
        """The columns with the texts."""
        return frozenset([self.messages_key])

    def read(self, rows: Sequence[Mapping[str, Any]]) -> list[PlainChat | None]:
        """The chats of rows; `None` where the schema itself has to read one."""
        chats = self._chats([row[self.messages_key] for row in rows])
        accepted = {roles for roles in {chat.roles for chat in chats if chat is not None} if self.accepts(roles)}
        return [chat if chat is not None and chat.roles in accepted else None for chat in chats]

    def _chats(self, conversations: list[Any]) -> list[PlainChat | None]:
        """As `plain_chat`, of many at once. Where one is not plain, both halves are tried for themselves."""
        if len(conversations) < _FEW:
            return [plain_chat(each, self.role_key, self.content_key, self.roles) for each in conversations]
        try:
            return self._all_plain(conversations)
        except (KeyError, TypeError):
            half = len(conversations) // 2
            return self._chats(conversations[:half]) + self._chats(conversations[half:])

    def _all_plain(self, conversations: list[Any]) -> list[PlainChat | None]:
        """Raises:
        KeyError, TypeError: one of them is not plain.
        """
        ends = accumulate(map(list.__len__, conversations), initial=0)
        messages = list(chain.from_iterable(conversations))
        texts = tuple(map(itemgetter(self.content_key), messages))
        roles = tuple(map(self.roles.__getitem__, map(itemgetter(self.role_key), messages)))
        if {*map(dict.__len__, messages)} - {2} or {*map(type, texts)} - {str} or not all(texts) or any(map(str.isspace, texts)):
            raise TypeError
        return [PlainChat(roles[start:end], texts[start:end]) for start, end in pairwise(ends)]

    def accepts(self, roles: tuple[str, ...]) -> bool:
        """Whether the schema accepts turns of these roles."""
        accepted = self._accepted.get(roles)
        if accepted is None:
            try:
                self.check(tuple(turn(role, "text") for role in roles))
            except Refused:
                accepted = False
            accepted = self._accepted[roles] = accepted is None
        return accepted


def plain_chat(messages: object, role_key: str, content_key: str, known: Mapping[str, str]) -> PlainChat | None:
    """Messages of a role and a text each, in columns; `None` for any others.

    Args:
        known: the tags that are read here, and the roles they stand for.
    """
    if type(messages) is not list:
        return None
    roles: list[str] = []
    texts: list[str] = []
    for message in messages:
        if type(message) is not dict or len(message) != 2:
            return None
        text, tag = message.get(content_key), message.get(role_key)
        if type(text) is not str or type(tag) is not str or tag not in known or not text or text.isspace():
            return None
        roles.append(known[tag])
        texts.append(text)
    return PlainChat(tuple(roles), tuple(texts))


@dataclass(frozen=True)
class PlainPairs:
    """Reads pairs of two columns, or three.

    Attributes:
        columns: those with the texts.
        split: the prompt and both answers of a row; `None` where the schema itself has to read it.
    """

    columns: frozenset[str]
    split: Callable[[Mapping[str, Any]], tuple[PlainChat | None, object, object] | None]

    def read(self, rows: Sequence[Mapping[str, Any]]) -> list[PlainPair | None]:
        """The pairs of rows: a prompt that a user ends, and two answers that differ. `None` where the schema itself has to read one."""
        return list(map(self._pair, rows))

    def _pair(self, row: Mapping[str, Any]) -> PlainPair | None:
        prompt, chosen, rejected = self.split(row) or (None, None, None)
        if prompt is None or not prompt.roles or prompt.roles[-1] != USER or type(chosen) is not str or type(rejected) is not str:
            return None
        if not chosen or chosen.isspace() or not rejected or rejected.isspace() or chosen == rejected:
            return None
        return PlainPair(prompt, chosen, rejected)


PlainRows = PlainMessages | PlainPairs


def reads_plain(convert: _Convert, plain: PlainRows) -> _Convert:
    """`convert`, with what reads its plain rows."""
    convert.plain_rows = plain  # type: ignore[attr-defined]
    return convert


def plain_rows_of(convert: Callable[..., Any]) -> PlainRows | None:
    """What reads the plain rows of a schema; `None` where it has none."""
    found: PlainRows | None = getattr(convert, "plain_rows", None)
    return found


def plain_roles(tags: Mapping[str, str], without: str | None = None) -> dict[str, str]:
    """The tags whose messages may be plain: those of system, user and assistant, but for one that means something else."""
    return {tag: role for tag, role in tags.items() if role in _PLAIN and tag != without}
