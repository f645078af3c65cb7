"""The certificate of a chat template: what it can be trusted with, for one tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.conversation import messages, pieces
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render, unserved_prompts
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate, common_length, marks_generated
from prep_assets.text.vocabulary import Vocabulary

# Probes: a small conversation for each kind of chat in training data.

_QUESTION, _ANSWER = turn(USER, "What is the capital of Peru?"), turn(ASSISTANT, "It is Lima.")
_SECOND_QUESTION, _SECOND_ANSWER = turn(USER, "And of Chile?"), turn(ASSISTANT, "It is Santiago.")
_REASONING, _SECOND_REASONING = Region(THINKING, "Peru lies in South America."), Region(THINKING, "So does Chile.")
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


def _call_region(country: str, number: int) -> Region:
    return Region(TOOL_CALL, f'{{"id":"call0000{number}","name":"capital_of","arguments":{{"country":"{country}"}}}}')


_PERU, _CHILE = _call_region("Peru", 1), _call_region("Chile", 2)
_LIMA, _SANTIAGO = (Turn(TOOL, (Region(TEXT, text),), "capital_of", f"call0000{n}") for text, n in (("Lima", 1), ("Santiago", 2)))
_PERU_TURN, _CHILE_TURN = Turn(ASSISTANT, (_PERU,)), Turn(ASSISTANT, (_CHILE,))
_BOTH_QUESTION, _BOTH_ANSWER = turn(USER, "What are the capitals of Peru and Chile?"), turn(ASSISTANT, "Lima and Santiago.")
_SYSTEM, _REASONED_ANSWER = turn(SYSTEM, "You answer briefly."), Turn(ASSISTANT, (_REASONING, *_ANSWER.regions))

PROBES: Mapping[str, Sample] = {
    "plain": Sample((_QUESTION, _ANSWER)),
    "system": Sample((_SYSTEM, _QUESTION, _ANSWER)),
    "several rounds": Sample((_QUESTION, _ANSWER, _SECOND_QUESTION, _SECOND_ANSWER)),
    "white space": Sample((turn(USER, " What is the capital of Peru? \n"), turn(ASSISTANT, "\n It is Lima. \n"))),
    "reasoning": Sample((_QUESTION, _REASONED_ANSWER)),
    "reasoning in several rounds": Sample(
        (_QUESTION, _REASONED_ANSWER, _SECOND_QUESTION, Turn(ASSISTANT, (_SECOND_REASONING, *_SECOND_ANSWER.regions)))
    ),
    "tool call": Sample((_QUESTION, _PERU_TURN, _LIMA, _ANSWER), _TOOLS),
    "text and tool call": Sample((_QUESTION, Turn(ASSISTANT, (Region(TEXT, "I look it up."), _PERU)), _LIMA, _ANSWER), _TOOLS),
    "parallel tool calls": Sample((_BOTH_QUESTION, Turn(ASSISTANT, (_PERU, _CHILE)), _LIMA, _SANTIAGO, _BOTH_ANSWER), _TOOLS),
    "reasoning and tool call": Sample((_QUESTION, Turn(ASSISTANT, (_REASONING, _PERU)), _LIMA, _ANSWER), _TOOLS),
    "tool calls in steps": Sample((_BOTH_QUESTION, _PERU_TURN, _LIMA, _CHILE_TURN, _SANTIAGO, _BOTH_ANSWER), _TOOLS),
    "tool call at the end": Sample((_QUESTION, _PERU_TURN), _TOOLS),
    "tools unused": Sample((_QUESTION, _ANSWER), _TOOLS),
}


# Findings of a certificate: not faults, but facts that people who serve the model have to know.

_MOST_SHOWN = 8
CONTEXT = 30
"""Characters to show before and after the first difference."""


def findings(template: ChatTemplate, vocabulary: Vocabulary) -> Iterator[str]:
    """Yield findings about a template and a tokenizer as sentences."""
    stop, eos = template.stop_token, vocabulary.special.get("eos_token")
    if stop and stop != eos:
        yield (
            f"answers end with {stop!r}, and the tokenizer's eos_token is {eos!r}: a server that stops at eos_token only never stops. Serve "
            "the model with both as stop tokens"
        )
    if template.renderer is not None:  # its tokens are the format's, and the tokenizer has each of them
        return
    # control tokens that the template of the base model does not write may have untrained embeddings
    names = {vocabulary.special.get(name) for name in ("bos_token", "eos_token")}
    templates = [load_template(f"tokenizer:{name}", vocabulary) for name in ([""] if vocabulary.chat_template else vocabulary.templates)]
    base_tokens = {text for base in templates for text in base.writes(template.control)}
    untrained = sorted(set(template.writes(template.control)) - names - base_tokens)
    if untrained:
        why = "the tokenizer's own template never writes" if base_tokens else "the tokenizer has no template of its own that writes"
        more = f" and {len(untrained) - _MOST_SHOWN} more" if len(untrained) > _MOST_SHOWN else ""
        yield (
            f"control tokens that {why}: {', '.join(map(repr, untrained[:_MOST_SHOWN]))}{more}. Their embeddings may be untrained: train embeddings "
            "and the output layer as well, or use the model's own template"
        )


# How a template renders each kind of chat, and which tokens end its answers and tool calls.

RIGHT = "right"


def kinds(template: ChatTemplate) -> tuple[dict[str, str], dict[str, str]]:
    """Kind of chat → ``right``, or why such rows are rejected or not served as they are trained; and kind of turn → the stops that end it, if any.

    Rows of rejected kinds are left out of a build; the other kinds are built.
    """
    chats: dict[str, str] = {}
    stops: dict[str, set[str]] = {"last answer": set(), "earlier answer": set(), "tool call": set()}
    for kind, sample in PROBES.items():
        rendered = try_render(template, sample)
        if isinstance(rendered, Refused):
            chats[kind] = f"{rendered.reason}: {rendered.detail}"
            continue
        stopped_turns = {stop.turn for stop in rendered.stops}
        unstopped_turns = [span.turn for span in rendered.spans if span.role == ASSISTANT and span.turn not in stopped_turns]
        unstopped = f"no_stop_token: no control token ends turn {unstopped_turns[0]}" if unstopped_turns else ""
        chats[kind] = _other_render(template, sample, rendered) or unstopped or _unserved_prompt(template, sample, rendered) or RIGHT
        for kind_of_turn, text, _ in stopped_answers(rendered):
            stops[kind_of_turn].add(text)
    return chats, {kind_of_turn: " or ".join(sorted(texts)) for kind_of_turn, texts in stops.items() if texts}


def _other_render(template: ChatTemplate, sample: Sample, rendered: Rendered) -> str:
    """A message about what the second implementation of a format writes otherwise; ``""`` if nothing."""
    if template.renderer is None:
        return ""
    listed = messages(sample, pieces(sample, form=template.form), form=template.form)
    try:
        other = template.renderer.render_again(listed, list(sample.tools), template.options, prompted=False)
    except Exception as error:  # the code of others may raise anything
        return f"renderers_differ: the second implementation refuses such a chat: {type(error).__name__}: {str(error)[:200]}"
    if other == rendered.text:
        return ""
    at = common_length(rendered.text, other)
    shown = [repr(text[max(0, at - CONTEXT) : at + CONTEXT]) for text in (rendered.text, other)]
    return f"renderers_differ: one implementation writes {shown[0]}, the other {shown[1]}"


def _unserved_prompt(template: ChatTemplate, sample: Sample, rendered: Rendered) -> str:
    """A message about the first answer that stands behind another prompt than a server gives the model; ``""`` if there is none."""
    for turn, prompt, whole in unserved_prompts(sample, rendered, template, MaskPolicy()):
        at = common_length(prompt, whole)
        return (
            f"unserved_prompt: turn {turn} is trained behind {whole[max(0, at - CONTEXT) : at]!r}, where a server's prompt goes on with "
            f"{prompt[at : at + CONTEXT]!r}. Take a template that writes this into history too, such as the training variant of its model, or "
            "expand: turns"
        )
    return ""


def unserved(template: ChatTemplate) -> bool:
    """Whether the template writes chats of some kind with an answer behind a prompt that no server sends."""
    renders = ((sample, rendered) for sample in PROBES.values() if isinstance(rendered := try_render(template, sample), Rendered))
    return any(True for sample, rendered in renders for _ in unserved_prompts(sample, rendered, template, MaskPolicy()))


def try_render(template: ChatTemplate, sample: Sample, *, prompt: bool = False) -> Rendered | Refused:
    """Return the render of a chat, or why the template refuses it."""
    try:
        return render(sample, template, generation_prompt=prompt)
    except Refused as rejection:
        return rejection.with_traceback(None)  # else it holds what the frames hold, itself among it


def stopped_answers(rendered: Rendered) -> Iterator[tuple[str, str, str]]:
    """For each assistant's turn with a stop: the kind of stop, its text, and the text generated before it."""
    last = max(span.turn for span in rendered.spans)
    for stop in rendered.stops:
        spans = [span for span in rendered.spans if span.turn == stop.turn and span.role == ASSISTANT]
        if spans:
            kind = "tool call" if spans[-1].region.kind == TOOL_CALL else "last answer" if stop.turn == last else "earlier answer"
            generated = rendered.text[min(span.start for span in spans) : min(stop.start, max(span.end for span in spans))]
            yield kind, rendered.text[stop.start : stop.end], generated


# Certification: what a chat template can be trusted with, for one tokenizer, found by rendering probes.
#
# A policy that the template cannot support (stop tokens that it does not write, masks that cannot be proven) is an error before any data is read.

_BARE_CALL = Turn(ASSISTANT, (Region(TOOL_CALL, '{"name": "capital_of", "arguments": {"country": "Peru"}}'),))
_WITH_TOOL = Sample((_QUESTION, _BARE_CALL, turn(TOOL, "Lima"), _ANSWER), _TOOLS)
"""A call without an id, as in most data sets."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How a template renders conversations.

    Attributes:
        template: its name.
        renders: whether a plain question and answer renders with spans; if not, the other fields are empty.
        reason: why it does not.
        stop_token: the control token that ends an assistant's turn, ``""`` if there is none.
        generation_prompt: what it writes before an answer to generate.
        begins_with: the control token that every conversation begins with, ``""`` if there is none.
        prefix_stable: whether the render of the first turns is a prefix of the render of more turns.
        grows: whether a render with the generation prompt is a prefix of the render with the answer.
        system: ``rendered``, ``injected`` (rendered, with a default if there is none) or ``refused``.
        default_system: the injected text.
        alternation: whether it rejects two user turns in a row.
        trims: whether it strips white space from the ends of contents.
        thinking: ``kept``, ``kept in the last turn`` or ``not rendered``.
        tools: ``rendered`` if schemas, calls and results all appear, or ``not rendered``.
        generation_tags: whether it, or its training variant, marks generated text for transformers.
        proofs: derivations of the mask that it allows.
        stops: what ends the last answer, earlier answers and tool calls, if anything.
        chats: kind of chat → ``right``, or why rows of that kind are rejected, or trained behind a prompt that no server sends.
        findings: facts that those who train or serve the model have to know, as sentences.
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


def policy_faults(template: ChatTemplate, *, train_on_eos: str, train_headers: bool) -> list[str]:
    """Why a template cannot support a policy; empty if it can. Renders no more probes than it takes to tell."""
    if isinstance(short := try_render(template, PROBES["plain"]), Refused):
        return [f"template {template.name} cannot render a plain question and answer with the span of each: {short}"]
    faults = _implementation_faults(template)
    renders = (rendered for sample in PROBES.values() if isinstance(rendered := try_render(template, sample), Rendered))
    if train_on_eos != "none" and not any(True for rendered in renders for _ in stopped_answers(rendered)):
        faults.append(
            f"train_on_eos is {train_on_eos!r}, but template {template.name} ends an assistant's turn with no control token of this "
            "tokenizer, so that the model would never learn to stop. Use a template that fits the tokenizer, or train_on_eos: none"
        )
    if train_headers and not template.generation_prompt:
        faults.append(f"train_headers needs a template that writes something before an answer is generated; {template.name} writes nothing")
    if train_headers and not _is_prefix_stable(template):
        faults.append(f"train_headers needs a template whose renders grow by turns; those of {template.name} do not")
    return faults


def _implementation_faults(template: ChatTemplate) -> list[str]:
    """What two implementations of a format write otherwise of the probes: of these they are known to agree, so one of them is not what it was."""
    faults = []
    for kind, sample in PROBES.items() if template.renderer is not None else ():
        if isinstance(rendered := try_render(template, sample), Rendered) and (
            fault := _other_render(template, sample, rendered) or _other_marks(template, kind, sample, rendered)
        ):
            faults.append(f"template {template.name}, a chat of the kind {kind!r}: {fault}. Take versions of its packages that agree")
    return faults


def _other_marks(template: ChatTemplate, kind: str, sample: Sample, rendered: Rendered) -> str:
    """A message about a last answer that a format's code marks otherwise than it stands in the render; ``""`` if there is none."""
    assert template.renderer is not None
    listed = messages(sample, pieces(sample, form=template.form), form=template.form)
    try:
        marked = template.renderer.generated(listed, list(sample.tools), template.options, prompted=False)
    except Exception as error:  # the code of others may raise anything
        return f"its marks raise {type(error).__name__}: {str(error)[:200]}"
    if marked is None:
        return "its code marks nothing as generated" if template.renderer.marks and kind == "plain" else ""
    last = len(sample.turns) - 1
    starts, ends = [span.start for span in rendered.spans if span.turn == last], [stop.end for stop in rendered.stops if stop.turn == last]
    answers = sum(turn.role == ASSISTANT for turn in sample.turns)
    if not starts or not ends or (len(marked) == answers and marked[-1] == (min(starts), ends[0])):
        return ""
    shown = rendered.text[slice(*marked[-1])] if marked else ""
    return f"its code marks {shown!r} as generated, which is {rendered.text[min(starts) : ends[0]]!r}"


@bounded_cache("certificates", 16, key=lambda template, *to: (template.name, template.hash, template.control, *(each.hash for each in to)))
def certify(template: ChatTemplate, vocabulary: Vocabulary | None = None) -> Certificate:
    """Certify a template by rendering the probes. With `vocabulary`, the certificate has findings about the two."""
    short = try_render(template, PROBES["plain"])
    if isinstance(short, Refused):
        return Certificate(template.name, renders=False, reason=str(short))
    rounds = PROBES["several rounds"].turns
    whole, spaced_answer = _render_text(template, *rounds), "  It is Lima.  "
    prompted = [_render_text(template, *rounds[:count], generation_prompt=True) for count in (1, 3)]
    trimmed, with_tool = _render_text(template, _QUESTION, turn(ASSISTANT, spaced_answer)), try_render(template, _WITH_TOOL)
    has_tools = isinstance(with_tool, Rendered) and "The capital of a country." in with_tool.text and with_tool.text.count("capital_of") > 1
    (system, default), (chats, stops) = _system_support(template), kinds(template)
    tags = template.renderer is None and marks_generated(template.training or template.source)
    by_code = () if template.renderer is None else template.renderer.proofs
    return Certificate(
        template.name,
        renders=True,
        stop_token=template.stop_token,
        generation_prompt=template.generation_prompt,
        begins_with=template.first_control(short.text),
        prefix_stable=_is_prefix_stable(template),
        grows=whole is not None and all(prefix is not None and whole.startswith(prefix) for prefix in prompted),
        system=system,
        default_system=default,
        alternation=isinstance(try_render(template, Sample((_QUESTION, _SECOND_QUESTION))), Refused),
        trims=trimmed is not None and spaced_answer not in trimmed,
        thinking=_reasoning_support(template),
        tools="rendered" if has_tools else "not rendered",
        generation_tags=tags,
        proofs=(
            "offsets of one render",
            "the render built anew",
            "decoding of trained tokens",
            *(["generation tags"] if tags else by_code),
        ),
        stops=stops,
        chats=chats,
        findings=tuple(findings(template, vocabulary)) if vocabulary is not None else (),
    )


def _is_prefix_stable(template: ChatTemplate) -> bool:
    whole, *prefixes = (_render_text(template, *PROBES["several rounds"].turns[:count]) for count in (4, 2, 3))
    return whole is not None and all(prefix is not None and whole.startswith(prefix.rstrip()) for prefix in prefixes)


def _render_text(template: ChatTemplate, *turns: Turn, generation_prompt: bool = False) -> str | None:
    """The render of a conversation without spans; `None` if the template rejects it."""
    sample = Sample(turns)
    try:
        return template.render(messages(sample, pieces(sample), form=template.form), generation_prompt=generation_prompt)
    except Refused:
        return None


def _system_support(template: ChatTemplate) -> tuple[str, str]:
    with_system, without_system = _render_text(template, _SYSTEM, _QUESTION, _ANSWER), _render_text(template, _QUESTION, _ANSWER)
    if with_system is None or without_system is None or _SYSTEM.text not in with_system:
        return "refused", ""
    before, after = with_system.split(_SYSTEM.text, 1)
    end = after[: after.find(_QUESTION.text)]
    header = without_system[: without_system.find(_QUESTION.text)]
    if header.startswith(before) and header.endswith(end) and len(header) > len(before) + len(end):
        return "injected", header[len(before) : len(header) - len(end)]
    return "rendered", ""


def _reasoning_support(template: ChatTemplate) -> str:
    if _REASONING.text not in (_render_text(template, _QUESTION, _REASONED_ANSWER) or ""):
        return "not rendered"
    return (
        "kept"
        if _REASONING.text in (_render_text(template, _QUESTION, _REASONED_ANSWER, _SECOND_QUESTION, _SECOND_ANSWER) or "")
        else "kept in the last turn"
    )
