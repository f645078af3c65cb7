"""Which samples are one text a turn with nothing beside, and hold no string that a template or a tokenizer may treat otherwise than any word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from prep_assets.samples import ASSISTANT, COMPLETION, TEXT, Region, Sample, Turn


def roles_and_texts(sample: Sample) -> tuple[tuple[str, ...], list[str]] | None:
    """The roles and the texts of such a sample; `None` for any other."""
    if sample != Sample(sample.turns):
        return None
    texts = [turn.text for turn in sample.turns]
    roles = tuple(turn.role for turn in sample.turns)
    alike = all(turn == Turn(turn.role, (Region(TEXT, text),)) for turn, text in zip(sample.turns, texts, strict=True))
    return (roles, texts) if alike and all(map(str.strip, texts)) else None


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
