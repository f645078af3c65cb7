"""The certificate of a chat template: what it can be trusted with, for one tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.conversation import messages, pieces
from prep_assets.text.encode import Encoder
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate, marks_generated
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


def _calls(*regions: Region) -> Turn:
    return Turn(ASSISTANT, regions)


def _result(text: str, number: int) -> Turn:
    return Turn(TOOL, (Region(TEXT, text),), "capital_of", f"call0000{number}")


_PERU, _CHILE = _call("Peru", 1), _call("Chile", 2)
_BOTH = (turn(USER, "What are the capitals of Peru and Chile?"), turn(ASSISTANT, "Lima and Santiago."))

PROBES: Mapping[str, Sample] = {
    "plain": Sample((_ASKED, _ANSWERED)),
    "system": Sample((turn(SYSTEM, "You answer briefly."), _ASKED, _ANSWERED)),
    "several rounds": Sample((_ASKED, _ANSWERED, _AGAIN, _SECOND)),
    "white space": Sample((turn(USER, " What is the capital of Peru? \n"), turn(ASSISTANT, "\n It is Lima. \n"))),
    "reasoning": Sample((_ASKED, Turn(ASSISTANT, (_THOUGHT, *_ANSWERED.regions)))),
    "reasoning in several rounds": Sample(
        (_ASKED, Turn(ASSISTANT, (_THOUGHT, *_ANSWERED.regions)), _AGAIN, Turn(ASSISTANT, (_AFTERTHOUGHT, *_SECOND.regions)))
    ),
    "tool call": Sample((_ASKED, _calls(_PERU), _result("Lima", 1), _ANSWERED), _TOOLS),
    "text and tool call": Sample((_ASKED, _calls(Region(TEXT, "I look it up."), _PERU), _result("Lima", 1), _ANSWERED), _TOOLS),
    "parallel tool calls": Sample((_BOTH[0], _calls(_PERU, _CHILE), _result("Lima", 1), _result("Santiago", 2), _BOTH[1]), _TOOLS),
    "reasoning and tool call": Sample((_ASKED, _calls(_THOUGHT, _PERU), _result("Lima", 1), _ANSWERED), _TOOLS),
    "tool calls in steps": Sample((_BOTH[0], _calls(_PERU), _result("Lima", 1), _calls(_CHILE), _result("Santiago", 2), _BOTH[1]), _TOOLS),
    "tool call at the end": Sample((_ASKED, _calls(_PERU)), _TOOLS),
    "tools unused": Sample((_ASKED, _ANSWERED), _TOOLS),
}


# What a certificate has to say about a template and a tokenizer that is not wrong, and that people who serve the model have to know.

_SHOWN = 8


def findings(template: ChatTemplate, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Sentences; none where there is nothing to know."""
    return (*_stops(template, vocabulary), *_untaught(template, vocabulary))


def _stops(template: ChatTemplate, vocabulary: Vocabulary) -> Iterator[str]:
    stop, eos = template.stop_token, vocabulary.special.get("eos_token")
    if stop and stop != eos:
        yield (
            f"answers end with {stop!r}, and the tokenizer's eos_token is {eos!r}: a server that stops at eos_token only never stops. Serve "
            "the model with both as stop tokens"
        )


def _untaught(template: ChatTemplate, vocabulary: Vocabulary) -> Iterator[str]:
    """Control tokens that the base may never have seen: its own template writes no such token, so nobody trained their embeddings."""
    names = {vocabulary.special.get(name) for name in ("bos_token", "eos_token")}
    written = set(template.writes(template.control)) - names
    own = {text for each in _own_templates(vocabulary) for text in each.writes(template.control)}
    untaught = sorted(written - own)
    if untaught:
        why = "the tokenizer's own template never writes" if own else "the tokenizer has no template of its own that writes"
        more = f" and {len(untaught) - _SHOWN} more" if len(untaught) > _SHOWN else ""
        yield (
            f"control tokens that {why}: {', '.join(map(repr, untaught[:_SHOWN]))}{more}. Their embeddings may be untrained: train embeddings "
            "and the output layer as well, or use the model's own template"
        )


def _own_templates(vocabulary: Vocabulary) -> Iterator[ChatTemplate]:
    names = [*([""] if vocabulary.chat_template else []), *vocabulary.templates]
    for name in names:
        yield load_template(f"tokenizer:{name}", vocabulary)


# What a template makes of each kind of chat, and which tokens end its answers and tool calls.

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


# The tokens at which a model that was trained on a template's chats has to stop.

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


def _rendered(template: ChatTemplate, sample: Sample, *, prompt: bool = False) -> Rendered | Refused:
    try:
        return render(sample, template, generation_prompt=prompt)
    except Refused as refusal:
        return refusal


def _compared(chat: str, found: list[Rendered | Refused], encoder: Encoder | None) -> Comparison:
    texts = [each.text for each in found if isinstance(each, Rendered)]
    if len(texts) < 2:
        shown = [f"refuses: {each}" if isinstance(each, Refused) else "renders" for each in found]
        return Comparison(chat, "one refuses" if texts else "refused", *shown)
    if texts[0] != texts[1]:
        return Comparison(chat, "text", *_apart(*texts))
    if encoder is None:
        return Comparison(chat, "equal")
    return _masks(chat, [each for each in found if isinstance(each, Rendered)], encoder)


def _masks(chat: str, both: list[Rendered], encoder: Encoder) -> Comparison:
    encoded = [encoder.encode([each]) for each in both]
    refusals = [[str(refusal) for _, refusal in each.refused] for each in encoded]
    if any(refusals):
        shown = [f"refuses: {each[0]}" if each else "renders" for each in refusals]
        return Comparison(chat, "refused" if all(refusals) else "one refuses", *shown)
    differing = np.flatnonzero(encoded[0].loss != encoded[1].loss)
    if not len(differing):
        return Comparison(chat, "equal")
    at = int(differing[0])
    decode = encoder.vocabulary.backend.decode
    around = decode(encoded[0].ids[max(0, at - 5) : at + 6].tolist(), skip_special_tokens=False)
    token = decode([int(encoded[0].ids[at])], skip_special_tokens=False)
    words = [f"{'trains' if each.loss[at] else 'masks'} token {at}, {token!r}, in {around!r}" for each in encoded]
    return Comparison(chat, "mask", *words)


def _apart(first: str, second: str) -> tuple[str, str]:
    """Both texts around the place where they part."""
    at = next(i for i, (a, b) in enumerate(zip_longest(first, second)) if a != b)
    return repr(first[max(0, at - CONTEXT) : at + CONTEXT]), repr(second[max(0, at - CONTEXT) : at + CONTEXT])


# Certification: what a chat template can be trusted with, for one tokenizer, found by rendering probes.
#
# A policy that the template cannot support (stop tokens where it writes none, masks that cannot be proven) is refused before any data is read.

_SYSTEM = turn(SYSTEM, "You answer briefly.")
_CALL = Region(TOOL_CALL, '{"name": "capital_of", "arguments": {"country": "Peru"}}')
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "capital_of",
        "description": "The capital of a country.",
        "parameters": {"type": "object", "properties": {"country": {"type": "string"}}, "required": ["country"]},
    },
}


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
    try:
        plain = _text(template, _ASKED, _ANSWERED)
    except PrepAssetsError:
        raise
    except Refused as refusal:
        return Certificate(template.name, renders=False, reason=str(refusal))
    system, default = _system(template)
    chats, stops = kinds(template)
    tags = marks_generated(template.training or template.source)
    grows = _grows(template)
    proofs = ["offsets of one render", "the render built anew", "decoding of trained tokens"]
    proofs += ["generation tags"] if tags else []
    return Certificate(
        template.name,
        renders=True,
        stop_token=template.stop_token,
        generation_prompt=template.generation_prompt,
        begins_with=max((token for token in template.control if plain.startswith(token)), key=len, default=""),
        prefix_stable=_prefix_stable(template),
        grows=grows,
        system=system,
        default_system=default,
        alternation=not _renders(template, _ASKED, _AGAIN),
        trims=_trims(template),
        thinking=_thinking(template),
        tools="rendered" if _tools(template) else "not rendered",
        generation_tags=tags,
        proofs=tuple(proofs),
        stops=stops,
        chats=chats,
        findings=findings(template, vocabulary) if vocabulary is not None else (),
    )


def _text(template: ChatTemplate, *turns: Turn) -> str:
    return render(Sample(turns), template).text


def _renders(template: ChatTemplate, *turns: Turn, tools: Sequence[dict[str, Any]] = ()) -> bool:
    try:
        render(Sample(turns, tuple(tools)), template)
    except Refused:
        return False
    return True


def _plain(template: ChatTemplate, turns: Sequence[Turn], *, generation_prompt: bool = False) -> str | None:
    sample = Sample(tuple(turns))
    try:
        return template.render(messages(sample, pieces(sample), form=template.form), generation_prompt=generation_prompt)
    except Refused:
        return None


def _prefix_stable(template: ChatTemplate) -> bool:
    turns = (_ASKED, _ANSWERED, _AGAIN, _SECOND)
    whole = _plain(template, turns)
    heads = [_plain(template, turns[:count]) for count in (2, 3)]
    return whole is not None and all(head is not None and whole.startswith(head.rstrip()) for head in heads)


def _grows(template: ChatTemplate) -> bool:
    turns = (_ASKED, _ANSWERED, _AGAIN, _SECOND)
    whole = _plain(template, turns)
    heads = [_plain(template, turns[:count], generation_prompt=True) for count in (1, 3)]
    return whole is not None and all(head is not None and whole.startswith(head) for head in heads)


def _system(template: ChatTemplate) -> tuple[str, str]:
    given, none = _plain(template, (_SYSTEM, _ASKED, _ANSWERED)), _plain(template, (_ASKED, _ANSWERED))
    if given is None or none is None or _SYSTEM.text not in given:
        return "refused", ""
    before, after = given.split(_SYSTEM.text, 1)
    end = after[: after.find(_ASKED.text)]
    header = none[: none.find(_ASKED.text)]
    if header.startswith(before) and header.endswith(end) and len(header) > len(before) + len(end):
        return "injected", header[len(before) : len(header) - len(end)]
    return "rendered", ""


def _trims(template: ChatTemplate) -> bool:
    spaced = "  It is Lima.  "
    text = _plain(template, (_ASKED, turn(ASSISTANT, spaced)))
    return text is not None and spaced not in text


def _thinking(template: ChatTemplate) -> str:
    answered = Turn(ASSISTANT, (_THOUGHT, Region(TEXT, _ANSWERED.text)))
    last = _plain(template, (_ASKED, answered))
    if last is None or _THOUGHT.text not in last:
        return "not rendered"
    history = _plain(template, (_ASKED, answered, _AGAIN, _SECOND))
    return "kept" if history is not None and _THOUGHT.text in history else "kept in the last turn"


def _tools(template: ChatTemplate) -> bool:
    turns = (_ASKED, Turn(ASSISTANT, (_CALL,)), turn(TOOL, "Lima"), _ANSWERED)
    sample = Sample(turns, (_TOOL,))
    try:
        text = render(sample, template).text
    except Refused:
        return False
    return "The capital of a country." in text and text.count("capital_of") > 1
