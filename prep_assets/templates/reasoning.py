"""Reasoning that stands in the text of an answer, such as ``<think>…</think>``.

A template that writes reasoning itself takes it from a field of its own. Given in the text, it is rendered twice, cut away, or left beside an
empty block of the template's. So a block at the beginning of an answer becomes a `THINKING` region before the sample is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, IMAGE, THINKING, TOOL_CALL, Example, Group, Pair, Prompt, Region, Sample, Turn, over_turns

ReasoningMode = Literal["auto", "inline", "field"]
_Example = TypeVar("_Example", Sample, Pair, Prompt, Group, Example)
_REMEDY = "Mend the tags, or set reasoning: inline to leave such text as it is"


@dataclass(frozen=True)
class InlineReasoning:
    """How a block of reasoning at the beginning of an answer's text is read.

    Attributes:
        mode: ``auto``, ``inline`` or ``field``, as the configuration explains them.
        tags: opening and closing tag of each spelling.
        shown: whether what comes next can show a `THINKING` region; otherwise ``auto`` leaves the block where it is.
    """

    mode: ReasoningMode
    tags: tuple[tuple[str, str], ...]
    shown: bool

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """Every tag: a text without any of them is read as it is."""
        return tuple(tag for pair in self.tags for tag in pair)

    def leaves(self, texts: Sequence[str]) -> bool:
        """Whether texts hold no tag, so that all of them are read as they are."""
        return not any(map("\0".join(texts).__contains__, self.strings))

    def read(self, example: _Example) -> _Example:
        """`example` with the blocks of all its answers read.

        Raises:
            Refused: tags that do not pair up, a block that differs from the reasoning given beside it, or one where ``field`` forbids it.
        """
        return over_turns(example, self._turns)

    def _turns(self, turns: Sequence[Turn]) -> tuple[Turn, ...]:
        return tuple(self._turn(number, turn) if turn.role == ASSISTANT else turn for number, turn in enumerate(turns))

    def _turn(self, number: int, turn: Turn) -> Turn:
        at = next((i for i, region in enumerate(turn.regions) if _is_text(region)), None)
        found = self._block(number, turn.regions[at].text) if at is not None else None
        if at is None or found is None:
            return turn
        said = "".join(region.text for region in turn.regions if region.kind == THINKING and not region.drop).strip()
        reasoning, answer = found
        if said and said != reasoning:
            detail = f"turn {number} reasons {said[:60]!r} in a field of its own and {reasoning[:60]!r} in its text; keep one of the two"
            raise Refused("conflicting_reasoning", detail, stage="reasoning")
        if not (self.mode == "auto" and self.shown):
            kept = [region for region in turn.regions if region.kind != THINKING or not said]
            return replace(turn, regions=tuple(kept))
        region = turn.regions[at]
        thought = [] if said or not reasoning else [replace(region, kind=THINKING, text=reasoning)]
        rest = [replace(region, text=answer)] if answer else []
        regions = (*turn.regions[:at], *thought, *rest, *turn.regions[at + 1 :])
        if not any(each.kind != THINKING for each in regions):
            raise Refused("empty_answer", f"turn {number} has reasoning and no answer", stage="reasoning")
        return replace(turn, regions=regions)

    def _block(self, number: int, text: str) -> tuple[str, str] | None:
        """Reasoning and answer of a text that begins with a block, without the white space next to the tags; `None` for any other text."""
        first = self._tag.search(text)
        if first is None:
            return None
        opens = dict(self.tags)
        strict = self.mode == "field" or (self.mode == "auto" and self.shown)
        if first[0] in opens and text[: first.start()].strip():
            return None  # tags that a text speaks of
        opening = first[0] if first[0] in opens else next(start for start, end in self.tags if end == first[0])
        found = [mark for mark in self._tag.finditer(text) if mark[0] in (opening, opens[opening])]
        if [mark[0] for mark in found] != [opening, opens[opening]]:
            if not strict:
                return None
            counts = ", ".join(f"{sum(mark[0] == tag for mark in found)} × {tag}" for tag in (opening, opens[opening]))
            raise Refused("unbalanced_reasoning", f"turn {number} has {counts} where one block was expected. {_REMEDY}", stage="reasoning")
        if self.mode == "field":
            detail = f"turn {number} begins with {opening}, and reasoning: field takes reasoning from fields alone"
            raise Refused("inline_reasoning", detail, stage="reasoning")
        return text[found[0].end() : found[1].start()].strip(), text[found[1].end() :].lstrip()

    @cached_property
    def _tag(self) -> re.Pattern[str]:
        listed = sorted(self.strings, key=lambda tag: (-len(tag), tag))
        return re.compile("|".join(map(re.escape, listed)))


def _is_text(region: Region) -> bool:
    return region.kind not in (THINKING, TOOL_CALL, IMAGE) and not region.drop
