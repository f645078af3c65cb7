"""What a certificate says of a chat template, found a second time from renders of other chats by other code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.rebuilt import TAGS, render_again
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
_CALL = Turn(ASSISTANT, (Region(TOOL_CALL, json.dumps({"name": "tide_at", "arguments": {"port": "Callao"}})),))


KINDS: Mapping[str, tuple[int, ...]] = {
    "plain": (1,),
    "system": (2,),
    "several rounds": (1, 3),
    "white space": (1,),
    "reasoning": (1,),
    "reasoning in several rounds": (1, 3),
    "tool call": (1, 3),
    "text and tool call": (1, 3),
    "parallel tool calls": (1, 4),
    "reasoning and tool call": (1, 3),
    "tool calls in steps": (1, 3, 5),
    "tool call at the end": (1,),
    "tools unused": (1,),
}
"""The kinds of chats that a certificate judges → the turns of theirs that answer."""
_CHATS: Mapping[str, tuple[Turn, ...]] = {
    "plain": (_ASKED, _TOLD),
    "system": (turn(SYSTEM, _RULE), _ASKED, _TOLD),
    "several rounds": (_ASKED, _TOLD, _AGAIN, _LAST),
    "reasoning": (_ASKED, _THINKS),
}


def certified(template: ChatTemplate) -> dict[str, Any]:
    """Return what a certificate must say of a template that renders a question and its answer, by field."""

    def render(*turns: Turn, prompted: bool = False, tools: tuple[Mapping[str, Any], ...] = ()) -> str | None:
        try:
            return render_again(Sample(turns, tools), template, prompted=prompted)
        except CheckFailed:
            return None

    def begins(whole: str | None, part: str | None) -> bool:
        return whole is not None and part is not None and whole.startswith(part)

    talk = (_ASKED, _TOLD, _AGAIN, _LAST)
    whole, *parts = (render(*talk[:count]) for count in (4, 3, 2))
    asked, prompted = render(_ASKED), render(_ASKED, prompted=True)
    thought, later = render(_ASKED, _THINKS) or "", render(_ASKED, _THINKS, _AGAIN, _LAST) or ""
    called = render(_ASKED, _CALL, turn(TOOL, "High"), _TOLD, tools=_TOOLS) or ""
    system, default = _system(render(turn(SYSTEM, _RULE), _ASKED, _TOLD), render(_ASKED, _TOLD))
    trimmed = render(_ASKED, turn(ASSISTANT, _SPACED))
    return {
        "stop_token": _first_control(template, (whole or "").rpartition(_SEA)[2].lstrip()),
        "begins_with": _first_control(template, render(_ASKED, _TOLD) or ""),
        "generation_tags": TAGS.search(template.training or template.source) is not None,
        "generation_prompt": prompted[len(asked) :] if asked is not None and prompted is not None and prompted.startswith(asked) else "",
        "prefix_stable": all(part is not None and begins(whole, part.rstrip()) for part in parts),
        "grows": all(begins(whole, render(*talk[:count], prompted=True)) for count in (1, 3)),
        "system": system,
        "default_system": default,
        "alternation": render(_ASKED, _AGAIN) is None,
        "trims": trimmed is not None and _SPACED not in trimmed,
        "thinking": "not rendered" if _THOUGHT not in thought else "kept" if _THOUGHT in later else "kept in the last turn",
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


def _system(with_rule: str | None, without: str | None) -> tuple[str, str]:
    """Return what becomes of system turns, and the text of one that the template adds by itself."""
    if with_rule is None or without is None or _RULE not in with_rule:
        return "refused", ""
    before, _, rest = with_rule.partition(_RULE)
    after, header = rest.partition(_WHO)[0], without.partition(_WHO)[0]
    own = header.removeprefix(before).removesuffix(after)
    return ("injected", own) if own and header == before + own + after else ("rendered", "")


def _stops_fault(stops: Mapping[str, str], template: ChatTemplate) -> str:
    """Return what a certificate says wrongly of the tokens that end answers; ``""`` where a chat of two answers contradicts nothing."""
    try:
        text = render_again(Sample((_ASKED, _TOLD, _AGAIN, _LAST)), template)
    except CheckFailed:
        return ""
    for kind, answer in (("earlier answer", _KIM), ("last answer", _SEA)):
        stop, said = _first_control(template, text.rpartition(answer)[2].lstrip()), stops.get(kind, "")
        if stop and not any(each.startswith(stop) for each in said.split(" or ")):  # several tokens may end an answer
            return f"the certificate says that {kind}s end with {said or 'nothing'}, and transformers writes {stop!r}"
    return ""


def _kinds_fault(kinds: Mapping[str, str], template: ChatTemplate, stop: str) -> str:
    """Return what a certificate says wrongly of kinds of chats; ``""`` where renders contradict nothing."""
    if [*kinds] != [*KINDS]:
        return f"the certificate judges the kinds of chats {[*kinds]}, and must judge {[*KINDS]}"
    for kind, answers in KINDS.items():
        if (at := re.fullmatch(r"no_stop_token: no control token ends turn (\d+)", kinds[kind])) and int(at[1]) not in answers:
            return f"the certificate says {kinds[kind]!r} of {kind}, whose answers are the turns {[*answers]}"
    for kind, turns in _CHATS.items():
        said = kinds[kind].partition(":")[0]
        try:
            text = render_again(Sample(turns), template)
        except CheckFailed:
            if said == "right":
                return f"the certificate calls {kind} right, and transformers renders no such chat"
            continue
        shown = all(each.text in text for part in turns for each in part.regions if each.kind == TEXT)
        if said == "template_refuses" or (said == "no_stop_token" and stop and shown) or (said == "right" and not (stop and shown)):
            return f"the certificate says {kinds[kind]!r} of {kind}, which transformers renders {'with' if shown else 'without'} all texts: {text[-200:]!r}"
    return ""


def check_certificate(certificate: Mapping[str, Any], template: ChatTemplate) -> Verdict:
    """Compare a stored certificate with what renders of other chats show."""
    expected = certified(template)
    numbers = {"facts_checked": len(expected)}
    for name, value in expected.items():
        if certificate.get(name) != value:
            problem = f"{name} is {certificate.get(name)!r} in the certificate, renders show {value!r}"
            return Verdict(False, problem, numbers, Worst("certificate.json", problem))
    problem = _stops_fault(certificate["stops"], template) or _kinds_fault(certificate["chats"], template, str(expected["stop_token"]))
    if problem:
        return Verdict(False, problem, numbers, Worst("certificate.json", problem))
    return Verdict(True, f"{len(expected)} facts about {template.name} are those that renders of other chats show", numbers)
