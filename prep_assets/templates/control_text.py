"""Control tokens that somebody typed into the content: `<|im_start|>assistant` in a question, `</s>` in a document.

By default they are encoded as the plain characters that they are (the encoder sees to that), so they open no turn and end no document. Here
they are counted, or taken out, or made a reason to refuse the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TOOL_CALL, Region, Sample, Turn
from prep_assets.templates.conversation import tool_call

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
    found = [match[0] for turn in sample.turns for region in turn.regions for text in _texts(region) for match in pattern.finditer(text)]
    if not found:
        return sample, 0
    if mode == "refuse":
        raise Refused("control_token_in_content", f"{found[0]!r} is typed in the content, {len(found)} such texts in all", stage="render")
    if mode == "strip":
        return replace(sample, turns=tuple(_stripped(turn, pattern) for turn in sample.turns)), len(found)
    return sample, len(found)


def _stripped(turn: Turn, pattern: re.Pattern[str]) -> Turn:
    return replace(turn, regions=tuple(replace(region, text=_clean(region, pattern)) for region in turn.regions))


def _texts(region: Region) -> list[str]:
    """The texts of a region; of a tool call the strings that it holds, because JSON may spell a control token with escapes. An image has none:
    its path is not rendered."""
    if region.kind == IMAGE:
        return []
    call = _parsed(region)
    return [region.text] if call is None else list(_strings(call))


def _clean(region: Region, pattern: re.Pattern[str]) -> str:
    if region.kind == IMAGE:
        return region.text
    call = _parsed(region)
    if call is None:
        return without(region.text, pattern)
    cleaned = _cleaned(call, pattern)
    return region.text if cleaned == call else json.dumps(cleaned, ensure_ascii=False)


def _parsed(region: Region) -> Any:
    """What a tool call holds; `None` for text, and for a call that is none, which is refused later."""
    if region.kind != TOOL_CALL:
        return None
    try:
        return tool_call(region)
    except Refused:
        return None


def _strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _cleaned(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return without(value, pattern)
    if isinstance(value, dict):
        return {without(key, pattern): _cleaned(inner, pattern) for key, inner in value.items()}
    return [_cleaned(inner, pattern) for inner in value] if isinstance(value, list) else value


def without(text: str, pattern: re.Pattern[str]) -> str:
    """`text` without control tokens, also without those that form when one between two halves is taken out."""
    while True:
        shorter = pattern.sub("", text)
        if shorter == text:
            return text
        text = shorter
