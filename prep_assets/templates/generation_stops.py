"""The tokens at which a model that was trained on a template's chats has to stop."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, TOOL_CALL
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.probes import PROBES
from prep_assets.templates.rendered import Rendered
from prep_assets.templates.rendering import render

ORDER = ("last answer", "tool call", "earlier answer")


def generation_stops(template: ChatTemplate) -> tuple[str, ...]:
    """The control tokens that end its answers and its tool calls, found by rendering probes; those of a last answer come first.

    A token that also stands inside of what the model generates is no stop: gpt-oss ends an earlier answer with ``<|end|>``, and every thought
    as well, so a model that stopped there would never answer.
    """
    found: dict[str, str] = {}
    inside: set[str] = set()
    for sample in PROBES.values():
        try:
            rendered = render(sample, template)
        except Refused:
            continue
        for kind, text, generated in _answers(rendered):
            token = _first(template, text)
            found[token] = min(kind, found.get(token, kind), key=ORDER.index)
            inside.update(token for token in template.control if token in generated)
    return tuple(sorted((token for token in found if token and token not in inside), key=lambda token: (ORDER.index(found[token]), token)))


def _answers(rendered: Rendered) -> Iterator[tuple[str, str, str]]:
    """Of each assistant's turn that a stop ends: what kind of end it is, the stop's text, and what is generated before it."""
    last = max(span.turn for span in rendered.spans)
    for stop in rendered.stops:
        spans = [span for span in rendered.spans if span.turn == stop.turn and span.role == ASSISTANT]
        if spans:
            kind = "tool call" if spans[-1].region.kind == TOOL_CALL else ORDER[0] if stop.turn == last else ORDER[2]
            generated = rendered.text[min(span.start for span in spans) : min(stop.start, max(span.end for span in spans))]
            yield kind, rendered.text[stop.start : stop.end], generated


def _first(template: ChatTemplate, text: str) -> str:
    """The control token that `text` begins with: generation stops at the first one."""
    return max((token for token in template.control if text.lstrip().startswith(token)), key=len, default="")
