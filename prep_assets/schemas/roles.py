"""Role tags of data sets and the roles they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import Refused, nearest
from prep_assets.samples import ASSISTANT, SYSTEM, TOOL, USER, Turn
from prep_assets.schemas.fields import as_text, value_at

OPENAI_ROLES: Mapping[str, str] = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "tool": TOOL,
    "function": TOOL,
}


def role_at(message: Mapping[str, Any], key: str, roles: Mapping[str, str], where: str) -> str:
    """The role for the tag under `key`. A tag that `roles` does not list is refused: mapping it by guess would train the wrong side."""
    tag = as_text(value_at(message, key, where), f"{where}.{key}")
    if tag not in roles:
        hint = nearest(tag, roles)
        raise Refused("unknown_role", f"{where} has {key} {tag!r}{hint}; known tags: {', '.join(roles)}")
    return roles[tag]


def require_answer(turns: Sequence[Turn]) -> None:
    """Refuse a chat in which the assistant says nothing."""
    if not any(turn.role == ASSISTANT for turn in turns):
        raise Refused("no_assistant_turn", f"the roles are {_roles(turns)}")


def require_alternation(turns: Sequence[Turn], *, ends_with_answer: bool) -> None:
    """Refuse (``role_order``) what is not: a system turn or none, then user or tool turns and assistant turns by turns."""
    body = turns[1:] if turns and turns[0].role == SYSTEM else turns
    for position, turn in enumerate(body):
        if (turn.role == ASSISTANT) != (position % 2 == 1) or turn.role == SYSTEM:
            raise Refused("role_order", f"turn {position} after the system turn is {turn.role}; the roles are {_roles(turns)}")
    if bool(body) and (body[-1].role == ASSISTANT) != ends_with_answer:
        raise Refused(
            "role_order", f"the last turn must {'' if ends_with_answer else 'not '}be the assistant's; the roles are {_roles(turns)}"
        )


def require_calls_before_results(turns: Sequence[Turn]) -> None:
    """Refuse (``role_order``) a tool turn that follows neither an assistant turn nor another tool turn."""
    for position, turn in enumerate(turns):
        if turn.role == TOOL and (position == 0 or turns[position - 1].role not in (ASSISTANT, TOOL)):
            raise Refused("role_order", f"turn {position} is a tool result that answers no assistant turn; the roles are {_roles(turns)}")


def require_open_end(turns: Sequence[Turn], where: str) -> None:
    """Refuse a prompt that is empty (``empty_prompt``) or whose last turn is the assistant's own or the system's (``role_order``)."""
    if not turns:
        raise Refused("empty_prompt", f"{where!r} has no turns")
    if turns[-1].role in (ASSISTANT, SYSTEM):
        raise Refused(
            "role_order", f"{where!r} ends with the {turns[-1].role} turn; nothing is left to answer. The roles are {_roles(turns)}"
        )


def _roles(turns: Sequence[Turn]) -> str:
    return " ".join(turn.role for turn in turns) or "none"
