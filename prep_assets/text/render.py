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
from prep_assets.text.conversation import (
    NAMES,
    NONCHARACTER,
    Marking,
    Piece,
    Places,
    marked_tools,
    messages,
    pieces,
    placeholder,
    unmark,
    unmarked_strings,
)
from prep_assets.text.images import expanded
from prep_assets.text.spans import Rendered, Span, Stop
from prep_assets.text.template import Block, Chat, ChatTemplate

# Where the regions of a conversation stand in its render, from the marks around their texts.

Bounds = dict[int, tuple[int, int]]
"""Number of a piece → where it stands (start, end)."""


def place(text: str, found: Sequence[Piece], places: Places, template: ChatTemplate) -> Bounds:
    """The bounds of all pieces that are shown.

    Raises:
        Refused: the template leaves a text out or changes it; reasoning may be left out of history.
    """
    bounds: Bounds = {}
    for index, piece in enumerate(found):
        if not piece.leaves or (piece.region.kind == THINKING and not places.get(piece.leaf) and template.form.shows_reasoning):
            continue
        if piece.region.kind == TOOL_CALL:
            bounds[index] = _call(piece, places, max((end for _, end in bounds.values()), default=0), template)
            continue
        marks = places.get(piece.leaf, [])
        if len(marks) != 1 or text[slice(*marks[0])] not in (piece.words, _escaped(piece)):
            raise _dropped(piece, template)
        bounds[index] = marks[0]
    return bounds | _images(text, found, places, template)


def _call(piece: Piece, places: Places, low: int, template: ChatTemplate) -> tuple[int, int]:
    """Where a tool call stands. Its name may be written again in the header of its result, so the first one after what stands before counts."""
    chosen = []
    for leaf in range(piece.leaf, piece.leaf + piece.leaves):
        marks = places.get(leaf)
        if not marks:
            raise _dropped(piece, template)
        chosen.append(next((where for where in marks if where[0] >= low), marks[0]))
    return min(start for start, _ in chosen), max(end for _, end in chosen)


def _images(text: str, found: Sequence[Piece], places: Places, template: ChatTemplate) -> Bounds:
    """Where the template itself writes the image token: the first one is the first image, and so on."""
    images = [index for index, piece in enumerate(found) if piece.is_part]
    if not images:
        return {}
    content = sorted(where for marks in places.values() for where in marks)
    written = [each.span() for each in re.finditer(re.escape(template.image_token), text) if not _is_inside(each.start(), content)]
    if len(written) != len(images):
        detail = f"template {template.name} writes {template.image_token!r} {len(written)} times for {len(images)} images"
        raise Refused("template_drops_content", detail, stage="render")
    return dict(zip(images, written, strict=True))


def _is_inside(at: int, ascending: Sequence[tuple[int, int]]) -> bool:
    number = bisect_right(ascending, at, key=lambda where: where[0]) - 1
    return number >= 0 and at < ascending[number][1]


def _escaped(piece: Piece) -> str:
    """The words of a tool's result as they stand inside JSON, into which some templates put it."""
    return json.dumps(piece.words, ensure_ascii=False)[1:-1] if piece.role == TOOL else piece.words


def _dropped(piece: Piece, template: ChatTemplate) -> Refused:
    detail = (
        f"template {template.name} does not render turn {piece.turn} ({piece.role}, {piece.region.kind}) as it is; "
        "take a template that shows it, or leave such rows out"
    )
    return Refused("template_drops_content", detail, stage="render")


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


def check_order(found: Sequence[Piece], bounds: Bounds, template: ChatTemplate) -> None:
    """Refuse a conversation whose parts the template writes in another order: the parts of one turn, or one turn amid another."""
    ascending = sorted(bounds, key=lambda index: bounds[index])
    for before, after in pairwise(ascending):
        left, right = found[before], found[after]
        if left.turn == right.turn and left.order > right.order:
            detail = (
                f"template {template.name} writes the {right.region.kind} of turn {left.turn} after its {left.region.kind}, where the source has it "
                "before; split the turn, or take a template that keeps the order"
            )
            raise Refused("template_reorders_content", detail, stage="render")
    begun: set[int] = set()
    last = -1
    for index in ascending:
        turn = found[index].turn
        if turn != last and turn in begun:
            detail = (
                f"template {template.name} writes turn {turn} in two places, with turn {last} between; split it, or take another template"
            )
            raise Refused("template_reorders_content", detail, stage="render")
        begun.add(turn)
        last = turn


def with_margins(text: str, bare_marked: str, found: Sequence[Piece], shown: Bounds, template: ChatTemplate) -> Bounds:
    """Widen the bounds of each piece by the white space of its own that the template kept.

    In `bare_marked` that white space is left away; where the run of white space beside the words is longer in the real render, the difference
    is the region's own.
    """
    bare_text, bare = unmark(bare_marked)
    widened: Bounds = {}
    for index, (start, end) in shown.items():
        piece = found[index]
        if not piece.lead and not piece.trail:  # nor does a tool call or an escaped result stand there letter by letter
            widened[index] = start, end
            continue
        if piece.leaf not in bare:
            raise _rewritten(f"template {template.name} renders a turn otherwise without its white space")
        kept_lead = _run_before(text, start) - _run_before(bare_text, bare[piece.leaf][0][0]) if piece.lead else 0
        kept_trail = run_after(text, end) - run_after(bare_text, bare[piece.leaf][-1][1]) if piece.trail else 0
        if not kept_lead and not kept_trail:
            widened[index] = start, end
            continue
        where = start - kept_lead, end + kept_trail
        own = piece.text[max(0, piece.lead - kept_lead) : len(piece.text) - piece.trail + kept_trail]
        if not (0 <= kept_lead <= piece.lead and 0 <= kept_trail <= piece.trail and text[slice(*where)] == own):
            raise _rewritten(f"template {template.name} changes the white space around turn {piece.turn}")
        widened[index] = where
    _check_apart(found, widened, template)
    return widened


def _check_apart(found: Sequence[Piece], bounds: Bounds, template: ChatTemplate) -> None:
    """Where nothing but white space stands between two turns that both have some, it may be of either."""
    for before, after in pairwise(sorted(bounds, key=lambda index: bounds[index])):
        if bounds[after][0] < bounds[before][1]:
            turns = found[before].turn, found[after].turn
            raise _rewritten(f"template {template.name} leaves white space that may be of turn {turns[0]} or of turn {turns[1]}")


def _rewritten(detail: str) -> Refused:
    return Refused("template_rewrites_content", f"{detail}; take another template, or mend such rows", stage="render")


def _run_before(text: str, at: int) -> int:
    start = at
    while start and text[start - 1].isspace():
        start -= 1
    return at - start


def run_after(text: str, at: int) -> int:
    """How many characters of white space stand at `at`."""
    end = at
    while end < len(text) and text[end].isspace():
        end += 1
    return end - at


# From where texts stand to what is trained with them: what the template writes before, between and after the regions of an assistant's turn.

_END_OF_THINKING = "</think>"


def wrapped(chat: Chat, bounds: Bounds, places: Places) -> tuple[list[Span], list[Stop]]:
    """The spans of all pieces that are shown, and the stops of all turns.

    An assistant's first region takes what stands between the generation prompt and its words, reasoning and tool calls what stands around
    them, up to the stop.

    Raises:
        Refused: where a turn begins or ends cannot be told.
    """
    ascending = sorted(bounds, key=lambda index: bounds[index])
    groups = [list(group) for _, group in groupby(ascending, key=lambda index: chat.found[index].turn)]
    blocks = [_block(chat, group, bounds, places) for group in groups]
    spans: list[Span] = []
    stops: list[Stop] = []
    for number, (block, group) in enumerate(zip(blocks, groups, strict=True)):
        before, after = blocks[number - 1] if number else None, blocks[number + 1] if number + 1 < len(blocks) else None
        mine = [Span(*bounds[index], block.turn, block.role, chat.found[index].region) for index in group]
        where = chat.template.borders.stop(chat, block, after)
        if where is not None:
            stops.append(Stop(block.turn, *where))
        if block.role == ASSISTANT:
            mine = _whole(chat, mine, where, before, block, after)
        spans += mine
    return spans, stops


def _block(chat: Chat, group: list[int], bounds: Bounds, places: Places) -> Block:
    pieces = [chat.found[index] for index in group]
    start, end = bounds[group[0]][0], bounds[group[-1]][1]
    leaves = [leaf for piece in pieces for leaf in range(piece.leaf, piece.leaf + piece.leaves)]
    marked = [(high, leaf, number) for leaf in leaves for number, (_, high) in enumerate(places[leaf]) if high <= end]
    high, leaf, number = max(marked, default=(end, -1, 0))
    kinds = tuple(piece.region.kind for piece in pieces)
    return Block(pieces[0].turn, pieces[0].role, kinds, start, end, leaf, number, end - high)


def _whole(
    chat: Chat, spans: list[Span], stop: tuple[int, int] | None, before: Block | None, block: Block, after: Block | None
) -> list[Span]:
    """The spans of an assistant's turn with all that the model generates around them."""
    own = tuple(spans)
    if spans[0].region.kind != IMAGE:
        start = min(chat.template.borders.start(chat, before, block), spans[0].end)
        # white space may be that of a region of nothing else, which has no span
        if not (chat.text[start : spans[0].start].isspace() and block.turn in chat.with_blanks):
            spans[0] = replace(spans[0], start=start)
    for i in range(len(spans) - 1):
        spans[i], spans[i + 1] = _share(chat.text, spans[i], spans[i + 1])
    if spans[-1].region.kind in (THINKING, TOOL_CALL):
        spans[-1] = replace(spans[-1], end=stop[0] if stop else _end_without_stop(chat, block, after))
    if stop is not None and block.turn == len(chat.sample.turns) - 1 and not chat.prompted:
        _check_nothing_follows(chat, stop[1])
    return [replace(span, lead=bare.start - span.start, trail=span.end - bare.end) for span, bare in zip(spans, own, strict=True)]


def _check_nothing_follows(chat: Chat, at: int) -> None:
    """After the last answer there may be white space and the end-of-text token, and no header of a turn that is not there."""
    rest = chat.text[at:]
    eos = chat.template.special.get("eos_token", "")
    if (rest.replace(eos, "") if eos else rest).strip():
        detail = (
            f"template {chat.template.name} writes {rest[:60]!r} after the last answer, where nothing follows; "
            "it ignores add_generation_prompt: mend it, or take another template"
        )
        raise Refused("dangling_header", detail, stage="render")


def _end_without_stop(chat: Chat, block: Block, after: Block | None) -> int:
    if after is not None:
        detail = (
            f"template {chat.template.name}: no control token ends turn {block.turn} after its {block.kinds[-1]}; take another template"
        )
        raise Refused("stop_token_not_found", detail, stage="render")
    return block.end + len(chat.text[block.end :].rstrip())


def _share(text: str, left: Span, right: Span) -> tuple[Span, Span]:
    """Divide what stands between two regions of a turn: a closing tag of reasoning goes to the reasoning, the rest to the tool call."""
    kinds = (left.region.kind, right.region.kind)
    if TOOL_CALL not in kinds and THINKING not in kinds:
        return left, right
    cut = right.start
    if right.region.kind == TOOL_CALL:
        closing = text.find(_END_OF_THINKING, left.end, right.start) if left.region.kind == THINKING else -1
        cut = left.end if closing < 0 else closing + len(_END_OF_THINKING) + run_after(text, closing + len(_END_OF_THINKING))
    return replace(left, end=cut), replace(right, start=cut)


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
        _check_all_shown(sample)
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


def _check_all_shown(sample: Sample) -> None:
    """Only a template can show what stands beside the turns."""
    beside = {"tools": sample.tools, "documents": sample.documents, "chat_template_kwargs": sample.template_options}
    if lost := [name for name, value in beside.items() if value]:
        raise Refused(
            "needs_template", f"the record has {' and '.join(lost)}, which text without a chat template cannot show", stage="render"
        )


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
    found = pieces(sample, image=template.image_token, form=template.form)
    _check_unmarked(sample, template)
    chat = Chat(sample, found, template, _rendered(sample, template, found, "none", prompted), prompted)
    _check_text(chat.text)  # a tool call may spell out in JSON escapes what no text may hold
    tools, texts = marked_tools(sample.tools)
    marked = template.render(
        messages(sample, found, "words", template.form), tools=tools, documents=sample.documents, generation_prompt=prompted
    )
    text, places = unmark(marked)
    if text != chat.text:
        raise Refused("template_rewrites_content", _rewrite(template, chat.text, text), stage="render")
    bounds = place(text, found, places, template)
    check_shown(sample, texts, places, template)
    check_order(found, bounds, template)
    if any(piece.lead or piece.trail for piece in found):
        bounds = with_margins(text, _rendered(sample, template, found, "words only", prompted), found, bounds, template)
    leaves = {leaf for piece in found for leaf in range(piece.leaf, piece.leaf + piece.leaves) if piece.region.kind != IMAGE}
    content = sorted(where for leaf in leaves for where in places.get(leaf, []))
    shown = ((*bounds[index], piece.region) for index, piece in enumerate(found) if piece.region.kind == IMAGE)
    images = sorted(shown, key=lambda image: image[0])
    spans, stops = wrapped(chat, bounds, places)
    return expanded(Rendered(text, tuple(spans), tuple(content), tuple(stops), tuple(images)), template.image_token, template.image)


def _rendered(sample: Sample, template: ChatTemplate, found: list[Piece], marking: Marking, prompted: bool) -> str:
    listed = messages(sample, found, marking, template.form)
    return template.render(listed, tools=sample.tools, documents=sample.documents, generation_prompt=prompted)


def _check_unmarked(sample: Sample, template: ChatTemplate) -> None:
    """Roles, names and schemas are no content of a turn, so a control token that somebody wrote there would be taken for the template's."""
    for text in unmarked_strings(sample):
        _check_text(text)
        control = next((token for token in template.control if token in text), None)
        if control is not None:
            raise Refused("control_token_outside_content", f"{control!r} stands in {text[:80]!r}", stage="render")


def _rewrite(template: ChatTemplate, plain: str, unmarked: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(plain, unmarked, strict=False)) if a != b), min(len(plain), len(unmarked)))
    near = plain[max(0, at - 30) : at + 30]
    return f"template {template.name} depends on the content itself: near {near!r} it cannot be followed; take another template, or mend such rows"


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
        listed = sorted(self.strings, key=lambda tag: (-len(tag), tag))
        return re.compile("|".join(map(re.escape, listed)))


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
    thinking = [number for number, turn in enumerate(sample.turns) if any(_thinks(region) for region in turn.regions)]
    return len(set(thinking) - shown)


def _thinks(region: Region) -> bool:
    return region.kind == THINKING and not region.drop and bool(region.text.strip())


def one_per_answer(sample: Sample, weight: Weight) -> tuple[Sample, ...]:
    """One example for each answer that is trained: the turns up to it, of which only those after the answer before may be trained.

    What follows the last of them would take its reasoning out of the render. So it is left out, or, where any of it is trained, one example more.
    """

    def is_trained(turn: Turn) -> bool:
        return any(weight(turn.role, region) for region in turn.regions if not region.drop)

    ends = [number for number, turn in enumerate(sample.turns, 1) if turn.role == ASSISTANT and is_trained(turn)]
    if not ends or any(map(is_trained, sample.turns[ends[-1] :])):
        ends.append(len(sample.turns))
    starts = [0, *ends[:-1]]
    return tuple(
        replace(sample, turns=(*map(_history, sample.turns[:start]), *sample.turns[start:end]))
        for start, end in zip(starts, ends, strict=True)
    )


def _history(turn: Turn) -> Turn:
    return replace(turn, regions=tuple(replace(region, loss_weight=0.0) for region in turn.regions))
