"""Where the regions of a conversation stand in its render, from the marks around their texts."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from prep_assets.errors import Refused
from prep_assets.samples import THINKING, TOOL, TOOL_CALL, Sample
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.conversation import NAMES, Piece
from prep_assets.templates.marks import Places, unmark

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
