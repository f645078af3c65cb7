"""From where texts stand to what is trained with them: what the template writes before, between and after the regions of an assistant's turn."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, IMAGE, THINKING, TOOL_CALL
from prep_assets.templates.borders import Block, Chat
from prep_assets.templates.marks import Places
from prep_assets.templates.placing import Bounds, run_after
from prep_assets.templates.rendered import Span, Stop

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
