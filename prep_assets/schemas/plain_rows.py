"""Rows that are nothing but texts: messages with a role and a text each, or two answers to them. Most rows of chats and pairs are, and are read
without a view of each message.

What a schema reads of such a row is seen once for each set of columns, by a view (see `view`). Where that is the columns with the texts alone, further
rows with the same columns are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, USER, PlainChat, PlainPair, Turn, turn

_PLAIN = (SYSTEM, USER, ASSISTANT)
_Convert = TypeVar("_Convert", bound=Callable[..., Any])


class PlainRows(Protocol):
    """Reads such rows."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns with the texts."""
        ...

    def read(self, row: Mapping[str, Any]) -> PlainChat | PlainPair | None:
        """What a row is; `None` where the schema itself has to read it."""
        ...


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
        """See `PlainRows`."""
        return frozenset([self.messages_key])

    def read(self, row: Mapping[str, Any]) -> PlainChat | None:
        """The chat of a row; `None` where the schema itself has to read it."""
        chat = plain_chat(row[self.messages_key], self.role_key, self.content_key, self.roles)
        if chat is None:
            return None
        accepted = self._accepted.get(chat.roles)
        if accepted is None:
            accepted = self._accepted[chat.roles] = self._accepts(chat.roles)
        return chat if accepted else None

    def _accepts(self, roles: tuple[str, ...]) -> bool:
        try:
            self.check(tuple(turn(role, "text") for role in roles))
        except Refused:
            return False
        return True


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
        columns: see `PlainRows`.
        split: the prompt and both answers of a row; `None` where the schema itself has to read it.
    """

    columns: frozenset[str]
    split: Callable[[Mapping[str, Any]], tuple[PlainChat | None, object, object] | None]

    def read(self, row: Mapping[str, Any]) -> PlainPair | None:
        """The pair of a row: a prompt that a user ends, and two answers that differ. `None` where the schema itself has to read it."""
        prompt, chosen, rejected = self.split(row) or (None, None, None)
        if prompt is None or not prompt.roles or prompt.roles[-1] != USER or type(chosen) is not str or type(rejected) is not str:
            return None
        if not chosen or chosen.isspace() or not rejected or rejected.isspace() or chosen == rejected:
            return None
        return PlainPair(prompt, chosen, rejected)


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
