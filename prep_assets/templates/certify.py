"""Certification: what a chat template can be trusted with, for one tokenizer, found by rendering probes.

A policy that the template cannot support (stop tokens where it writes none, masks that cannot be proven) is refused before any data is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.templates.chat_template import ChatTemplate, marks_generated
from prep_assets.templates.conversation import messages, pieces
from prep_assets.templates.findings import findings
from prep_assets.templates.kinds import kinds
from prep_assets.templates.rendering import render
from prep_assets.tokenization.vocabulary import Vocabulary

_Q1, _A1 = turn(USER, "What is the capital of Peru?"), turn(ASSISTANT, "It is Lima.")
_Q2, _A2 = turn(USER, "And of Chile?"), turn(ASSISTANT, "It is Santiago.")
_SYSTEM = turn(SYSTEM, "You answer briefly.")
_THOUGHT = Region(THINKING, "Peru lies in South America.")
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
        plain = _text(template, _Q1, _A1)
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
        alternation=not _renders(template, _Q1, _Q2),
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
    turns = (_Q1, _A1, _Q2, _A2)
    whole = _plain(template, turns)
    heads = [_plain(template, turns[:count]) for count in (2, 3)]
    return whole is not None and all(head is not None and whole.startswith(head.rstrip()) for head in heads)


def _grows(template: ChatTemplate) -> bool:
    turns = (_Q1, _A1, _Q2, _A2)
    whole = _plain(template, turns)
    heads = [_plain(template, turns[:count], generation_prompt=True) for count in (1, 3)]
    return whole is not None and all(head is not None and whole.startswith(head) for head in heads)


def _system(template: ChatTemplate) -> tuple[str, str]:
    given, none = _plain(template, (_SYSTEM, _Q1, _A1)), _plain(template, (_Q1, _A1))
    if given is None or none is None or _SYSTEM.text not in given:
        return "refused", ""
    before, after = given.split(_SYSTEM.text, 1)
    end = after[: after.find(_Q1.text)]
    header = none[: none.find(_Q1.text)]
    if header.startswith(before) and header.endswith(end) and len(header) > len(before) + len(end):
        return "injected", header[len(before) : len(header) - len(end)]
    return "rendered", ""


def _trims(template: ChatTemplate) -> bool:
    spaced = "  It is Lima.  "
    text = _plain(template, (_Q1, turn(ASSISTANT, spaced)))
    return text is not None and spaced not in text


def _thinking(template: ChatTemplate) -> str:
    answered = Turn(ASSISTANT, (_THOUGHT, Region(TEXT, _A1.text)))
    last = _plain(template, (_Q1, answered))
    if last is None or _THOUGHT.text not in last:
        return "not rendered"
    history = _plain(template, (_Q1, answered, _Q2, _A2))
    return "kept" if history is not None and _THOUGHT.text in history else "kept in the last turn"


def _tools(template: ChatTemplate) -> bool:
    turns = (_Q1, Turn(ASSISTANT, (_CALL,)), turn(TOOL, "Lima"), _A1)
    sample = Sample(turns, (_TOOL,))
    try:
        text = render(sample, template).text
    except Refused:
        return False
    return "The capital of a country." in text and text.count("capital_of") > 1
