"""Turns of plain rows: strings, and messages with two fields each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

Turns = tuple[tuple[str, ...], tuple[str, ...]]
PLAIN_PAIR = {"prompt", "chosen", "rejected", "margin"}
"""Columns of a pair whose turns are all that a model sees."""


def plain_turns(value: Any, role_key: str = "role", content_key: str = "content", *, role: str = "") -> Turns | None:
    """Return roles and texts of a string, which has the role `role`, or of messages with two fields each; `None` for any other value, or a blank text."""
    if isinstance(value, str):
        return ((role,), (value,)) if value.strip() else None
    if not isinstance(value, list) or {*map(type, value)} != {dict} or {*map(len, value)} != {2}:
        return None
    roles, texts = (tuple([message.get(key) for message in value]) for key in (role_key, content_key))
    return (roles, texts) if {*map(type, roles + texts)} == {str} and all(map(str.strip, texts)) else None


def turns_of_rows(values: Sequence[Any], role_key: str, content_key: str) -> Sequence[Turns | None]:
    """`plain_turns` of each value; of a block in which all are plain messages at once."""
    try:
        messages = [message for value in values for message in value]
        roles, texts = ([message[key] for message in messages] for key in (role_key, content_key))
    except (KeyError, TypeError, IndexError):
        messages = []
    alike = {*map(type, values)} == {list} and all(values) and {*map(type, messages)} == {dict} and {*map(len, messages)} == {2}
    if not alike or {*map(type, roles), *map(type, texts)} != {str} or not all(map(str.strip, texts)):
        return [plain_turns(value, role_key, content_key) for value in values]
    ends = accumulate(map(len, values), initial=0)
    return [(tuple(roles[start:end]), tuple(texts[start:end])) for start, end in pairwise(ends)]
