"""Sample → rendered: one render of the whole conversation, with the span of every region."""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from typing import Any, Literal, TypeVar

from msgspec import Struct

from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import Refused
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    DOCUMENT,
    MEDIA,
    PROMPT,
    SEPARATOR,
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
    changed,
    over_turns,
)
from prep_assets.stores.files import loads
from prep_assets.text.conversation import (
    NAMES,
    NONCHARACTER,
    Piece,
    Places,
    mark_of,
    marked_tools,
    messages,
    pieces,
    unmark,
    unmarked_strings,
)
from prep_assets.text.spans import Rendered, Span, Stop, control_pattern
from prep_assets.text.template import Block, Chat, ChatTemplate, common_length
from prep_assets.text.template_options import without_effect

# The regions of a conversation located in its render by the marks around their texts.

PlacedPiece = tuple[int, int, Piece]
"""Start and end of a piece in characters of the render, and the piece."""


def place_pieces(chat: Chat, places: Places) -> list[PlacedPiece]:
    """The pieces that the template shows, in the order of the conversation; image parts come last.

    Raises:
        Refused: the template drops or changes a text; it may drop reasoning from history.
    """
    template, placed = chat.template, list[PlacedPiece]()
    for piece in chat.pieces:
        marks = places.get(piece.leaf, [])
        if not piece.leaves or (piece.region.kind == THINKING and not marks and template.form.shows_reasoning):
            continue
        intervals = marks
        if piece.region.kind == TOOL_CALL:
            # the header of its result may repeat its name, so the first occurrence after the previous piece counts
            previous_end, marks_of_leaves = max((end for _, end, _ in placed), default=0), [places.get(leaf) for leaf in piece.every_leaf]
            intervals = [
                next((interval for interval in leaf_marks if interval[0] >= previous_end), leaf_marks[0])
                for leaf_marks in marks_of_leaves
                if leaf_marks
            ]
            is_shown = len(intervals) == piece.leaves
        else:  # some templates write a tool's result as JSON
            escaped = json.dumps(piece.words, ensure_ascii=False)[1:-1] if piece.role == TOOL else piece.words
            is_shown = len(marks) == 1 and chat.text[slice(*marks[0])] in (piece.words, escaped)
        if not is_shown:
            detail = (
                f"template {template.name} does not render turn {piece.turn} ({piece.role}, {piece.region.kind}) as it is; "
                "take a template that shows it, or leave such rows out"
            )
            raise Refused("template_drops_content", detail, stage="render")
        placed.append((min(start for start, _ in intervals), max(end for _, end in intervals), piece))
    if files := [piece for piece in chat.pieces if piece.is_part]:  # marks outside content are the files, in order
        content = sorted(interval for marks in places.values() for interval in marks)
        found = list(re.finditer("|".join(map(re.escape, template.marks.values())), chat.text))
        found = [match for match in found if not _is_inside(match.start(), content)]
        wanted = [template.marks[piece.region.kind] for piece in files]
        if (written := [match[0] for match in found]) != wanted:
            numbers = [f"{mark!r} {written.count(mark)} times for {wanted.count(mark)} {kind}s" for kind, mark in template.marks.items()]
            detail = f"template {template.name} writes {', '.join(numbers)}, or in another order"
            raise Refused("template_drops_content", detail, stage="render")
        placed += [(*match.span(), piece) for match, piece in zip(found, files, strict=True)]
    return placed


def _is_inside(at: int, ascending: Sequence[tuple[int, int]]) -> bool:
    index = bisect_right(ascending, at, key=lambda interval: interval[0]) - 1
    return index >= 0 and at < ascending[index][1]


def in_order(placed: Sequence[PlacedPiece]) -> list[PlacedPiece]:
    """The pieces sorted by their place in the render."""
    return sorted(placed, key=lambda entry: entry[:2])


def check_shown(sample: Sample, texts: Mapping[int, str], places: Places, template: ChatTemplate) -> None:
    """Reject a record whose tools, documents or names the template drops.

    Args:
        texts: texts of the tools, by the number of their leaf.
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


def check_order(placed: Sequence[PlacedPiece], template: ChatTemplate) -> None:
    """Reject a conversation of which the template reorders the regions of a turn, or splits a turn around another."""
    ascending = [piece for _, _, piece in in_order(placed)]
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


def with_margins(chat: Chat, placed: Sequence[PlacedPiece]) -> list[PlacedPiece]:
    """Widen each piece by the outer white space of its text that the template kept.

    A render of the words without that white space serves as the baseline; where the white space around the words is longer in the real render, the
    difference belongs to the region. Where nothing but white space parts two texts that both have some there, a render with only the white space in front of
    the words tells theirs apart.
    """
    if not any(piece.lead or piece.trail for piece in chat.pieces):
        return list(placed)
    bare, text, name = unmark(chat.render("words only")), chat.text, chat.template.name
    meet = any(left.trail and right.lead and text[end:start].isspace() for (_, end, left), (start, _, right) in pairwise(in_order(placed)))
    leads = unmark(chat.render("words and lead")) if meet else None
    widened: list[PlacedPiece] = []
    for start, end, piece in placed:
        low, high = start, end
        if piece.lead or piece.trail:  # tool calls and escaped results, which are not written verbatim, have none
            if piece.leaf not in bare[1] or (leads and piece.leaf not in leads[1]):
                raise _rewrite_error(f"template {name} renders a turn otherwise without its white space")
            kept_lead = (
                (_white_before(leads, piece) if leads else _run_before(text, start)) - _white_before(bare, piece) if piece.lead else 0
            )
            kept_trail = run_after(text, end) - _white_after(leads or bare, piece) if piece.trail else 0
            low, high = start - kept_lead, end + kept_trail
            kept_text = piece.text[max(0, piece.lead - kept_lead) : len(piece.text) - piece.trail + kept_trail]
            is_verbatim = 0 <= kept_lead <= piece.lead and 0 <= kept_trail <= piece.trail and text[low:high] == kept_text
            if (kept_lead or kept_trail) and not is_verbatim:
                raise _rewrite_error(f"template {name} changes the white space around turn {piece.turn}")
        widened.append((low, high, piece))
    return widened


def _white_before(render: tuple[str, Places], piece: Piece) -> int:
    """The length of the white space before a piece in a render without its marks."""
    text, places = render
    return _run_before(text, places[piece.leaf][0][0])


def _white_after(render: tuple[str, Places], piece: Piece) -> int:
    text, places = render
    return run_after(text, places[piece.leaf][-1][1])


def _rewrite_error(detail: str) -> Refused:
    return Refused("template_rewrites_content", f"{detail}; take another template, or mend such rows", stage="render")


def _run_before(text: str, at: int) -> int:
    return at - len(text[:at].rstrip())


def run_after(text: str, at: int) -> int:
    """The length of the white space at `at`, in characters."""
    return len(text) - at - len(text[at:].lstrip())


# From places of texts to spans, which include what a model generates around the regions of an assistant's turn.

_END_OF_THINKING = "</think>"


def spans_and_stops(chat: Chat, placed: Sequence[PlacedPiece], places: Places) -> tuple[list[Span], list[Stop]]:
    """The spans of all placed pieces, and the stops of all turns.

    An assistant's first span begins at the generation prompt; spans of reasoning and tool calls include the markup around them, up to the stop.

    Raises:
        Refused: a turn without a recognizable beginning or end.
    """
    groups = [list(group) for _, group in groupby(in_order(placed), key=lambda entry: entry[2].turn)]
    blocks = [_turn_block(group, places) for group in groups]
    spans: list[Span] = []
    stops: list[Stop] = []
    header = 0
    for before, block, after, group in zip([None, *blocks], blocks, [*blocks[1:], None], groups, strict=False):
        turn_spans = [Span(start, end, block.turn, block.role, piece.region, header=header) for start, end, piece in group]
        stop = chat.template.borders.stop(chat, block, after)
        # without a generation prompt all that stands behind a question is the answer's header
        header = stop[1] if stop else chat.template.borders.closed(chat, block, after) if chat.template.generation_prompt else block.end
        if stop is not None:
            stops.append(Stop(block.turn, *stop))
        spans += _generated_spans(chat, turn_spans, stop, before, block, after) if block.role == ASSISTANT else turn_spans
    return spans, stops


def _turn_block(group: Sequence[PlacedPiece], places: Places) -> Block:
    """The texts of one turn."""
    pieces, start, end = [piece for _, _, piece in group], group[0][0], group[-1][1]
    leaves = [leaf for piece in pieces for leaf in piece.every_leaf]
    marked = [(high, leaf, number) for leaf in leaves for number, (_, high) in enumerate(places[leaf]) if high <= end]
    high, leaf, number = max(marked, default=(end, -1, 0))
    return Block(pieces[0].turn, pieces[0].role, tuple(piece.region.kind for piece in pieces), start, end, leaf, number, end - high)


def _generated_spans(
    chat: Chat, bare_spans: Sequence[Span], stop: tuple[int, int] | None, before: Block | None, block: Block, after: Block | None
) -> list[Span]:
    """The spans of an assistant's turn, widened by what the model generates around them."""
    spans, text, template = list(bare_spans), chat.text, chat.template
    if spans[0].region.kind not in MEDIA:
        start = min(template.borders.start(chat, before, block), spans[0].end)
        # the white space may belong to a blank region, which has no span
        has_blanks = any(piece.turn == block.turn and piece.text and not piece.leaves for piece in chat.pieces)
        if not (has_blanks and text[start : spans[0].start].isspace()):
            spans[0] = replace(spans[0], start=start)
    for i, (left, right) in enumerate(pairwise(bare_spans)):
        if TOOL_CALL not in (left.region.kind, right.region.kind) and THINKING not in (left.region.kind, right.region.kind):
            continue
        # between two regions, the closing tag of reasoning goes to the reasoning, the rest to the tool call
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
        # only white space and the end-of-text token may follow the last answer, not the header of a missing turn
        rest, eos = text[stop[1] :], template.special.get("eos_token", "")
        if (rest.replace(eos, "") if eos else rest).strip():
            detail = (
                f"template {template.name} writes {rest[:60]!r} after the last answer, where nothing follows; "
                "it ignores add_generation_prompt: mend it, or take another template"
            )
            raise Refused("dangling_header", detail, stage="render")
    return [replace(span, lead=bare.start - span.start, trail=span.end - bare.end) for span, bare in zip(spans, bare_spans, strict=True)]


# Sample → Rendered: one render of the whole conversation, with the character span of every region.
#
# Spans are not found by searching for text, which content could imitate: the conversation is rendered a second time with marks around the words of each
# region (`conversation.py`). Without its marks the second render must equal the first, so the marks stand exactly where the regions are. If a template
# moves, trims or drops content, it is followed exactly (white space, moved turns, reasoning dropped from history) or the record is rejected; nothing is
# guessed.
#
#     plain    <|user|>\\nHi<|endoftext|><|assistant|>\\nHello!<|endoftext|>
#     marked   <|user|>\\n⟦0⟧Hi⟦/⟧<|endoftext|><|assistant|>\\n⟦1⟧Hello!⟦/⟧<|endoftext|>
#     spans             └──┘                                └─────┘
#
# A model also generates what the template writes after the generation prompt, so it belongs to the spans of an assistant's regions: the space before an
# answer, ``<think>`` and ``<tool_call>`` around reasoning and tool calls, up to the stop token.

__all__ = ["UNTEMPLATED", "Rendered", "Span", "Stop", "render"]

UNTEMPLATED = (DOCUMENT, PROMPT, COMPLETION)
SEP = "<|sep|>"
"""What separates prompt and completion for a tokenizer without a ``sep_token``, in Cerebras Model Zoo."""


def render(sample: Sample, template: ChatTemplate | None, *, generation_prompt: bool = False) -> Rendered:
    """Render `sample`, with the span of every non-empty region.

    Args:
        template: `None` if no turn needs one (documents).
        generation_prompt: end with the generation prompt.

    Raises:
        Refused: stage ``render``; the template raises, drops or rewrites content, or the text cannot be encoded.
    """
    if sample.tokenized is not None:
        raise Refused("token_ids", f"the record brings {len(sample.tokenized.ids)} token ids; only SFT takes those", stage="render")
    for turn in sample.turns:
        for region in turn.regions:
            _check_text(region.text)
    untemplated = [turn.role in UNTEMPLATED for turn in sample.turns]
    if all(untemplated):
        # only a template can show fields other than the turns
        fields = {"tools": sample.tools, "documents": sample.documents, "chat_template_kwargs": sample.template_options}
        if unsupported := [name for name, value in fields.items() if value]:
            detail = f"the record has {' and '.join(unsupported)}, which text without a chat template cannot show"
            raise Refused("needs_template", detail, stage="render")
        return _without_template(sample, template.special.get("eos_token", ""), template) if template else _without_template(sample)
    if template is None or any(untemplated):
        roles = [turn.role for turn in sample.turns]
        remedy = (
            "pretrain has no template: use the schema text, or put chats into sft" if template is None else "keep them in separate records"
        )
        raise Refused(
            "needs_template", f"roles {roles}: chat roles are rendered by a template, the others by none; {remedy}", stage="render"
        )
    try:
        return _with_template(sample, template, generation_prompt)
    except RecursionError as error:
        raise Refused("too_deeply_nested", "a tool call or a tool's schema is nested too deeply to be rendered", stage="render") from error


def _check_text(text: str) -> None:
    if text.isascii():
        return
    match = NONCHARACTER.search(text)
    if match:
        raise Refused("noncharacter", f"U+{ord(match[0]):04X} at character {match.start()} is not text", stage="render")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refused("lone_surrogate", f"character {error.start} is half of a surrogate pair", stage="render") from error


def _without_template(sample: Sample, eos: str = "", template: ChatTemplate | None = None) -> Rendered:
    """Concatenate turns without a template; `eos` ends each completion and document."""
    marks = template.marks if template else {}
    spans, parts, stops, at = [], [], [], 0
    for number, turn in enumerate(sample.turns):
        for region in turn.regions:
            if not region.drop:
                parts.append(mark_of(region, marks) if region.kind in MEDIA else region.text)
                if region.kind == SEPARATOR and not region.text:
                    parts[-1] = (template.special.get("sep_token") if template else None) or SEP
                spans.append(Span(at, at + len(parts[-1]), number, turn.role, region))
                at += len(parts[-1])
        if eos and turn.role in (COMPLETION, DOCUMENT):
            parts.append(eos)
            stops.append(Stop(number, at, at + len(eos)))
            at += len(eos)
    content = tuple((span.start, span.end) for span in spans if span.region.kind not in (*MEDIA, SEPARATOR))
    images = tuple((span.start, span.end, span.region) for span in spans if span.region.kind in MEDIA)
    return expanded(Rendered("".join(parts), tuple(spans), content, tuple(stops), images), marks, template.image if template else "")


def _with_template(sample: Sample, template: ChatTemplate, prompted: bool) -> Rendered:
    if fault := without_effect(template, sample.template_options):
        raise Refused("unknown_template_option", f"chat_template_kwargs: {fault}", stage="render")
    template = template.with_options(sample.template_options)
    chat = Chat(sample, pieces(sample, marks=template.marks, form=template.form), template, prompted)
    for text in unmarked_strings(sample):  # carries no marks, so a control token in it would pass for one of the template
        _check_text(text)
        control = next((token for token in template.control if token in text), None)
        if control is not None:
            raise Refused("control_token_outside_content", f"{control!r} stands in {text[:80]!r}", stage="render")
    _check_text(chat.text)  # JSON escapes of a tool call may hold invalid text
    tools, texts = marked_tools(sample.tools)
    unmarked, places = unmark(chat.render("words", tools))
    if unmarked != chat.text:
        at = common_length(chat.text, unmarked)
        excerpt = chat.text[max(0, at - 30) : at + 30]
        detail = f"template {template.name} depends on the content itself: near {excerpt!r} it cannot be followed; take another template, or mend such rows"
        raise Refused("template_rewrites_content", detail, stage="render")
    placed = place_pieces(chat, places)
    check_shown(sample, texts, places, template)
    check_order(placed, template)
    placed = with_margins(chat, placed)
    leaves = {leaf for piece in chat.pieces for leaf in piece.every_leaf if piece.region.kind not in MEDIA}
    content = sorted(interval for leaf in leaves for interval in places.get(leaf, []))
    images = sorted(((start, end, piece.region) for start, end, piece in placed if piece.region.kind in MEDIA), key=lambda image: image[0])
    spans, stops = spans_and_stops(chat, placed, places)
    return expanded(Rendered(chat.text, tuple(spans), tuple(content), tuple(stops), tuple(images)), template.marks, template.image)


# Reasoning inline in the text of an answer, such as ``<think>…</think>``.
#
# A template that writes reasoning takes it from a separate field. Inline reasoning would be rendered twice, dropped, or put next to an empty block
# of the template. So a block at the beginning of an answer becomes a `THINKING` region before rendering.
#
# So it is with calls that are typed at the end of an answer, ``<tool_call>{"name": …, "arguments": …}</tool_call>``: as text, a tag becomes several tokens
# where the model has one. They become `TOOL_CALL` regions, and their results lose the tags ``<tool_response>``, which the template writes itself.

ReasoningMode = Literal["auto", "inline", "field"]
_Example = TypeVar("_Example", Sample, Pair, Prompt, Group, Example)
_REMEDY = "Mend the tags, or set reasoning: inline to leave such text as it is"
_TYPED = {tag: re.compile(f"<{tag}>((?:(?!</?{tag}>).)*)</{tag}>", re.DOTALL) for tag in ("tool_call", "tool_response")}
TYPED_TAGS = tuple(f"<{tag}>" for tag in _TYPED)
_ESCAPED = r"""\\(?:[\\'"nrt]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8})"""
_PYTHON = re.compile(rf"""[\s{{}}\[\]:,]+|[0-9.eE+-]+|True|False|None|'(?:[^'\\\r\n]|{_ESCAPED})*'|"(?:[^"\\\r\n]|{_ESCAPED})*\"""")
_NAMES = {"True": "true", "False": "false", "None": "null"}


class InlineReasoning(Struct, frozen=True, dict=True):
    """How a block of reasoning at the beginning of an answer is read, and calls that are typed at its end.

    Attributes:
        mode: ``auto``, ``inline`` or ``field``, as in the configuration.
        tags: pairs of opening and closing tags.
        shown: whether the template renders `THINKING` regions; otherwise ``auto`` leaves the block in the text.
        calls: whether typed calls become `TOOL_CALL` regions.
    """

    mode: ReasoningMode
    tags: tuple[tuple[str, str], ...]
    shown: bool
    calls: bool = False

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """All tags; a text without any of them stays as it is."""
        return (*(tag for pair in self.tags for tag in pair), *(TYPED_TAGS if self.calls else ()))

    def leaves(self, texts: Sequence[str]) -> bool:
        """Whether no text holds a tag, so that all stay as they are."""
        return not any(map("\0".join(texts).__contains__, self.strings))

    def read(self, example: _Example) -> _Example:
        """`example` with the reasoning blocks of its answers as regions.

        Raises:
            Refused: unbalanced tags, a block that differs from the reasoning field, or a block in mode ``field``; a typed call that is no JSON of a call.
        """
        return over_turns(example, self._split_turns)

    def _split_turns(self, turns: Sequence[Turn]) -> tuple[Turn, ...]:
        read = [self._split_turn(number, turn) if turn.role == ASSISTANT else turn for number, turn in enumerate(turns)]
        return tuple(part for number, turn in enumerate(read) for part in _typed_turns(number, turn)) if self.calls else tuple(read)

    def _split_turn(self, number: int, turn: Turn) -> Turn:
        at = next((i for i, region in enumerate(turn.regions) if _is_text(region)), None)
        block = self._split_block(number, turn.regions[at].text) if at is not None else None
        if at is None or block is None:
            return turn
        field_reasoning = "".join(region.text for region in turn.regions if region.kind == THINKING and not region.drop).strip()
        reasoning, answer = block
        if field_reasoning and field_reasoning != reasoning:
            detail = f"turn {number} reasons {field_reasoning[:60]!r} in a field of its own and {reasoning[:60]!r} in its text; keep one of the two"
            raise Refused("conflicting_reasoning", detail, stage="reasoning")
        if not (self.mode == "auto" and self.shown):
            kept_regions = [region for region in turn.regions if region.kind != THINKING or not field_reasoning]
            return changed(turn, regions=tuple(kept_regions))
        region = turn.regions[at]
        reasoning_regions = [] if field_reasoning or not reasoning else [changed(region, kind=THINKING, text=reasoning)]
        answer_regions = [changed(region, text=answer)] if answer else []
        regions = (*turn.regions[:at], *reasoning_regions, *answer_regions, *turn.regions[at + 1 :])
        if not any(part.kind != THINKING for part in regions):
            raise Refused("empty_answer", f"turn {number} has reasoning and no answer", stage="reasoning")
        return changed(turn, regions=regions)

    def _split_block(self, number: int, text: str) -> tuple[str, str] | None:
        """Reasoning and answer of a text that begins with a block, stripped of white space at the tags; `None` for other texts."""
        first = self._tag_pattern.search(text)
        if first is None:
            return None
        opens = dict(self.tags)
        strict = self.mode == "field" or (self.mode == "auto" and self.shown)
        if first[0] in opens and text[: first.start()].strip():
            return None  # the text only mentions the tags
        opening = first[0] if first[0] in opens else next(start for start, end in self.tags if end == first[0])
        matches = [match for match in self._tag_pattern.finditer(text) if match[0] in (opening, opens[opening])]
        if [match[0] for match in matches] != [opening, opens[opening]]:
            if not strict:
                return None
            if [match[0] for match in matches] == [opens[opening]] and self.mode == "auto":
                before, after = text[: first.start()], text[first.end() :]
                if _at_line_end(before, after):
                    return before.strip(), after.lstrip()
            counts = ", ".join(f"{sum(match[0] == tag for match in matches)} × {tag}" for tag in (opening, opens[opening]))
            raise Refused("unbalanced_reasoning", f"turn {number} has {counts} where one block was expected. {_REMEDY}", stage="reasoning")
        if self.mode == "field":
            detail = f"turn {number} begins with {opening}, and reasoning: field takes reasoning from fields alone"
            raise Refused("inline_reasoning", detail, stage="reasoning")
        return text[matches[0].end() : matches[1].start()].strip(), text[matches[1].end() :].lstrip()

    @cached_property
    def _tag_pattern(self) -> re.Pattern[str]:
        return control_pattern([tag for pair in self.tags for tag in pair]) or re.compile(r"(?!)")


def _at_line_end(before: str, after: str) -> bool:
    """Whether a closing tag between two texts ends a line or begins one: servers without a parser of reasoning return the opening tag as part of the prompt."""
    return before.rstrip(" \t").endswith("\n") or after.lstrip(" \t").startswith("\n")


def _typed_turns(number: int, turn: Turn) -> list[Turn]:
    """A turn with the calls at the end of its text as regions, or the results of tools that it holds, one turn each."""
    last = turn.regions[-1] if turn.regions else None
    if last is None or not _is_text(last):
        return [turn]
    if turn.role == ASSISTANT:
        before, calls = _typed_at_end(last.text, "tool_call")
        words = before.rstrip()
        if calls and (not words or "\n" in before[len(words) :]):
            regions = [changed(last, kind=TOOL_CALL, text=_typed_call(number, call)) for call in calls]
            return [changed(turn, regions=(*turn.regions[:-1], *([changed(last, text=words)] if words else []), *regions))]
    if turn.role == TOOL and len(turn.regions) == 1:
        before, results = _typed_at_end(last.text, "tool_response")
        if results and not before.strip():
            return [changed(turn, regions=(changed(last, text=result.strip()),)) for result in results]
    return [turn]


def _typed_at_end(text: str, tag: str) -> tuple[str, list[str]]:
    """A text without the blocks of a tag at its end, and what stands in these."""
    blocks, end = list[str](), len(text)
    for match in reversed([*_TYPED[tag].finditer(text)] if f"<{tag}>" in text else []):
        if text[match.end() : end].strip():
            break
        blocks, end = [match[1], *blocks], match.start()
    return text[:end] if blocks else text, blocks


def _typed_call(number: int, text: str) -> str:
    """The text of a region of a call that an answer holds as JSON, or as Python prints such an object."""
    try:
        call = _json_or_python(text)
        name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        arguments = _json_or_python(arguments) if isinstance(arguments, str) else arguments
        if not (isinstance(name, str) and name.strip() and isinstance(arguments, dict)):
            raise TypeError("name needs a text, arguments an object")
        if foreign := call.keys() - {"name", "arguments", "parameters", "id", "type"}:
            raise TypeError(f"{min(foreign)!r} is no part of a call")
        identity = {} if call.get("id") is None else {"id": str(call["id"])}
        return json.dumps({"name": name, "arguments": arguments, **identity}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        detail, remedy = f"turn {number} holds {text.strip()[:60]!r} between the tags of a call", "Mend the call"
        if re.match(r"\s*(?:<function=|[^\s<]+\s*<arg_key>|<invoke )", text):
            detail += " (XML writes the number 2 and the text '2' alike, so the types of arguments are unknown)"
            remedy = 'Write {"name": …, "arguments": {…}} between the tags, or the call in the field tool_calls'
        else:
            detail += f" ({error})"
        raise Refused(
            "bad_typed_call", f"{detail}. {remedy}, or set calls: inline to leave such text as it is", stage="reasoning"
        ) from error


def _json_or_python(text: str) -> Any:
    """The value of JSON, or of a Python literal whose tokens all have a counterpart in JSON: no tuple, set or comment, no escapes but those of `repr`."""
    try:
        return loads(text)
    except ValueError:
        tokens = _PYTHON.findall(text)
        if "".join(tokens) != text:
            raise
        return loads("".join(json.dumps(ast.literal_eval(token)) if token[0] in "'\"" else _NAMES.get(token, token) for token in tokens))


def _is_text(region: Region) -> bool:
    return region.kind not in (THINKING, TOOL_CALL, *MEDIA) and not region.drop


# A conversation as one example per answer.
#
# Many templates drop reasoning from history: a model sees only its latest reasoning. Rendered whole, such a conversation trains the reasoning of its
# last answer only. So each answer ends a separate example, with history as the model will see it.

Weight = Callable[[str, Region], float]
"""Loss weight of a region in a turn of a role."""


def left_out(sample: Sample, rendered: Rendered) -> int:
    """The number of turns whose reasoning the render drops."""
    shown = {span.turn for span in rendered.spans if span.region.kind == THINKING}
    reasoning = {
        number
        for number, turn in enumerate(sample.turns)
        for region in turn.regions
        if region.kind == THINKING and not region.drop and region.text.strip()
    }
    return len(reasoning - shown)


def unserved_prompts(sample: Sample, rendered: Rendered, template: ChatTemplate, policy: MaskPolicy) -> Iterator[tuple[int, str, str]]:
    """Yield each trained answer that stands behind another prompt than a server gives the model: its turn, the prompt, and the render.

    A server's prompt is the render of the messages before the answer, with the generation prompt. With ``enable_thinking: false`` Qwen3 ends each with an
    empty block of reasoning, and writes none into history.
    """
    weights = zip(rendered.spans, policy.weights(rendered.spans), strict=True)
    trained = sorted({span.turn for span, weight in weights if span.role == ASSISTANT and span.turn and weight > 0})
    if not trained:
        return
    template, whole = template.with_options(sample.template_options), rendered.text
    listed = messages(sample, pieces(sample, marks=template.marks, form=template.form), form=template.form)
    if rendered.images:  # the render has their placeholders
        whole = template.render(listed, tools=sample.tools, documents=sample.documents)
    for turn in trained:
        try:
            prompt = template.render(listed[:turn], tools=sample.tools, documents=sample.documents, generation_prompt=True)
        except Refused:
            continue
        if not whole.startswith(prompt):
            yield turn, prompt, whole


def one_per_answer(sample: Sample, weight: Weight) -> tuple[Sample, ...]:
    """One example per trained answer: the turns up to it, trained only after the previous answer.

    Turns after the last trained answer would drop its reasoning from the render. So they are left out, or become one more example if any is trained.
    """

    def is_trained(turn: Turn) -> bool:
        return any(weight(turn.role, region) for region in turn.regions if not region.drop)

    ends = [number for number, turn in enumerate(sample.turns, 1) if turn.role == ASSISTANT and is_trained(turn)]
    if not ends or any(map(is_trained, sample.turns[ends[-1] :])):
        ends.append(len(sample.turns))
    parts = []
    for start, end in pairwise([0, *ends]):
        history = [
            changed(turn, regions=tuple(changed(region, loss_weight=0.0) for region in turn.regions)) for turn in sample.turns[:start]
        ]
        parts.append(changed(sample, turns=(*history, *sample.turns[start:end])))
    return tuple(parts)


# The mark of a file → the placeholder that a processor writes for the file.


def expanded(rendered: Rendered, marks: Mapping[str, str], image: str) -> Rendered:
    """`rendered` with the placeholder of each file instead of its mark. White space at the ends of a placeholder is not part of the file.

    Args:
        marks: the text of each kind in the render.
        image: the placeholder of images whose region has none.
    """
    texts = [region.placeholder or image for _, _, region in rendered.images]
    written = [marks[region.kind] for _, _, region in rendered.images]
    if texts == written:
        return rendered
    ends = [end for _, end, _ in rendered.images]
    growth = [0, *accumulate(len(text) - len(mark) for text, mark in zip(texts, written, strict=True))]

    def move(at: int) -> int:
        """The new position of a border; the end of an image moves behind its placeholder."""
        return at + growth[bisect_right(ends, at)]

    marked = zip([0, *ends], ends, written, texts, strict=False)
    parts = [rendered.text[low : end - len(mark)] + text for low, end, mark, text in marked]
    images = []
    for (_, end, region), text in zip(rendered.images, texts, strict=True):
        lead = len(text) - len(text.lstrip())
        images.append((move(end) - len(text) + lead, move(end) - len(text) + len(text.rstrip()), region))
    return replace(
        rendered,
        text="".join([*parts, rendered.text[ends[-1] :]]),
        spans=tuple(
            replace(span, start=move(span.start), end=move(span.end), header=move(span.header) if span.header >= 0 else -1)
            for span in rendered.spans
        ),
        content=tuple((move(start), move(end)) for start, end in rendered.content),
        stops=tuple(replace(stop, start=move(stop.start), end=move(stop.end)) for stop in rendered.stops),
        images=tuple(images),
    )
