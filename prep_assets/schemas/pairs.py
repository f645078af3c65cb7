"""What makes two answers a preference pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, Pair, Turn, turn
from prep_assets.schemas.columns import offered, weighted_by
from prep_assets.schemas.fields import as_number, needed


def pair_of(
    row: Mapping[str, Any], prompt: Sequence[Turn], chosen: Sequence[Turn], rejected: Sequence[Turn], *, tools_key: str | None = "tools"
) -> Pair:
    """A pair with all that the row's own columns say of it, its ``margin`` among them; see `pair`."""
    found = pair(prompt, weighted_by(row, chosen), weighted_by(row, rejected))
    margin = None if row.get("margin") is None else as_number(row["margin"], "margin")
    return replace(found, margin=margin, **offered(row, tools_key))


def pair(prompt: Sequence[Turn], chosen: Sequence[Turn], rejected: Sequence[Turn]) -> Pair:
    """A pair, or a refusal: ``empty_prompt``, ``empty_answer``, ``role_order`` (an answer that no assistant begins), ``equal_answers``."""
    if not any(part.text.strip() for part in prompt):
        raise Refused("empty_prompt", "the prompt is empty")
    for side, answer in (("chosen", chosen), ("rejected", rejected)):
        if not any(region.text.strip() for part in answer for region in part.regions):
            raise Refused("empty_answer", f"the {side} answer is empty")
        if answer[0].role not in (ASSISTANT, COMPLETION):
            raise Refused("role_order", f"the {side} answer begins with a {answer[0].role} turn")
    if content_of(chosen) == content_of(rejected):
        raise Refused("equal_answers", f"chosen and rejected are the same: {answer[0].text[:60]!r}")
    return Pair(tuple(prompt), tuple(chosen), tuple(rejected))


def common_prompt(chosen: Sequence[Turn], rejected: Sequence[Turn]) -> tuple[Sequence[Turn], Sequence[Turn], Sequence[Turn]]:
    """Prompt and both answers of two whole chats: the prompt is their longest common beginning of whole turns.

    Refuses ``equal_answers`` where nothing differs, ``prompts_differ`` where the first difference is not in an answer.
    """
    if not chosen or not rejected:
        raise Refused("empty_answer", f"the {'rejected' if chosen else 'chosen'} chat has no turns")
    same = sum(1 for _ in takewhile(lambda sides: sides[0] == sides[1], zip(content_of(chosen), content_of(rejected), strict=False)))
    if same == len(chosen) == len(rejected):
        raise Refused("equal_answers", f"chosen and rejected are the same {same} turns")
    for side in (chosen[same:], rejected[same:]):
        if side and side[0].role not in (ASSISTANT, COMPLETION):
            raise Refused("prompts_differ", f"chosen and rejected first differ in turn {same}, which is of role {side[0].role}")
    return chosen[:same], chosen[same:], rejected[same:]


def turns_of(texts: Iterable[tuple[str, str]]) -> tuple[Turn, ...]:
    """One turn for each ``(role, text)``; an empty text is refused."""
    return tuple(turn(role, needed(text, "empty_answer" if role == ASSISTANT else "empty_turn", f"{role} turn")) for role, text in texts)


def content_of(turns: Sequence[Turn]) -> list[tuple[Any, ...]]:
    """Who said what, loss weights aside."""
    return [(part.role, part.name, part.tool_call_id, [(region.kind, region.text) for region in part.regions]) for part in turns]
