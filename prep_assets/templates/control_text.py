"""Control tokens that somebody typed into the content: `<|im_start|>assistant` in a question, `</s>` in a document.

By default they are encoded as the plain characters that they are (the encoder sees to that), so they open no turn and end no document. Here
they are counted, or taken out, or made a reason to refuse the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from prep_assets.errors import Refused
from prep_assets.samples import Sample, Turn

SpecialInContent = Literal["text", "strip", "refuse", "allow"]


def control_pattern(control: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any control token's text, longest first; `None` where the tokenizer has none."""
    texts = sorted(control, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, texts))) if texts else None


def treat(sample: Sample, pattern: re.Pattern[str] | None, mode: SpecialInContent) -> tuple[Sample, int]:
    """`sample`, treated as `mode` says, and how many control tokens its contents hold.

    Raises:
        Refused: ``control_token_in_content``, where `mode` is ``refuse``.
    """
    if pattern is None:
        return sample, 0
    found = [match[0] for turn in sample.turns for region in turn.regions for match in pattern.finditer(region.text)]
    if not found:
        return sample, 0
    if mode == "refuse":
        raise Refused("control_token_in_content", f"{found[0]!r} is typed in the content, {len(found)} such texts in all", stage="render")
    if mode == "strip":
        return replace(sample, turns=tuple(_stripped(turn, pattern) for turn in sample.turns)), len(found)
    return sample, len(found)


def _stripped(turn: Turn, pattern: re.Pattern[str]) -> Turn:
    return replace(turn, regions=tuple(replace(region, text=without(region.text, pattern)) for region in turn.regions))


def without(text: str, pattern: re.Pattern[str]) -> str:
    """`text` without control tokens, also without those that form when one between two halves is taken out."""
    while True:
        shorter = pattern.sub("", text)
        if shorter == text:
            return text
        text = shorter
