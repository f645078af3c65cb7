"""Rows that are nothing but a list of messages with a role and a text each: most rows of chats, read without a view of each message.

What a schema reads of such a row is seen once for each set of columns, by a view (see `view`). Where that is the list of messages alone, further
rows with the same columns are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, USER, PlainChat, Turn, turn

_PLAIN = (SYSTEM, USER, ASSISTANT)
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

    def read(self, row: Mapping[str, Any]) -> PlainChat | None:
        """The chat of a row; `None` where the schema itself has to read it."""
        messages = row[self.messages_key]
        if type(messages) is not list:
            return None
        role_key, content_key, known = self.role_key, self.content_key, self.roles
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
        listed = tuple(roles)
        accepted = self._accepted.get(listed)
        if accepted is None:
            accepted = self._accepted[listed] = self._accepts(listed)
        return PlainChat(listed, tuple(texts)) if accepted else None

    def _accepts(self, roles: tuple[str, ...]) -> bool:
        try:
            self.check(tuple(turn(role, "text") for role in roles))
        except Refused:
            return False
        return True


def reads_plain(convert: _Convert, plain: PlainMessages) -> _Convert:
    """`convert`, with what reads its plain rows."""
    convert.plain_messages = plain  # type: ignore[attr-defined]
    return convert


def plain_messages_of(convert: Callable[..., Any]) -> PlainMessages | None:
    """What reads the plain rows of a schema; `None` where it has none."""
    found: PlainMessages | None = getattr(convert, "plain_messages", None)
    return found


def plain_roles(tags: Mapping[str, str], without: str | None = None) -> dict[str, str]:
    """The tags whose messages may be plain: those of system, user and assistant, but for one that means something else."""
    return {tag: role for tag, role in tags.items() if role in _PLAIN and tag != without}
