"""Where what a model generates for a turn begins, and which control tokens end it: found by rendering the conversation up to there.

What a model sees before turn *i* is the render of the turns before it with the generation prompt. So turn *i* begins where that render and the
whole one part, after the last text of the turn before. How a turn ends is what the render up to and with it has in common with the whole one:

    whole           … Hi<|end|><|assistant|>Hello<|end|><|user|>Bye …
    before turn 1   … Hi<|end|><|assistant|>                          turn 1 begins where it ends
    up to turn 1    … Hi<|end|><|assistant|>Hello<|end|>              the control tokens after the last text that both have: the stop

Between two texts stands what the template writes, and that is the same in every conversation of a kind. So each answer is remembered by the
texts between, and a conversation like one before needs no further render.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, IMAGE, THINKING, TOOL_CALL, Sample
from prep_assets.templates.conversation import Piece, messages
from prep_assets.templates.marks import Places, unmark
from prep_assets.templates.stops import Ends, common_length

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

MOST_REMEMBERED = 4096
_OPENING = re.compile(r"\n(<[^<>\s]+>)\s*\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """The texts of one turn in a render.

    Attributes:
        turn, role: the turn.
        kinds: of its regions, in the order of the render.
        start, end: characters from its first text to its last.
        leaf, occurrence: the last marked text in it, and which of its occurrences; -1 where none is marked.
        tail: characters from the end of that text to `end`.
    """

    turn: int
    role: str
    kinds: tuple[str, ...]
    start: int
    end: int
    leaf: int
    occurrence: int
    tail: int


@dataclass
class Chat:
    """A conversation, its render, and renders of its beginnings, each made once and only where it is needed.

    Attributes:
        prompted: whether the whole render ends with the generation prompt.
    """

    sample: Sample
    found: Sequence[Piece]
    template: ChatTemplate
    text: str
    prompted: bool = False
    _renders: dict[tuple[int, bool], tuple[str, Places] | None] = field(default_factory=dict)

    @cached_property
    def with_blanks(self) -> frozenset[int]:
        """Turns that have a region of white space alone, which leaves no mark."""
        return frozenset(piece.turn for piece in self.found if piece.text and not piece.leaves)

    def until(self, turns: int, *, prompted: bool) -> tuple[str, Places] | None:
        """The render of the first `turns` turns and the places of its marks; `None` where the template refuses them."""
        key = turns, prompted
        if key not in self._renders:
            listed = messages(self.sample, self.found, "words", self.template.form)[:turns]
            try:
                marked = self.template.render(listed, tools=self.sample.tools, documents=self.sample.documents, generation_prompt=prompted)
                self._renders[key] = unmark(marked)
            except Refused:
                self._renders[key] = None
        return self._renders[key]

    def after(self, block: Block, turns: int, *, prompted: bool) -> str | None:
        """What follows a block in the render of the first `turns` turns; `None` where it is not there as in the whole."""
        render = self.until(turns, prompted=prompted)
        if render is None or block.leaf < 0:
            return None
        text, places = render
        marks = places.get(block.leaf, [])
        if len(marks) <= block.occurrence:
            return None
        end = marks[block.occurrence][1]
        return text[end + block.tail :] if text[end : end + block.tail] == self.text[block.end - block.tail : block.end] else None


@dataclass
class Borders:
    """What is known of one template."""

    template: ChatTemplate
    _prompts: dict[Any, str | None] = field(default_factory=dict)
    _ends: dict[Any, dict[str, int]] = field(default_factory=dict)

    @property
    def ends(self) -> Ends:
        """How its answers end."""
        return self.template.ends

    # -- where a turn begins ------------------------------------------------------------------------------------------------------------

    def start(self, chat: Chat, before: Block | None, block: Block) -> int:
        """Where what a model generates for `block` begins; `before` is the block before it in the render.

        Raises:
            Refused: ``generation_prompt_not_found``.
        """
        low = before.end if before else 0
        gap = chat.text[low : block.start]
        start = self._parting(chat, before, block, gap, low)
        header = self.template.generation_prompt
        if header and (at := chat.text.rfind(header, start, block.start)) >= 0:
            start = at + len(
                header
            )  # the turn's own header, which the template forgets to write as a prompt here, as Gemma 4 after a tool's result
        lead = chat.text[start : block.start]
        return start if self._is_generated(lead, block) else block.start

    def _parting(self, chat: Chat, before: Block | None, block: Block, gap: str, low: int) -> int:
        """Where the whole render and the one before the turn part."""
        prompt = self._prompt(chat, before, block, gap)
        if prompt is None:
            return self._by_prompt_alone(chat, block, low)
        if chat.text.startswith(prompt, low):
            return low + len(prompt)
        shared = self._boundary(gap, common_length(gap, prompt))
        return low + shared if shared or not gap else self._by_prompt_alone(chat, block, low)

    def _is_generated(self, lead: str, block: Block) -> bool:
        """Whether what stands before an answer's words is the model's; a template that writes no generation prompt may begin it with a header."""
        return not lead.strip() or bool(self.template.generation_prompt) or block.kinds[0] in (THINKING, TOOL_CALL)

    def _prompt(self, chat: Chat, before: Block | None, block: Block, gap: str) -> str | None:
        """What stands before an answer to the same: from the end of the block before to where the model takes over."""
        key = (before.role, before.kinds) if before else None, block.kinds, bool(chat.sample.tools), gap
        if key not in self._prompts:
            if len(self._prompts) > MOST_REMEMBERED:
                self._prompts.clear()
            if before is None:
                render = chat.until(block.turn, prompted=True) if block.turn else None
                self._prompts[key] = render[0] if render else None
            else:
                self._prompts[key] = chat.after(before, block.turn, prompted=True)
        return self._prompts[key]

    def _boundary(self, gap: str, most: int) -> int:
        """The last place up to `most` where a header may end: after a control token or white space, and not amid the opening of what differs, such
        as the ``<think>`` of an empty block where the prompt opens a full one."""
        control = self.ends.pattern
        token = max((found.end() for found in control.finditer(gap) if found.end() <= most), default=0) if control else 0
        blank = next((at for at in range(most, 0, -1) if gap[at - 1].isspace()), 0)
        header = gap if most == len(gap) else gap[: max(token, blank)]
        stop = self.ends.leading(header)
        opening = _OPENING.search(header, stop[1] if stop else 0)
        return opening.start(1) if opening and header[stop[1] if stop else 0 : opening.start()].strip() else len(header)

    def _by_prompt_alone(self, chat: Chat, block: Block, low: int) -> int:
        """Where the conversation before the turn cannot be rendered: after the generation prompt of a lone question, if that stands here."""
        prompt = self.template.generation_prompt
        at = chat.text.rfind(prompt, low, block.start) if prompt else -1
        if at >= 0:
            return at + len(prompt)
        if THINKING in block.kinds or TOOL_CALL in block.kinds:
            detail = (
                f"template {self.template.name}: what it writes before turn {block.turn} has nothing in common with what it writes before an "
                "answer is generated; take another template"
            )
            raise Refused("generation_prompt_not_found", detail, stage="render")
        return block.start

    # -- what ends a turn ---------------------------------------------------------------------------------------------------------------

    def stop(self, chat: Chat, block: Block, after: Block | None) -> tuple[int, int] | None:
        """Where the control tokens that end `block` stand; `None` where the template writes none. `after` is the next block in the render.

        Of another turn than an assistant's only what ends answers too is a stop; else it is the header of what follows.
        """
        gap = chat.text[block.end : after.start if after else len(chat.text)]
        found = self._stop_of_others(gap) if block.role != ASSISTANT else self._stop_of_answer(chat, block, after, gap)
        return (block.end + found[0], block.end + found[1]) if found else None

    def _stop_of_others(self, gap: str) -> tuple[int, int] | None:
        start = len(gap) - len(gap.lstrip())
        stop = next((stop for stop in self.ends.answers if stop and gap.startswith(stop, start)), "")
        return (start, start + len(stop)) if stop else None

    def _stop_of_answer(self, chat: Chat, block: Block, after: Block | None, gap: str) -> tuple[int, int] | None:
        is_text = block.kinds[-1] not in (THINKING, TOOL_CALL, IMAGE)
        following = len(chat.sample.turns) - block.turn if after is None else (after.role, after.kinds[0], after.turn - block.turn)
        known = self._ends.setdefault((block.kinds[-1], following, chat.prompted), {})
        for end, length in known.items():
            start = len(gap) - len(end)
            if length and gap.endswith(end) and (not is_text or not gap[:start].strip()):
                return start, start + length
        if known.get(gap) == 0:
            return None
        alone = chat.after(block, block.turn + 1, prompted=False)
        found = self.ends.find(gap, gap if alone is None else alone, is_text=is_text)
        if len(known) < MOST_REMEMBERED:
            known[gap[found[0] :] if found else gap] = found[1] - found[0] if found else 0
        return found
