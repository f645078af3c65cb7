"""Sample → rendered: one render of the whole conversation, with the span of every region and what is trained."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import Literal, TypeVar

from prep_assets.errors import Refused
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    DOCUMENT,
    IMAGE,
    PROMPT,
    THINKING,
    TOOL,
    TOOL_CALL,
    Example,
    Group,
    Pair,
    Prompt,
    Region,
    Sample,
    Turn,
    over_turns,
)
from prep_assets.text.conversation import NAMES, NONCHARACTER, Piece, Places, marked_tools, pieces, placeholder, unmark, unmarked_strings
from prep_assets.text.images import expanded
from prep_assets.text.spans import Rendered, Span, Stop, control_pattern
from prep_assets.text.template import Block, Chat, ChatTemplate, common_length

# Where the regions of a conversation stand in its render, from the marks around their texts.

Shown = tuple[int, int, Piece]
"""Where a piece stands (start, end), and the piece."""


def place(chat: Chat, places: Places) -> list[Shown]:
    """All pieces that are shown, in their order in the conversation; images that the template itself writes come last.

    Raises:
        Refused: the template leaves a text out or changes it; reasoning may be left out of history.
    """
    template, shown = chat.template, list[Shown]()
    for piece in chat.pieces:
        marks = places.get(piece.leaf, [])
        if not piece.leaves or (piece.region.kind == THINKING and not marks and template.form.shows_reasoning):
            continue
        chosen = marks
        if piece.region.kind == TOOL_CALL:
            # its name may be written again in the header of its result, so the first one after what stands before counts
            low, listed = max((end for _, end, _ in shown), default=0), [places.get(leaf) for leaf in piece.every_leaf]
            chosen = [next((where for where in each if where[0] >= low), each[0]) for each in listed if each]
            is_shown = len(chosen) == piece.leaves
        else:  # some templates put a tool's result into JSON
            escaped = json.dumps(piece.words, ensure_ascii=False)[1:-1] if piece.role == TOOL else piece.words
            is_shown = len(marks) == 1 and chat.text[slice(*marks[0])] in (piece.words, escaped)
        if not is_shown:
            detail = (
                f"template {template.name} does not render turn {piece.turn} ({piece.role}, {piece.region.kind}) as it is; "
                "take a template that shows it, or leave such rows out"
            )
            raise Refused("template_drops_content", detail, stage="render")
        shown.append((min(start for start, _ in chosen), max(end for _, end in chosen), piece))
    if images := [piece for piece in chat.pieces if piece.is_part]:  # the first image token outside content is the first image, and so on
        content = sorted(where for marks in places.values() for where in marks)
        written = [match.span() for match in re.finditer(re.escape(template.image_token), chat.text)]
        written = [where for where in written if not _is_inside(where[0], content)]
        if len(written) != len(images):
            detail = f"template {template.name} writes {template.image_token!r} {len(written)} times for {len(images)} images"
            raise Refused("template_drops_content", detail, stage="render")
        shown += [(*where, piece) for where, piece in zip(written, images, strict=True)]
    return shown


def _is_inside(at: int, ascending: Sequence[tuple[int, int]]) -> bool:
    number = bisect_right(ascending, at, key=lambda where: where[0]) - 1
    return number >= 0 and at < ascending[number][1]


def in_order(shown: Sequence[Shown]) -> list[Shown]:
    """Pieces in the order of the render."""
    return sorted(shown, key=lambda each: each[:2])


def check_shown(sample: Sample, texts: Mapping[int, str], places: Places, template: ChatTemplate) -> None:
    """Refuse a row whose tools, documents, names or call ids the template leaves out.

    Args:
        texts: texts of the tools, by their leaf.
    """
    missing = next((text for leaf, text in texts.items() if leaf not in places), None)
    if missing is not None:
        detail = f"template {template.name} does not show the tools on offer ({missing[:60]!r}); take a template that does, or a row without tools"
        raise Refused("template_drops_tools", detail, stage="render")
    if sample.documents and not template.form.shows_documents:
        detail = f"template {template.name} does not show the {len(sample.documents)} documents of the row; put them into a turn, or take another"
        raise Refused("template_drops_documents", detail, stage="render")
    for number, turn in enumerate(sample.turns):
        if turn.name and turn.name.strip() and turn.role != TOOL and NAMES + number not in places:
            detail = (
                f"template {template.name} does not show that {turn.name[:60]!r} speaks in turn {number}. In the domain, speaker_names: write puts "
                "names in front of texts, and speaker_names: leave_out leaves them out, counted"
            )
            raise Refused("template_drops_names", detail, stage="render")


def check_order(shown: Sequence[Shown], template: ChatTemplate) -> None:
    """Refuse a conversation whose parts the template writes in another order: the parts of one turn, or one turn amid another."""
    ascending = [piece for _, _, piece in in_order(shown)]
    for left, right in pairwise(ascending):
        if left.turn == right.turn and left.order > right.order:
            detail = (
                f"template {template.name} writes the {right.region.kind} of turn {left.turn} after its {left.region.kind}, where the source has it "
                "before; split the turn, or take a template that keeps the order"
            )
            raise Refused("template_reorders_content", detail, stage="render")
    turns = [turn for turn, _ in groupby(piece.turn for piece in ascending)]
    for number, turn in enumerate(turns):
        if turn in turns[:number]:
            detail = (
                f"template {template.name} writes turn {turn} in two places, with turn {turns[number - 1]} between; split it, or take another "
                "template"
            )
            raise Refused("template_reorders_content", detail, stage="render")


def with_margins(chat: Chat, shown: Sequence[Shown]) -> list[Shown]:
    """Widen the bounds of each piece by the white space of its own that the template kept.

    In a render with the words alone that white space is left away; where the run of white space beside the words is longer in the real render, the
    difference is the region's own.
    """
    if not any(piece.lead or piece.trail for piece in chat.pieces):
        return list(shown)
    (bare_text, bare), text, name = unmark(chat.render("words only")), chat.text, chat.template.name
    widened: list[Shown] = []
    for start, end, piece in shown:
        low, high = start, end
        if piece.lead or piece.trail:  # of a tool call or an escaped result, which does not stand there letter by letter, there is none
            if piece.leaf not in bare:
                raise _rewritten(f"template {name} renders a turn otherwise without its white space")
            first, last = bare[piece.leaf][0][0], bare[piece.leaf][-1][1]
            kept_lead = _run_before(text, start) - _run_before(bare_text, first) if piece.lead else 0
            kept_trail = run_after(text, end) - run_after(bare_text, last) if piece.trail else 0
            low, high = start - kept_lead, end + kept_trail
            own = piece.text[max(0, piece.lead - kept_lead) : len(piece.text) - piece.trail + kept_trail]
            is_own = 0 <= kept_lead <= piece.lead and 0 <= kept_trail <= piece.trail and text[low:high] == own
            if (kept_lead or kept_trail) and not is_own:
                raise _rewritten(f"template {name} changes the white space around turn {piece.turn}")
        widened.append((low, high, piece))
    for (_, end, left), (start, _, right) in pairwise(in_order(widened)):
        if start < end:  # where nothing but white space stands between two turns that both have some, it may be of either
            raise _rewritten(f"template {name} leaves white space that may be of turn {left.turn} or of turn {right.turn}")
    return widened


def _rewritten(detail: str) -> Refused:
    return Refused("template_rewrites_content", f"{detail}; take another template, or mend such rows", stage="render")


def _run_before(text: str, at: int) -> int:
    return at - len(text[:at].rstrip())


def run_after(text: str, at: int) -> int:
    """How many characters of white space stand at `at`."""
    return len(text) - at - len(text[at:].lstrip())


# From where texts stand to what is trained with them: what the template writes before, between and after the regions of an assistant's turn.

_END_OF_THINKING = "</think>"


def wrapped(chat: Chat, shown: Sequence[Shown], places: Places) -> tuple[list[Span], list[Stop]]:
    """The spans of all pieces that are shown, and the stops of all turns.

    An assistant's first region takes what stands between the generation prompt and its words, reasoning and tool calls what stands around
    them, up to the stop.

    Raises:
        Refused: where a turn begins or ends cannot be told.
    """
    groups = [list(group) for _, group in groupby(in_order(shown), key=lambda each: each[2].turn)]
    blocks = [_block(group, places) for group in groups]
    spans: list[Span] = []
    stops: list[Stop] = []
    for before, block, after, group in zip([None, *blocks], blocks, [*blocks[1:], None], groups, strict=False):
        turn = [Span(start, end, block.turn, block.role, piece.region) for start, end, piece in group]
        where = chat.template.borders.stop(chat, block, after)
        if where is not None:
            stops.append(Stop(block.turn, *where))
        spans += _whole(chat, turn, where, before, block, after) if block.role == ASSISTANT else turn
    return spans, stops


def _block(group: Sequence[Shown], places: Places) -> Block:
    """The texts of one turn."""
    pieces, start, end = [piece for _, _, piece in group], group[0][0], group[-1][1]
    leaves = [leaf for piece in pieces for leaf in piece.every_leaf]
    marked = [(high, leaf, number) for leaf in leaves for number, (_, high) in enumerate(places[leaf]) if high <= end]
    high, leaf, number = max(marked, default=(end, -1, 0))
    return Block(pieces[0].turn, pieces[0].role, tuple(piece.region.kind for piece in pieces), start, end, leaf, number, end - high)


def _whole(
    chat: Chat, own: Sequence[Span], stop: tuple[int, int] | None, before: Block | None, block: Block, after: Block | None
) -> list[Span]:
    """The spans of an assistant's turn with all that the model generates around them."""
    spans, text, template = list(own), chat.text, chat.template
    if spans[0].region.kind != IMAGE:
        start = min(template.borders.start(chat, before, block), spans[0].end)
        # white space may be that of a region of nothing else, which has no span
        has_blanks = any(piece.turn == block.turn and piece.text and not piece.leaves for piece in chat.pieces)
        if not (has_blanks and text[start : spans[0].start].isspace()):
            spans[0] = replace(spans[0], start=start)
    for i, (left, right) in enumerate(pairwise(own)):
        if TOOL_CALL not in (left.region.kind, right.region.kind) and THINKING not in (left.region.kind, right.region.kind):
            continue
        # a closing tag of reasoning goes to the reasoning, the rest of what stands between to a tool call
        cut = right.start
        if right.region.kind == TOOL_CALL:
            closing = text.find(_END_OF_THINKING, left.end, right.start) if left.region.kind == THINKING else -1
            cut = left.end if closing < 0 else closing + len(_END_OF_THINKING) + run_after(text, closing + len(_END_OF_THINKING))
        spans[i], spans[i + 1] = replace(spans[i], end=cut), replace(right, start=cut)
    if spans[-1].region.kind in (THINKING, TOOL_CALL):
        if stop is None and after is not None:
            detail = f"template {template.name}: no control token ends turn {block.turn} after its {block.kinds[-1]}; take another template"
            raise Refused("stop_token_not_found", detail, stage="render")
        spans[-1] = replace(spans[-1], end=stop[0] if stop else block.end + len(text[block.end :].rstrip()))
    if stop is not None and block.turn == len(chat.sample.turns) - 1 and not chat.prompted:
        # after the last answer there may be white space and the end-of-text token, and no header of a turn that is not there
        rest, eos = text[stop[1] :], template.special.get("eos_token", "")
        if (rest.replace(eos, "") if eos else rest).strip():
            detail = (
                f"template {template.name} writes {rest[:60]!r} after the last answer, where nothing follows; "
                "it ignores add_generation_prompt: mend it, or take another template"
            )
            raise Refused("dangling_header", detail, stage="render")
    return [replace(span, lead=bare.start - span.start, trail=span.end - bare.end) for span, bare in zip(spans, own, strict=True)]


# Sample → Rendered: one render of the whole conversation, with the character span of every region.
#
# How spans are found without searching for text that content could imitate: the conversation is rendered a second time with marks around each region's words
# (`conversation.py`). With the marks taken out, the second render must be the first one to the letter; so the marks stand exactly where the regions are. A
# template that moves, trims or drops content is either followed exactly (white space, moved turns, reasoning that is left out of history) or the record is
# refused; nothing is guessed.
#
#     plain    <|user|>\\nHi<|endoftext|><|assistant|>\\nHello!<|endoftext|>
#     marked   <|user|>\\n⟦0⟧Hi⟦/⟧<|endoftext|><|assistant|>\\n⟦1⟧Hello!⟦/⟧<|endoftext|>
#     spans             └──┘                                └─────┘
#
# What a template writes after the generation prompt is generated by the model as well, so it belongs to the spans of an assistant's regions: the space before
# an answer, ``<think>`` and ``<tool_call>`` around reasoning and tool calls, up to the stop token.

__all__ = ["UNTEMPLATED", "Rendered", "Span", "Stop", "render"]

UNTEMPLATED = (DOCUMENT, PROMPT, COMPLETION)


def render(sample: Sample, template: ChatTemplate | None, *, generation_prompt: bool = False) -> Rendered:
    """Render `sample`, with the span of every non-empty region.

    Args:
        template: `None` where no turn needs one (documents).
        generation_prompt: end with what a model continues from.

    Raises:
        Refused: stage ``render``; the template refuses the conversation, drops or rewrites content, or the text cannot be encoded.
    """
    if sample.tokenized is not None:
        raise Refused("token_ids", f"the record brings {len(sample.tokenized.ids)} token ids; only SFT takes those", stage="render")
    for turn in sample.turns:
        for region in turn.regions:
            _check_text(region.text)
    untemplated = [turn.role in UNTEMPLATED for turn in sample.turns]
    if all(untemplated):
        # only a template can show what stands beside the turns
        beside = {"tools": sample.tools, "documents": sample.documents, "chat_template_kwargs": sample.template_options}
        if lost := [name for name, value in beside.items() if value]:
            detail = f"the record has {' and '.join(lost)}, which text without a chat template cannot show"
            raise Refused("needs_template", detail, stage="render")
        return _joined(sample, template.special.get("eos_token", ""), template) if template else _joined(sample)
    if template is None or any(untemplated):
        roles = [turn.role for turn in sample.turns]
        remedy = (
            "pretrain has no template: use the schema text, or put chats into sft" if template is None else "keep them in separate records"
        )
        raise Refused(
            "needs_template", f"roles {roles}: chat roles are rendered by a template, the others by none; {remedy}", stage="render"
        )
    try:
        return _templated(sample, template, generation_prompt)
    except RecursionError as error:
        raise Refused("too_deeply_nested", "a tool call or a tool's schema is nested too deeply to be rendered", stage="render") from error


def _check_text(text: str) -> None:
    if text.isascii():
        return
    found = NONCHARACTER.search(text)
    if found:
        raise Refused("noncharacter", f"U+{ord(found[0]):04X} at character {found.start()} is not text", stage="render")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refused("lone_surrogate", f"character {error.start} is half of a surrogate pair", stage="render") from error


def _joined(sample: Sample, eos: str = "", template: ChatTemplate | None = None) -> Rendered:
    """Turns that no template renders, one after the other; `eos` ends each completion and document."""
    mark = template.image_token if template else ""
    spans, parts, stops, at = [], [], [], 0
    for number, turn in enumerate(sample.turns):
        for region in turn.regions:
            if not region.drop:
                parts.append(placeholder(region, mark) if region.kind == IMAGE else region.text)
                spans.append(Span(at, at + len(parts[-1]), number, turn.role, region))
                at += len(parts[-1])
        if eos and turn.role in (COMPLETION, DOCUMENT):
            parts.append(eos)
            stops.append(Stop(number, at, at + len(eos)))
            at += len(eos)
    content = tuple((span.start, span.end) for span in spans if span.region.kind != IMAGE)
    images = tuple((span.start, span.end, span.region) for span in spans if span.region.kind == IMAGE)
    return expanded(Rendered("".join(parts), tuple(spans), content, tuple(stops), images), mark, template.image if template else "")


def _templated(sample: Sample, template: ChatTemplate, prompted: bool) -> Rendered:
    if unread := template.unread(sample.template_options):
        raise Refused("unknown_template_option", f"chat_template_kwargs: {unread}", stage="render")
    template = template.with_options(sample.template_options)
    chat = Chat(sample, pieces(sample, image=template.image_token, form=template.form), template, prompted)
    for text in unmarked_strings(
        sample
    ):  # no content of a turn, so a control token that somebody wrote there would be taken for the template's
        _check_text(text)
        control = next((token for token in template.control if token in text), None)
        if control is not None:
            raise Refused("control_token_outside_content", f"{control!r} stands in {text[:80]!r}", stage="render")
    _check_text(chat.text)  # a tool call may spell out in JSON escapes what no text may hold
    tools, texts = marked_tools(sample.tools)
    unmarked, places = unmark(chat.render("words", tools))
    if unmarked != chat.text:
        at = common_length(chat.text, unmarked)
        near = chat.text[max(0, at - 30) : at + 30]
        detail = f"template {template.name} depends on the content itself: near {near!r} it cannot be followed; take another template, or mend such rows"
        raise Refused("template_rewrites_content", detail, stage="render")
    shown = place(chat, places)
    check_shown(sample, texts, places, template)
    check_order(shown, template)
    shown = with_margins(chat, shown)
    leaves = {leaf for piece in chat.pieces for leaf in piece.every_leaf if piece.region.kind != IMAGE}
    content = sorted(where for leaf in leaves for where in places.get(leaf, []))
    images = sorted(((start, end, piece.region) for start, end, piece in shown if piece.region.kind == IMAGE), key=lambda image: image[0])
    spans, stops = wrapped(chat, shown, places)
    return expanded(Rendered(chat.text, tuple(spans), tuple(content), tuple(stops), tuple(images)), template.image_token, template.image)


# Reasoning that stands in the text of an answer, such as ``<think>…</think>``.
#
# A template that writes reasoning itself takes it from a field of its own. Given in the text, it is rendered twice, cut away, or left beside an empty block
# of the template's. So a block at the beginning of an answer becomes a `THINKING` region before the sample is rendered.

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
        return control_pattern(self.strings) or re.compile(r"(?!)")


def _is_text(region: Region) -> bool:
    return region.kind not in (THINKING, TOOL_CALL, IMAGE) and not region.drop


# A conversation as one example for each of its answers.
#
# Many templates leave reasoning out of history: a model sees its last thoughts only. Rendered as a whole, such a conversation trains the reasoning of its
# last answer and loses all other. So each answer ends an example of its own, before which history stands as the model will see it.

Weight = Callable[[str, Region], float]
"""Loss weight of a region, by the role of its turn."""


def left_out(sample: Sample, rendered: Rendered) -> int:
    """How many turns of a rendered conversation lost their reasoning."""
    shown = {span.turn for span in rendered.spans if span.region.kind == THINKING}
    thinking = {
        number
        for number, turn in enumerate(sample.turns)
        for region in turn.regions
        if region.kind == THINKING and not region.drop and region.text.strip()
    }
    return len(thinking - shown)


def one_per_answer(sample: Sample, weight: Weight) -> tuple[Sample, ...]:
    """One example for each answer that is trained: the turns up to it, of which only those after the answer before may be trained.

    What follows the last of them would take its reasoning out of the render. So it is left out, or, where any of it is trained, one example more.
    """

    def is_trained(turn: Turn) -> bool:
        return any(weight(turn.role, region) for region in turn.regions if not region.drop)

    ends = [number for number, turn in enumerate(sample.turns, 1) if turn.role == ASSISTANT and is_trained(turn)]
    if not ends or any(map(is_trained, sample.turns[ends[-1] :])):
        ends.append(len(sample.turns))
    parts = []
    for start, end in pairwise([0, *ends]):
        history = [
            replace(turn, regions=tuple(replace(region, loss_weight=0.0) for region in turn.regions)) for turn in sample.turns[:start]
        ]
        parts.append(replace(sample, turns=(*history, *sample.turns[start:end])))
    return tuple(parts)
