"""Which control tokens end a turn, in the text that a template writes after its last words.

That text holds the brackets that close a tool call, the stop, white space, and the header of the next turn, all of them control tokens as often as
not. What of it belongs to the turn is told by a second text: what stands there when the conversation ends with that turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Where = tuple[int, int]


def common_length(left: str, right: str) -> int:
    """How many characters two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@dataclass(frozen=True)
class Ends:
    """How the answers of one template end.

    Attributes:
        control: the tokenizer's control tokens.
        answers: texts of the stops that follow plain answers; the first one ends a conversation, ``""`` where nothing does.
    """

    control: tuple[str, ...]
    answers: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Matches any control token, the longest first."""
        texts = sorted(self.control, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    @property
    def borrows(self) -> bool:
        """Whether an answer is ended by nothing but the header of the next turn, as in GLM-4-MoE: ``<|user|>`` or ``<|observation|>``."""
        return not self.answers or not self.answers[0]

    def find(self, gap: str, alone: str, *, is_text: bool) -> Where | None:
        """Where in `gap` the stop of a turn stands; `None` where it has none.

        Args:
            gap: what stands between the last words of the turn and the next ones.
            alone: what stands there where the conversation ends with the turn.
            is_text: whether the turn ends with text, which its stop follows at once; a tool call has brackets before.
        """
        shared = self._shared(gap, alone)
        own = gap[:shared]
        run = self.leading(own) if is_text else None if self.borrows else self._closing(own)
        if run is not None:
            return run
        if is_text and own.strip():
            return None
        here, there = self.leading(gap[shared:]), self.leading(alone[shared:])
        if here is None or not (there or (self.borrows and not alone[shared:].strip())):
            return None
        # it ends otherwise where more follows (<|end|> for <|return|>), with as many tokens; or the next header's first token ends it
        count = len(self._tokens(alone[shared:][slice(*there)])) if there else 1
        tokens = self._tokens(gap[shared:])[:count]
        return shared + here[0], shared + tokens[-1][1]

    def leading(self, text: str) -> Where | None:
        """The control tokens that `text` begins with, white space before them aside, without anything between."""
        start = end = len(text) - len(text.lstrip())
        for low, high in self._tokens(text):
            if low != end:
                break
            end = high
        return (start, end) if end > start else None

    def _closing(self, text: str) -> Where | None:
        """The control tokens at the end of `text` that end a turn, not what they follow: the stop of a plain answer, else the last one."""
        bare = text.rstrip()
        tokens = self._tokens(bare)
        if not tokens or tokens[-1][1] != len(bare):
            return None
        stop = next((stop for stop in self.answers if stop and bare.endswith(stop)), "")
        return (len(bare) - len(stop), len(bare)) if stop else tokens[-1]

    def _shared(self, gap: str, alone: str) -> int:
        """Characters that both begin with, up to no place inside a control token."""
        shared = common_length(gap, alone)
        for text in (gap, alone):
            shared = next((low for low, high in self._tokens(text) if low < shared < high), shared)
        return shared

    def _tokens(self, text: str) -> Sequence[Where]:
        return [found.span() for found in self.pattern.finditer(text)] if self.pattern else []
