"""What a certificate says of a chat template, found a second time from renders of other chats by other code."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.derive import MaskOptions, derive, pattern
from prep_assets.proofs.rebuilt import TAGS, render_again, slotted
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

_RULE, _WHO, _KIM, _WHERE, _SEA = "Sail by night.", "Who sails tonight?", "Kim sails.", "Where to?", "Out to sea."
_THOUGHT = "The crew is ill."
_ASKED, _TOLD, _AGAIN, _LAST = turn(USER, _WHO), turn(ASSISTANT, _KIM), turn(USER, _WHERE), turn(ASSISTANT, _SEA)
_THINKS = Turn(ASSISTANT, (Region(THINKING, _THOUGHT), Region(TEXT, _KIM)))
_SPACED = "  Kim sails.  "
_PORT = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
_TOOLS = ({"type": "function", "function": {"name": "tide_at", "description": "The tide of a port.", "parameters": _PORT}},)


_REASONINGS = ("reasoning_content", "thinking", "reasoning", "thought")


def _call(port: str, number: int) -> Region:
    return Region(TOOL_CALL, json.dumps({"id": f"call0000{number}", "name": "tide_at", "arguments": {"port": port}}))


_CALLAO, _ARICA, _REASON = _call("Callao", 1), _call("Arica", 2), Region(THINKING, _THOUGHT)
_CALL, _NEXT = Turn(ASSISTANT, (_CALLAO,)), Turn(ASSISTANT, (_ARICA,))
_HIGH, _LOW = (Turn(TOOL, (Region(TEXT, tide),), "tide_at", f"call0000{number}") for tide, number in (("High", 1), ("Low", 2)))
_CHATS: Mapping[str, Sample] = {
    "plain": Sample((_ASKED, _TOLD)),
    "system": Sample((turn(SYSTEM, _RULE), _ASKED, _TOLD)),
    "several rounds": Sample((_ASKED, _TOLD, _AGAIN, _LAST)),
    "white space": Sample((turn(USER, f" {_WHO} \n"), turn(ASSISTANT, f"\n {_KIM} \n"))),
    "reasoning": Sample((_ASKED, _THINKS)),
    "reasoning in several rounds": Sample((_ASKED, _THINKS, _AGAIN, Turn(ASSISTANT, (Region(THINKING, "So is Kim."), *_LAST.regions)))),
    "tool call": Sample((_ASKED, _CALL, _HIGH, _TOLD), _TOOLS),
    "text and tool call": Sample((_ASKED, Turn(ASSISTANT, (Region(TEXT, "I ask."), _CALLAO)), _HIGH, _TOLD), _TOOLS),
    "parallel tool calls": Sample((_ASKED, Turn(ASSISTANT, (_CALLAO, _ARICA)), _HIGH, _LOW, _TOLD), _TOOLS),
    "reasoning and tool call": Sample((_ASKED, Turn(ASSISTANT, (_REASON, _CALLAO)), _HIGH, _TOLD), _TOOLS),
    "tool calls in steps": Sample((_ASKED, _CALL, _HIGH, _NEXT, _LOW, _TOLD), _TOOLS),
    "tool call at the end": Sample((_ASKED, _CALL), _TOOLS),
    "tools unused": Sample((_ASKED, _TOLD), _TOOLS),
}
"""A chat of each kind that a certificate judges."""


def certified(template: ChatTemplate) -> dict[str, Any]:
    """Return what a certificate must say of a template that renders a question and its answer, by field."""

    def render(*turns: Turn, prompted: bool = False, tools: tuple[Mapping[str, Any], ...] = ()) -> str | None:
        try:
            return render_again(Sample(turns, tools), template, prompted=prompted)
        except CheckFailed:
            return None

    def begins(whole: str | None, part: str | None) -> bool:
        return whole is not None and part is not None and whole.startswith(part)

    def shows(whole: str | None, part: str) -> bool:
        return whole is not None and part in whole

    talk = (_ASKED, _TOLD, _AGAIN, _LAST)
    whole, parts = render(*talk), [render(*talk[:count]) for count in (3, 2)]
    asked, told, prompted = render(_ASKED), render(_ASKED, _TOLD), render(_ASKED, prompted=True)
    thought, later = render(_ASKED, _THINKS), render(_ASKED, _THINKS, _AGAIN, _LAST)
    called = render(_ASKED, _CALL, turn(TOOL, _SEA), _TOLD, tools=_TOOLS) or ""
    by_code = [] if template.renderer is None else [*template.renderer.proofs]
    tags = not by_code and TAGS.search(template.training or template.source) is not None
    system, default = _system(render(turn(SYSTEM, _RULE), _ASKED, _TOLD), told)
    trimmed = render(_ASKED, turn(ASSISTANT, _SPACED))
    return {
        "renders": told is not None,
        "stop_token": _ending(template, (whole or "").rpartition(_SEA)[2]),
        "begins_with": _first_control(template, told or ""),
        "generation_tags": tags,
        "proofs": [
            "offsets of one render",
            "the render built anew",
            "decoding of trained tokens",
            *(["generation tags"] if tags else by_code),
        ],
        "generation_prompt": prompted[len(asked) :] if asked is not None and prompted is not None and prompted.startswith(asked) else "",
        "prefix_stable": all(part is not None and begins(whole, part.rstrip()) for part in parts),
        "grows": all(begins(whole, render(*talk[:count], prompted=True)) for count in (1, 3)),
        "system": system,
        "default_system": default,
        "alternation": render(_ASKED, _AGAIN) is None,
        "trims": trimmed is not None and _SPACED not in trimmed,
        "thinking": "not rendered" if not shows(thought, _THOUGHT) else "kept" if shows(later, _THOUGHT) else "kept in the last turn",
        "tools": "rendered" if "The tide of a port." in called and called.count("tide_at") > 1 else "not rendered",
    }


def ends_answers_alone(template: ChatTemplate, stop: str) -> bool:
    """Return whether a token ends answers and stands nowhere inside of one, as behind its reasoning or between its calls."""
    for answer, said, tools in ((_THINKS, _THOUGHT, ()), (_CALL, "tide_at", _TOOLS)):
        with suppress(CheckFailed):
            _, is_shown, behind = render_again(Sample((_ASKED, answer), tools), template).rpartition(said)
            if is_shown and behind.count(stop) > 1:
                return False
    return True


def writes_unserved(template: ChatTemplate) -> bool:
    """Return whether a chat of four turns has an answer behind a prompt that no server sends."""
    try:
        return bool(derive(Sample((_ASKED, _TOLD, _AGAIN, _LAST)), MaskOptions(), template, prompts=True).unserved)
    except CheckFailed:
        return False


def _first_control(template: ChatTemplate, text: str) -> str:
    """Return the longest control token that a text begins with; ``""`` for none."""
    return max((token for token in template.control if text.startswith(token)), key=len, default="")


def _ending(template: ChatTemplate, text: str) -> str:
    """Return the control token that ends an answer: the first behind it, or the last of what code writes there."""
    if template.renderer is None:
        return _first_control(template, text.lstrip())
    return next(reversed(pattern(template).findall(text)), "")


def _system(with_rule: str | None, without: str | None) -> tuple[str, str]:
    """Return what becomes of system turns, and the text of one that the template adds by itself."""
    if with_rule is None or without is None or _RULE not in with_rule:
        return "refused", ""
    before, _, rest = with_rule.partition(_RULE)
    after, header = rest.partition(_WHO)[0], without.partition(_WHO)[0]
    own = header.removeprefix(before).removesuffix(after)
    return ("injected", own) if own and header == before + own + after else ("rendered", "")


def _judged(sample: Sample, template: ChatTemplate) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Return how what a certificate says of a chat may begin, and kind and stop of each answer, as far as a second derivation of the mask shows both."""
    text, derived = _text_again(sample, template), None
    if template.renderer is not None and text != _first_text(sample, template):
        return ("renderers_differ:",), []
    if text is None:
        return ("template_refuses:",), []
    with suppress(CheckFailed):
        derived = derive(sample, MaskOptions(), template, prompts=True)
    lost = {kind for kind, said in _said(sample) if said not in text}
    # a template may leave reasoning out of history, and tools that are never called
    drops = ("template_drops_content:",) if lost - {"tools"} else ()
    if lost - {"history"}:
        return (*drops, *(("template_drops_tools:",) if "tools" in lost else ())), []
    if derived is None:
        return (*drops, "template_reorders_content:", "no_stop_token:"), []
    answers = [(number, turn.regions[-1].kind) for number, turn in enumerate(sample.turns) if turn.role == ASSISTANT]
    last = len(sample.turns) - 1
    stops = [
        ("tool call" if kind == TOOL_CALL else "last answer" if number == last else "earlier answer", stretch.stop, number)
        for (number, kind), stretch in zip(answers, derived.expected, strict=True)
    ]
    unstopped = [f"no_stop_token: no control token ends turn {number}" for _, stop, number in stops if not stop]
    unserved = [f"unserved_prompt: turn {number} " for number in derived.unserved]
    return (*drops, (*unstopped, *unserved, "right")[0]), [(kind, stop) for kind, stop, _ in stops if stop]


def _text_again(sample: Sample, template: ChatTemplate) -> str | None:
    try:
        return render_again(sample, template)
    except CheckFailed:
        return None


def _first_text(sample: Sample, template: ChatTemplate) -> str | None:
    """Return the render of a chat by the first of two implementations of a format; `None` where it refuses the chat."""
    try:
        return template.render(slotted(sample, template.form, template.marks)[0], tools=sample.tools)
    except Refused:
        return None


def _said(sample: Sample) -> Iterator[tuple[str, str]]:
    """Yield the words of a chat, each with its kind: ``history`` for reasoning before the last turn."""
    for each in sample.turns:
        for region in each.regions:
            call = json.loads(region.text) if region.kind == TOOL_CALL else {}
            kind = "history" if region.kind == THINKING and each is not sample.turns[-1] else region.kind
            yield from ((kind, said) for said in ([call["name"], *call["arguments"].values()] if call else [region.text.strip()]))
    yield from (("tools", tool["function"][name]) for tool in sample.tools for name in ("name", "description"))


def _kinds_fault(certificate: Mapping[str, Any], template: ChatTemplate) -> str:
    """Return what a certificate says wrongly of kinds of chats, or of the tokens that end answers; ``""`` where it is right."""
    chats, ends = certificate["chats"], defaultdict[str, set[str]](set)
    if [*chats] != [*_CHATS]:
        return f"the certificate judges the kinds of chats {[*chats]}, and must judge {[*_CHATS]}"
    for kind, sample in _CHATS.items():
        may, stops = _judged(sample, template)
        if not chats[kind].startswith(may):
            return f"the certificate says {chats[kind]!r} of {kind}; renders of such a chat show {' or '.join(may)!r}"
        for answer, stop in stops:
            ends[answer].add(stop)
    if certificate["stops"] != (expected := {answer: " or ".join(sorted(stops)) for answer, stops in ends.items()}):
        return f"the certificate says that answers end with {certificate['stops']}, and renders show {expected}"
    return ""


_DOCUMENT = dict.fromkeys(("title", "text", "content"), "A log of the harbour.")


def form_again(template: ChatTemplate) -> dict[str, Any]:
    """Return the form of messages that shows most of a chat, by field: of equal ones the first of those that templates read, the most common first."""

    def rendered(sample: Sample, **fields: Any) -> str:
        with suppress(CheckFailed):
            return render_again(sample, template, form=replace(template.form, **fields))
        return ""

    def shows_call(text: str) -> bool:  # behind the tools on offer, and not as Python writes a mapping
        return "tide_at" in text.rpartition("The tide of a port.")[2] and "Callao" in text and "{'port'" not in text

    talks = {kind: rendered(_CHATS["plain"], content=kind) for kind in ("text", "parts")}
    written = [kind for kind, text in talks.items() if _KIM in text and not re.search("""["']type["']: ["']text""", text)]
    thinks = [key for key in _REASONINGS if _THOUGHT in rendered(_CHATS["reasoning"], reasoning=key)]
    asks = Sample((_ASKED, _CALL), _TOOLS)
    forms = [
        (arguments, empty)
        for arguments, empty in product(("mapping", "text"), ("text", "null", "absent"))
        if shows_call(rendered(asks, arguments=arguments, no_content=empty))
    ]
    arguments, empty = [*forms, ("mapping", "text")][0]
    return {
        "content": [*written, *talks][0],
        "reasoning": [*thinks, _REASONINGS[0]][0],
        "shows_reasoning": bool(thinks),
        "arguments": arguments,
        "no_content": empty,
        "shows_calls": bool(forms),
        "shows_documents": "A log of the harbour." in rendered(Sample((_ASKED, _TOLD), documents=(_DOCUMENT,))),
    }


def _findings_fault(certificate: Mapping[str, Any], template: ChatTemplate, special: Mapping[str, str], own: Iterable[ChatTemplate]) -> str:
    """Return what findings say wrongly of the token that ends answers, or of those that the tokenizer's own templates never write."""
    stop, eos, findings = certificate["stop_token"], special.get("eos_token", ""), certificate["findings"]
    if any("a server that stops at eos_token only never stops" in each for each in findings) != (stop not in ("", eos)):
        return f"answers end with {stop!r} and the eos_token is {eos!r}, and the findings are {findings}"
    known = {special.get("bos_token"), eos}.union(*(_written(each, template.control) for each in own))
    untrained = [] if template.renderer is not None else sorted(_written(template, template.control) - known)
    said = [each for each in findings if "Their embeddings may be untrained" in each]
    more = f" and {len(untrained) - _MOST_LISTED} more" if len(untrained) > _MOST_LISTED else ""
    listed = f": {', '.join(map(repr, untrained[:_MOST_LISTED]))}{more}. Their"
    if len(said) != bool(untrained) or not all(listed in each for each in said):
        return f"the tokens that may be untrained are {', '.join(untrained)}, and the findings are {findings}"
    return ""


def _written(template: ChatTemplate, tokens: Iterable[str]) -> set[str]:
    """Return the tokens in the source of a template, and in its renders of chats without a system turn."""
    texts = [template.source]
    for kind, sample in _CHATS.items():
        with suppress(CheckFailed):
            texts.append("" if kind == "system" else render_again(sample, template))
    return {token for token in tokens if any(token in text for text in texts)}


_MOST_LISTED = 8


def check_certificate(
    certificate: Mapping[str, Any], template: ChatTemplate, *, special: Mapping[str, str] | None = None, own: Iterable[ChatTemplate] = ()
) -> Verdict:
    """Compare a stored certificate with what renders of other chats show.

    Args:
        special: names of the tokenizer's special tokens → their texts, where the findings are about it.
        own: its own templates.
    """
    expected, form, used = certified(template), form_again(template), asdict(template.form)
    numbers = {"facts_checked": len(expected) + len(form)}
    faults = [f"{name} of messages is {used[name]!r}, and should be {value!r}" for name, value in form.items() if used[name] != value]
    faults += [
        f"{name} is {certificate.get(name)!r} in the certificate, renders show {value!r}"
        for name, value in expected.items()
        if certificate.get(name) != value
    ]
    if special is not None and (fault := _findings_fault(certificate, template, special, own)):
        faults.append(fault)
    if problem := faults[0] if faults else _kinds_fault(certificate, template):
        return Verdict(False, problem, numbers, Worst("certificate.json", problem))
    return Verdict(True, f"{numbers['facts_checked']} facts about {template.name} are those that renders of other chats show", numbers)
