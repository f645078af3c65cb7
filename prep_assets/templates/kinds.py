"""What a template makes of each kind of chat, and which tokens end its answers and tool calls."""

from __future__ import annotations

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, TOOL_CALL
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.probes import PROBES
from prep_assets.templates.rendered import Rendered
from prep_assets.templates.rendering import render

RIGHT = "right"


def kinds(template: ChatTemplate) -> tuple[dict[str, str], dict[str, str]]:
    """Kind of chat → ``right``, or why such rows are refused; and kind of turn → what ends it, where something does.

    Refusals stand for single rows: the other kinds are built.
    """
    chats: dict[str, str] = {}
    stops: dict[str, set[str]] = {"last answer": set(), "earlier answer": set(), "tool call": set()}
    for kind, sample in PROBES.items():
        try:
            rendered = render(sample, template)
        except Refused as refusal:
            chats[kind] = f"{refusal.reason}: {refusal.detail}"
            continue
        unended = [
            span.turn for span in rendered.spans if span.role == ASSISTANT and span.turn not in {stop.turn for stop in rendered.stops}
        ]
        chats[kind] = f"no_stop_token: no control token ends turn {unended[0]}" if unended else RIGHT
        _collect(rendered, stops)
    return chats, {turn: " or ".join(sorted(found)) for turn, found in stops.items() if found}


def _collect(rendered: Rendered, stops: dict[str, set[str]]) -> None:
    last = max(span.turn for span in rendered.spans)
    ends = {span.turn: span for span in rendered.spans}
    for stop in rendered.stops:
        if ends[stop.turn].role == ASSISTANT:
            is_call = ends[stop.turn].region.kind == TOOL_CALL
            turn = "tool call" if is_call else "last answer" if stop.turn == last else "earlier answer"
            stops[turn].add(rendered.text[stop.start : stop.end])
