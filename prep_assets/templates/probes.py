"""Kinds of chat that training data has: one small conversation each, to render with a template and look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn

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
