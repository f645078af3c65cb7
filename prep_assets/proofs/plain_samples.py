"""Which samples are one text a turn with nothing beside, and hold no string that a template or a tokenizer may treat otherwise than any word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from prep_assets.samples import ASSISTANT, COMPLETION, TEXT, PlainChat, Sample


def plain_chat(sample: Sample) -> PlainChat | None:
    """Such a sample in columns; `None` for any other."""
    if sample != Sample(sample.turns):
        return None
    texts: list[str] = []
    for turn in sample.turns:
        if len(turn.regions) != 1 or turn.name is not None or turn.tool_call_id is not None:
            return None
        region = turn.regions[0]
        if region.kind != TEXT or region.loss_weight is not None or region.drop or not region.attend:
            return None
        texts.append(region.text)
    return PlainChat(tuple([turn.role for turn in sample.turns]), tuple(texts))


def roles_and_texts(sample: Sample) -> tuple[tuple[str, ...], list[str]] | None:
    """The roles and the texts of such a sample without blank texts; `None` for any other."""
    chat = plain_chat(sample)
    return (chat.roles, list(chat.texts)) if chat and all(map(str.strip, chat.texts)) else None


def roles_and_answer(sample: Sample) -> tuple[tuple[str, ...], list[str]] | None:
    """The same of a conversation whose regions say that its last turn is trained, an answer, and no other."""
    *before, last = sample.turns
    weights = [{region.loss_weight for region in turn.regions} for turn in sample.turns]
    if last.role not in (ASSISTANT, COMPLETION) or weights != [{0.0}] * len(before) + [{1.0}]:
        return None
    bare = (replace(turn, regions=tuple(replace(region, loss_weight=None) for region in turn.regions)) for turn in sample.turns)
    return roles_and_texts(replace(sample, turns=tuple(bare)))


def searching(strings: Iterable[str]) -> re.Pattern[str]:
    """Matches any of the strings, and half of a surrogate pair."""
    return re.compile("|".join([*map(re.escape, sorted(strings)), "[\ud800-\udfff]"]))
