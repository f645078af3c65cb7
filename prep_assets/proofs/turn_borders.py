"""Where what a model generates for a turn begins, and what ends it, in a render with invented words.

What a model is given before a turn is the render of the turns before it, with the generation prompt. So a turn begins where the whole render stops
to follow that one. What ends it is what the render has in common with one that ends with this turn: after it the next turn's header begins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from prep_assets.errors import CheckFailed
from prep_assets.proofs.rebuilt import Place, Rebuilder, Rebuilt
from prep_assets.samples import ASSISTANT, TEXT, USER, Sample, turn

MOST_KNOWN = 4096
"""Texts between turns that are remembered."""

_OPENED = re.compile(r"\n(<(?!\|)[^<>|\s]+>)\s*\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """The texts of one turn that a render shows.

    Attributes:
        turn, role: the turn.
        kinds: of its texts, in the order of the render.
        places: numbers of its texts' places, ascending.
        start, end: characters from its first text to its last.
    """

    turn: int
    role: str
    kinds: tuple[str, ...]
    places: tuple[int, ...]
    start: int
    end: int


def blocks_of(rebuilt: Rebuilt) -> list[Block]:
    """The turns that show any text, in the order of the render. A text that is shown again, such as a tool's name with its result, counts where it
    stands first."""
    seen: set[int] = set()
    own: dict[int, list[int]] = {}
    for number, place in enumerate(rebuilt.invented):
        if place.slot not in seen:
            seen.add(place.slot)
            own.setdefault(rebuilt.slotted.slots[place.slot].turn, []).append(number)
    slots, invented = rebuilt.slotted.slots, rebuilt.invented
    found = [
        Block(
            number,
            rebuilt.chat.sample.turns[number].role,
            tuple(slots[invented[at].slot].kind for at in places),
            tuple(places),
            invented[places[0]].start,
            invented[places[-1]].end,
        )
        for number, places in own.items()
    ]
    found.sort(key=lambda block: block.start)
    for left, right in pairwise(found):
        if right.start < left.end:
            raise CheckFailed(f"the template writes turn {right.turn} amid turn {left.turn}, so nothing is proven")
    return found


class Borders:
    """Finds the borders of turns for one template."""

    def __init__(self, rebuilder: Rebuilder) -> None:
        self._rebuilder = rebuilder
        texts = sorted(rebuilder.template.control, key=lambda text: (-len(text), text))
        self._control = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._prompts: dict[object, str | None] = {}
        self._ends: dict[object, tuple[int, int] | None] = {}
        self._lone: str | None = None
        self._stops: frozenset[str] | None = None

    # -- where a turn begins ------------------------------------------------------------------------------------------------------------

    def start(self, chat: Rebuilt, before: Block | None, block: Block) -> int:
        """Where in the invented render what a model generates for an assistant's turn begins.

        Raises:
            CheckFailed: nothing in the render says so.
        """
        low = before.end if before else 0
        gap = chat.invented_text[low : block.start]
        start = self._begin(chat, before, block, gap, low)
        # a header that the template leaves out of the prompt here, as after a tool's result, is a header all the same
        prompt = self.lone_prompt
        if prompt and (header := gap.rfind(prompt, start - low)) >= 0:
            start = low + header + len(prompt)
        # a template without a prompt writes its headers all the same; they are no answer
        is_header = not prompt and block.kinds[0] == TEXT and gap[start - low :].strip()
        return chat.own_start(block.places[0]) if is_header else start

    def _begin(self, chat: Rebuilt, before: Block | None, block: Block, gap: str, low: int) -> int:
        prompt = self._prompt(chat, before, block, gap)
        if prompt is not None:
            shared = _shared(gap, prompt)
            if shared < min(len(gap), len(prompt)):
                shared = self._unbroken(gap, shared)
            if shared < len(prompt) and (tag := _OPENED.search(gap[:shared])) and gap[: tag.start()].strip():
                shared = tag.start(1)  # the prompt opens another block than the answer has
            if shared or not gap or not prompt:
                return low + shared
        prompt = self.lone_prompt
        if prompt and (at := gap.rfind(prompt)) >= 0:
            return low + at + len(prompt)
        if any(kind != TEXT for kind in block.kinds):
            raise CheckFailed(f"nothing in the render says where turn {block.turn} begins, so nothing is proven")
        return chat.own_start(block.places[0])

    def _prompt(self, chat: Rebuilt, before: Block | None, block: Block, gap: str) -> str | None:
        """What stands between the turn before and the place where a model takes over."""
        key = gap, block.turn == 0, before and (before.role, before.kinds[-1]), bool(chat.chat.sample.tools)
        if key not in self._prompts:
            _bound(self._prompts)
            self._prompts[key] = _after(chat, before, block.turn, prompted=True)
        return self._prompts[key]

    def _unbroken(self, gap: str, most: int) -> int:
        """The last place up to `most` that is amid no word and no control token. A control token in a line of its own right before it belongs to what
        differs."""
        ends = [found for found in self._controls(gap) if found[1] <= most]
        blank = next((at for at in range(most, 0, -1) if gap[at - 1].isspace()), 0)
        if ends and ends[-1][1] > blank:
            return ends[-1][0] if ends[-1][0] == blank and blank else ends[-1][1]
        return blank

    @property
    def lone_prompt(self) -> str:
        """What the template writes before an answer to a lone question."""
        if self._lone is None:
            asked, prompted = (self._text(Sample((turn(USER, "Well?"),)), prompted=prompted) for prompted in (False, True))
            self._lone = prompted.removeprefix(asked) if prompted.startswith(asked) else ""
        return self._lone

    def _text(self, sample: Sample, *, prompted: bool) -> str:
        try:
            return self._rebuilder.rebuild(sample, prompted=prompted).text
        except CheckFailed:
            return ""

    # -- what ends a turn ---------------------------------------------------------------------------------------------------------------

    def stop(self, chat: Rebuilt, block: Block, after: Block | None) -> tuple[int, int] | None:
        """Where the control tokens that end a turn stand in the invented render; `None` where the template writes none."""
        gap = chat.invented_text[block.end : after.start if after else None]
        if block.role != ASSISTANT:
            blank = len(gap) - len(gap.lstrip())
            own = sorted(stop for stop in self.answer_stops if gap.startswith(stop, blank))  # the longest stands last
            return (block.end + blank, block.end + blank + len(own[-1])) if own else None
        key = gap, block.kinds[-1], after and after.role
        if key not in self._ends:
            _bound(self._ends)
            self._ends[key] = self._end(gap, _after(chat, block, block.turn + 1, prompted=False), block.kinds[-1] == TEXT)
        found = self._ends[key]
        return (block.end + found[0], block.end + found[1]) if found else None

    @property
    def answer_stops(self) -> frozenset[str]:
        """What ends the answers of short chats."""
        if self._stops is None:
            self._stops = frozenset()
            found = set()
            for rounds in (1, 2):
                sample = Sample(tuple(turn(role, "Well.") for _ in range(rounds) for role in (USER, ASSISTANT)))
                try:
                    chat = self._rebuilder.rebuild(sample)
                    listed = blocks_of(chat)
                except CheckFailed:
                    continue
                for block, after in zip(listed, [*listed[1:], None], strict=True):
                    where = self.stop(chat, block, after) if block.role == ASSISTANT else None
                    found |= {chat.invented_text[slice(*where)]} if where else set()
            self._stops = frozenset(found)
        return self._stops

    def _end(self, gap: str, alone: str | None, is_text: bool) -> tuple[int, int] | None:
        """Where in `gap` the control tokens stand that end the turn before it. `alone` is what follows the turn where nothing comes after it."""
        alone = gap if alone is None else alone
        shared = _shared(gap, alone)
        for text in (gap, alone):
            shared = next((start for start, end in self._controls(text) if start < shared < end), shared)
        runs = self._runs(gap[:shared])
        if not runs or (is_text and gap[: runs[0][0][0]].strip()):
            return self._instead(gap[shared:], alone[shared:], shared)
        run = runs[0] if is_text else runs[-1][-1:]  # brackets of a tool call may stand right before
        return run[0][0], run[-1][1]

    def _instead(self, gap: str, alone: str, at: int) -> tuple[int, int] | None:
        """Where another turn follows than nothing, other control tokens may end a turn: as many."""
        ending, here = self._runs(alone), self._runs(gap)
        if not ending or not here or gap[: here[0][0][0]].strip() or alone[: ending[0][0][0]].strip():
            return None
        tokens = here[0][: len(ending[0])]
        return at + tokens[0][0], at + tokens[-1][1]

    def controls(self, text: str, start: int, end: int) -> list[tuple[int, int]]:
        """Control tokens in a part of a text."""
        return [found.span() for found in self._control.finditer(text, start, end)] if self._control else []

    def _controls(self, text: str) -> list[tuple[int, int]]:
        return self.controls(text, 0, len(text))

    def _runs(self, text: str) -> list[list[tuple[int, int]]]:
        """Control tokens, those that stand end to end together."""
        runs: list[list[tuple[int, int]]] = []
        for token in self._controls(text):
            if runs and runs[-1][-1][1] == token[0]:
                runs[-1].append(token)
            else:
                runs.append([token])
        return runs


def _bound(known: dict[object, Any]) -> None:
    if len(known) >= MOST_KNOWN:
        known.clear()


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _after(chat: Rebuilt, block: Block | None, turns: int, *, prompted: bool) -> str | None:
    """What follows a block in the render of the first turns; all of that render where there is no block, `None` where it is not there."""
    if block is None:
        return chat.beginning(turns, prompted=prompted) if turns else None
    text = chat.beginning(turns, prompted=prompted)
    if text is None:
        return None
    last = chat.invented[block.places[-1]]
    word = chat.invented_text[last.start : last.end]
    ends = [found.end() for found in re.finditer(re.escape(word), text)]
    ordinal = _ordinal(chat.invented, last)
    return text[ends[ordinal] :] if ordinal < len(ends) else None


def _ordinal(places: Sequence[Place], last: Place) -> int:
    return sum(place.slot == last.slot and place.start < last.start for place in places)
