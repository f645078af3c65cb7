"""The certificate of a chat template: what it can be trusted with, for one tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.conversation import messages, pieces
from prep_assets.text.encode import Encoder
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate, common_length, marks_generated
from prep_assets.text.vocabulary import Vocabulary

# Kinds of chat that training data has: one small conversation each, to render with a template and look.

_ASKED, _ANSWERED = turn(USER, "What is the capital of Peru?"), turn(ASSISTANT, "It is Lima.")
_AGAIN, _SECOND = turn(USER, "And of Chile?"), turn(ASSISTANT, "It is Santiago.")
_THOUGHT, _AFTERTHOUGHT = Region(THINKING, "Peru lies in South America."), Region(THINKING, "So does Chile.")
_TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "capital_of",
            "description": "The capital of a country.",
            "parameters": {"type": "object", "properties": {"country": {"type": "string"}}, "required": ["country"]},
        },
    },
)


def _call(country: str, number: int) -> Region:
    return Region(TOOL_CALL, f'{{"id":"call0000{number}","name":"capital_of","arguments":{{"country":"{country}"}}}}')


_PERU, _CHILE = _call("Peru", 1), _call("Chile", 2)
_LIMA, _SANTIAGO = (Turn(TOOL, (Region(TEXT, text),), "capital_of", f"call0000{n}") for text, n in (("Lima", 1), ("Santiago", 2)))
_CALLS, _CALLS_NEXT = Turn(ASSISTANT, (_PERU,)), Turn(ASSISTANT, (_CHILE,))
_ASKED_BOTH, _ANSWERED_BOTH = turn(USER, "What are the capitals of Peru and Chile?"), turn(ASSISTANT, "Lima and Santiago.")
_SYSTEM, _THOUGHTFUL = turn(SYSTEM, "You answer briefly."), Turn(ASSISTANT, (_THOUGHT, *_ANSWERED.regions))

PROBES: Mapping[str, Sample] = {
    "plain": Sample((_ASKED, _ANSWERED)),
    "system": Sample((_SYSTEM, _ASKED, _ANSWERED)),
    "several rounds": Sample((_ASKED, _ANSWERED, _AGAIN, _SECOND)),
    "white space": Sample((turn(USER, " What is the capital of Peru? \n"), turn(ASSISTANT, "\n It is Lima. \n"))),
    "reasoning": Sample((_ASKED, _THOUGHTFUL)),
    "reasoning in several rounds": Sample((_ASKED, _THOUGHTFUL, _AGAIN, Turn(ASSISTANT, (_AFTERTHOUGHT, *_SECOND.regions)))),
    "tool call": Sample((_ASKED, _CALLS, _LIMA, _ANSWERED), _TOOLS),
    "text and tool call": Sample((_ASKED, Turn(ASSISTANT, (Region(TEXT, "I look it up."), _PERU)), _LIMA, _ANSWERED), _TOOLS),
    "parallel tool calls": Sample((_ASKED_BOTH, Turn(ASSISTANT, (_PERU, _CHILE)), _LIMA, _SANTIAGO, _ANSWERED_BOTH), _TOOLS),
    "reasoning and tool call": Sample((_ASKED, Turn(ASSISTANT, (_THOUGHT, _PERU)), _LIMA, _ANSWERED), _TOOLS),
    "tool calls in steps": Sample((_ASKED_BOTH, _CALLS, _LIMA, _CALLS_NEXT, _SANTIAGO, _ANSWERED_BOTH), _TOOLS),
    "tool call at the end": Sample((_ASKED, _CALLS), _TOOLS),
    "tools unused": Sample((_ASKED, _ANSWERED), _TOOLS),
}


# What a certificate has to say about a template and a tokenizer that is not wrong, and that people who serve the model have to know.

_SHOWN = 8


def findings(template: ChatTemplate, vocabulary: Vocabulary) -> Iterator[str]:
    """Sentences; none where there is nothing to know."""
    stop, eos = template.stop_token, vocabulary.special.get("eos_token")
    if stop and stop != eos:
        yield (
            f"answers end with {stop!r}, and the tokenizer's eos_token is {eos!r}: a server that stops at eos_token only never stops. Serve "
            "the model with both as stop tokens"
        )
    # control tokens that the base may never have seen: its own template writes no such token, so nobody trained their embeddings
    names = {vocabulary.special.get(name) for name in ("bos_token", "eos_token")}
    templates = [load_template(f"tokenizer:{name}", vocabulary) for name in ([""] if vocabulary.chat_template else vocabulary.templates)]
    own = {text for each in templates for text in each.writes(template.control)}
    untaught = sorted(set(template.writes(template.control)) - names - own)
    if untaught:
        why = "the tokenizer's own template never writes" if own else "the tokenizer has no template of its own that writes"
        more = f" and {len(untaught) - _SHOWN} more" if len(untaught) > _SHOWN else ""
        yield (
            f"control tokens that {why}: {', '.join(map(repr, untaught[:_SHOWN]))}{more}. Their embeddings may be untrained: train embeddings "
            "and the output layer as well, or use the model's own template"
        )


# What a template makes of each kind of chat, and which tokens end its answers and tool calls.

RIGHT = "right"
STOPS = ("last answer", "tool call", "earlier answer")


def kinds(template: ChatTemplate) -> tuple[dict[str, str], dict[str, str]]:
    """Kind of chat → ``right``, or why such rows are refused; and kind of turn → what ends it, where something does.

    Refusals stand for single rows: the other kinds are built.
    """
    chats: dict[str, str] = {}
    stops: dict[str, set[str]] = {"last answer": set(), "earlier answer": set(), "tool call": set()}
    for kind, sample in PROBES.items():
        rendered = _rendered(template, sample)
        if isinstance(rendered, Refused):
            chats[kind] = f"{rendered.reason}: {rendered.detail}"
            continue
        ended = {stop.turn for stop in rendered.stops}
        unended = [span.turn for span in rendered.spans if span.role == ASSISTANT and span.turn not in ended]
        chats[kind] = f"no_stop_token: no control token ends turn {unended[0]}" if unended else RIGHT
        for turn, text, _ in _answers(rendered):
            stops[turn].add(text)
    return chats, {turn: " or ".join(sorted(found)) for turn, found in stops.items() if found}


def generation_stops(template: ChatTemplate) -> tuple[str, ...]:
    """The control tokens that end its answers and its tool calls, found by rendering probes; those of a last answer come first. At these a model
    that was trained on the template's chats has to stop.

    A token that also stands inside of what the model generates is no stop: gpt-oss ends an earlier answer with ``<|end|>``, and every thought
    as well, so a model that stopped there would never answer.
    """
    found: dict[str, str] = {}
    inside: set[str] = set()
    for sample in PROBES.values():
        rendered = _rendered(template, sample)
        for kind, text, generated in () if isinstance(rendered, Refused) else _answers(rendered):
            token = template.first_control(text.lstrip())  # generation stops at the first one
            found[token] = min(kind, found.get(token, kind), key=STOPS.index)
            inside.update(token for token in template.control if token in generated)
    return tuple(sorted((token for token in found if token and token not in inside), key=lambda token: (STOPS.index(found[token]), token)))


def _rendered(template: ChatTemplate, sample: Sample, *, prompt: bool = False) -> Rendered | Refused:
    try:
        return render(sample, template, generation_prompt=prompt)
    except Refused as refusal:
        return refusal


def _answers(rendered: Rendered) -> Iterator[tuple[str, str, str]]:
    """Of each assistant's turn that a stop ends: what kind of end it is, the stop's text, and what is generated before it."""
    last = max(span.turn for span in rendered.spans)
    for stop in rendered.stops:
        spans = [span for span in rendered.spans if span.turn == stop.turn and span.role == ASSISTANT]
        if spans:
            kind = "tool call" if spans[-1].region.kind == TOOL_CALL else "last answer" if stop.turn == last else "earlier answer"
            generated = rendered.text[min(span.start for span in spans) : min(stop.start, max(span.end for span in spans))]
            yield kind, rendered.text[stop.start : stop.end], generated


# Two chat templates for one model: which kinds of chat they render or mask differently.

CONTEXT = 30
"""Characters shown before and after the first difference."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two templates do with one kind of chat.

    Attributes:
        chat: the kind, of `PROBES`, or ``generation prompt``.
        outcome: ``equal``; ``refused`` by both; or what differs first: ``text``, ``mask``, or that one of them refuses.
        first, second: where they differ, what each has there.
    """

    chat: str
    outcome: Literal["equal", "refused", "text", "mask", "one refuses"]
    first: str = ""
    second: str = ""

    @property
    def differs(self) -> bool:
        """Whether they part."""
        return self.outcome not in ("equal", "refused")

    def as_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        return asdict(self)


def compare(first: ChatTemplate, second: ChatTemplate, encoder: Encoder) -> Iterator[Comparison]:
    """Compare them on every probe. Both are rendered for the tokenizer of `encoder`, whose policy says what is trained."""
    both = (first, second)
    asked = Sample(PROBES["plain"].turns[:-1])
    yield _compared("generation prompt", [_rendered(template, asked, prompt=True) for template in both], None)
    for chat, sample in PROBES.items():
        yield _compared(chat, [_rendered(template, sample) for template in both], encoder)


def _compared(chat: str, found: list[Rendered | Refused], encoder: Encoder | None) -> Comparison:
    both = [each for each in found if isinstance(each, Rendered)]
    if len(both) < 2:
        shown = [f"refuses: {each}" if isinstance(each, Refused) else "renders" for each in found]
        return Comparison(chat, "one refuses" if both else "refused", *shown)
    first, second = (each.text for each in both)
    if first != second:
        at = common_length(first, second)
        return Comparison(chat, "text", *(repr(text[max(0, at - CONTEXT) : at + CONTEXT]) for text in (first, second)))
    if encoder is None:
        return Comparison(chat, "equal")
    encoded = [encoder.encode([each]) for each in both]
    refusals = [[str(refusal) for _, refusal in each.refused] for each in encoded]
    if any(refusals):
        shown = [f"refuses: {each[0]}" if each else "renders" for each in refusals]
        return Comparison(chat, "refused" if all(refusals) else "one refuses", *shown)
    differing = np.flatnonzero(encoded[0].loss != encoded[1].loss)
    if not len(differing):
        return Comparison(chat, "equal")
    at, ids = int(differing[0]), encoded[0].ids
    decode = encoder.vocabulary.backend.decode
    around, token = (decode(some.tolist(), skip_special_tokens=False) for some in (ids[max(0, at - 5) : at + 6], ids[at : at + 1]))
    return Comparison(chat, "mask", *(f"{'trains' if each.loss[at] else 'masks'} token {at}, {token!r}, in {around!r}" for each in encoded))


# Certification: what a chat template can be trusted with, for one tokenizer, found by rendering probes.
#
# A policy that the template cannot support (stop tokens where it writes none, masks that cannot be proven) is refused before any data is read.

_BARE_CALL = Turn(ASSISTANT, (Region(TOOL_CALL, '{"name": "capital_of", "arguments": {"country": "Peru"}}'),))
_WITH_TOOL = Sample((_ASKED, _BARE_CALL, turn(TOOL, "Lima"), _ANSWERED), _TOOLS)
"""A call without an id, as most data sets have it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a template does with conversations.

    Attributes:
        template: its name.
        renders: whether a plain question and answer renders with spans; nothing else holds without it.
        reason: why it does not.
        stop_token: the control token that ends an assistant's turn, ``""`` where there is none.
        generation_prompt: what it writes before an answer that is to be generated.
        begins_with: the control token that every conversation begins with, ``""`` where there is none.
        prefix_stable: whether the render of the first turns is how the render of more turns begins.
        grows: whether a render that ends with the generation prompt is how the render with the answer begins.
        system: ``rendered``, ``injected`` (rendered, and a default one is written where there is none) or ``refused``.
        default_system: the injected text.
        alternation: whether it refuses two user turns in a row.
        trims: whether it takes white space off the ends of contents.
        thinking: ``kept``, ``kept in the last turn`` or ``not rendered``.
        tools: ``rendered`` or ``not rendered``: schemas, calls and results all appear.
        generation_tags: whether it, or its training variant, marks what the model generates for transformers.
        proofs: derivations of the mask that it allows.
        stops: what ends the last answer, earlier answers and tool calls, where something does.
        chats: ``right`` for each kind of chat, or why rows of that kind are refused.
        findings: what those who train or serve the model have to know, as sentences.
    """

    template: str
    renders: bool
    reason: str = ""
    stop_token: str = ""
    generation_prompt: str = ""
    begins_with: str = ""
    prefix_stable: bool = False
    grows: bool = False
    system: str = "refused"
    default_system: str = ""
    alternation: bool = False
    trims: bool = False
    thinking: str = "not rendered"
    tools: str = "not rendered"
    generation_tags: bool = False
    proofs: tuple[str, ...] = ()
    stops: Mapping[str, str] = field(default_factory=dict)
    chats: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        return {**asdict(self), "proofs": list(self.proofs), "findings": list(self.findings)}

    def faults(self, *, train_on_eos: str, train_headers: bool) -> list[str]:
        """Why the template cannot support a policy; empty where it can."""
        if not self.renders:
            return [f"template {self.template} cannot render a plain question and answer with the span of each: {self.reason}"]
        found = []
        if train_on_eos != "none" and not self.stops:
            found.append(
                f"train_on_eos is {train_on_eos!r}, but template {self.template} ends an assistant's turn with no control token of this "
                "tokenizer, so that the model would never learn to stop. Use a template that fits the tokenizer, or train_on_eos: none"
            )
        if train_headers and not self.generation_prompt:
            found.append(
                f"train_headers needs a template that writes something before an answer is generated; {self.template} writes nothing"
            )
        if train_headers and not self.prefix_stable:
            found.append(f"train_headers needs a template whose renders grow by turns; those of {self.template} do not")
        return found


def certify(template: ChatTemplate, vocabulary: Vocabulary | None = None) -> Certificate:
    """Render the probes and look. With the tokenizer there are findings about the two together."""
    short = _rendered(template, PROBES["plain"])
    if isinstance(short, Refused):
        return Certificate(template.name, renders=False, reason=str(short))
    rounds = PROBES["several rounds"].turns
    whole, spaced = _text(template, *rounds), "  It is Lima.  "
    heads = [_text(template, *rounds[:count]) for count in (2, 3)]
    prompted = [_text(template, *rounds[:count], generation_prompt=True) for count in (1, 3)]
    trimmed, with_tool = _text(template, _ASKED, turn(ASSISTANT, spaced)), _rendered(template, _WITH_TOOL)
    has_tools = isinstance(with_tool, Rendered) and "The capital of a country." in with_tool.text and with_tool.text.count("capital_of") > 1
    system, default = _system(template)
    chats, stops = kinds(template)
    tags = marks_generated(template.training or template.source)
    return Certificate(
        template.name,
        renders=True,
        stop_token=template.stop_token,
        generation_prompt=template.generation_prompt,
        begins_with=template.first_control(short.text),
        prefix_stable=whole is not None and all(head is not None and whole.startswith(head.rstrip()) for head in heads),
        grows=whole is not None and all(head is not None and whole.startswith(head) for head in prompted),
        system=system,
        default_system=default,
        alternation=isinstance(_rendered(template, Sample((_ASKED, _AGAIN))), Refused),
        trims=trimmed is not None and spaced not in trimmed,
        thinking=_thinking(template),
        tools="rendered" if has_tools else "not rendered",
        generation_tags=tags,
        proofs=("offsets of one render", "the render built anew", "decoding of trained tokens", *(["generation tags"] if tags else [])),
        stops=stops,
        chats=chats,
        findings=tuple(findings(template, vocabulary)) if vocabulary is not None else (),
    )


def _text(template: ChatTemplate, *turns: Turn, generation_prompt: bool = False) -> str | None:
    """The text of a conversation, whether or not its spans can be told; `None` where the template refuses it."""
    sample = Sample(turns)
    try:
        return template.render(messages(sample, pieces(sample), form=template.form), generation_prompt=generation_prompt)
    except Refused:
        return None


def _system(template: ChatTemplate) -> tuple[str, str]:
    given, none = _text(template, _SYSTEM, _ASKED, _ANSWERED), _text(template, _ASKED, _ANSWERED)
    if given is None or none is None or _SYSTEM.text not in given:
        return "refused", ""
    before, after = given.split(_SYSTEM.text, 1)
    end = after[: after.find(_ASKED.text)]
    header = none[: none.find(_ASKED.text)]
    if header.startswith(before) and header.endswith(end) and len(header) > len(before) + len(end):
        return "injected", header[len(before) : len(header) - len(end)]
    return "rendered", ""


def _thinking(template: ChatTemplate) -> str:
    if _THOUGHT.text not in (_text(template, _ASKED, _THOUGHTFUL) or ""):
        return "not rendered"
    return "kept" if _THOUGHT.text in (_text(template, _ASKED, _THOUGHTFUL, _AGAIN, _SECOND) or "") else "kept in the last turn"
