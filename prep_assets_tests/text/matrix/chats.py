"""The kinds of chat of the matrix, as messages in the common form and as samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prep_assets.samples import ASSISTANT, IMAGE, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn

Message = dict[str, Any]

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "capital_of",
        "description": "Names the capital.",
        "parameters": {
            "type": "object",
            "properties": {"country": {"type": "string", "description": "Its English name."}},
            "required": ["country"],
        },
    },
}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def says(text: str, thought: str = "") -> Message:
    return {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {})}


def calls(*countries: str, text: str = "", thought: str = "") -> Message:
    made = [
        {"type": "function", "id": _id(country), "function": {"name": "capital_of", "arguments": {"country": country}}}
        for country in countries
    ]
    return {**says(text, thought), "tool_calls": made}


def result(country: str, text: str) -> Message:
    return {"role": "tool", "name": "capital_of", "tool_call_id": _id(country), "content": text}


def _id(country: str) -> str:
    return f"call{country:x>5.5}"


SYSTEM: Message = {"role": "system", "content": "Answer in few words."}
Q1, A1 = user("Where is Lima?"), says("In Peru.")
Q2, A2 = user("And Quito?"), says("In Ecuador.")
Q3, A3 = user("And Sucre?"), says("In Bolivia.")
T1, T2 = says("In Peru.", "A coast."), says("In Ecuador.", "The Andes.")
ASK = user("Which is the capital?")
PERU, CHILE = result("Peru", "Lima it is"), result("Chile", "Santiago it is")
TOLD = says("As the tool says.")


@dataclass(frozen=True)
class Kind:
    """A kind of chat.

    Attributes:
        messages: in the common form; empty where no message can say it.
        sample: the same as a sample.
    """

    messages: tuple[Message, ...]
    sample: Sample
    tools: tuple[Mapping[str, Any], ...] = ()


def kind(*messages: Message, tools: bool = False) -> Kind:
    offered = (TOOL,) if tools else ()
    return Kind(messages, Sample(tuple(_turn(message) for message in messages), offered), offered)


def _turn(message: Message) -> Turn:
    regions = [Region(THINKING, message["reasoning_content"])] if "reasoning_content" in message else []
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    regions += [
        Region(IMAGE, "a.png") if part["type"] == "image" else Region(TEXT, part["text"]) for part in parts if part.get("text") != ""
    ]
    for call in message.get("tool_calls", ()):
        regions.append(Region(TOOL_CALL, json.dumps({**call["function"], "id": call["id"]})))
    return Turn(message["role"], tuple(regions), message.get("name"), message.get("tool_call_id"))


def _mixed(*regions: Region, tools: bool) -> Kind:
    """A turn whose parts stand in an order that a message cannot say."""
    rest = kind(Q1, A1, tools=tools)
    turns = (rest.sample.turns[0], Turn(ASSISTANT, regions))
    return Kind((), Sample(turns, rest.tools), rest.tools)


def _picture(*parts: str) -> Message:
    return {"role": "user", "content": [{"type": "image"} if part == "IMAGE" else {"type": "text", "text": part} for part in parts]}


_CALL = Region(TOOL_CALL, json.dumps({"name": "capital_of", "arguments": {"country": "Peru"}, "id": _id("Peru")}))

KINDS: Mapping[str, Kind] = {
    "plain": kind(Q1, A1),
    "system": kind(SYSTEM, Q1, A1),
    "two systems": kind(SYSTEM, Q1, A1, {"role": "system", "content": "Now in Spanish."}, Q2, A2),
    "multi": kind(Q1, A1, Q2, A2, Q3, A3),
    "think": kind(Q1, T1),
    "think-multi": kind(Q1, T1, Q2, T2),
    "tool": kind(ASK, calls("Peru"), PERU, TOLD, tools=True),
    "text+call": kind(ASK, calls("Peru", text="I look."), PERU, TOLD, tools=True),
    "parallel": kind(ASK, calls("Peru", "Chile"), PERU, CHILE, TOLD, tools=True),
    "tool+think": kind(ASK, calls("Peru", thought="A tool."), PERU, says("As the tool says.", "So it is."), tools=True),
    "steps": kind(ASK, calls("Peru"), PERU, calls("Chile"), CHILE, TOLD, tools=True),
    "rounds": kind(ASK, calls("Peru"), PERU, TOLD, Q2, calls("Chile"), CHILE, A2, tools=True),
    "think-rounds": kind(
        ASK,
        calls("Peru", thought="A tool."),
        PERU,
        says("As it says.", "So it is."),
        Q2,
        calls("Chile", thought="Again."),
        CHILE,
        T2,
        tools=True,
    ),
    "tool, none listed": kind(ASK, calls("Peru"), PERU, TOLD),
    "parallel, none listed": kind(ASK, calls("Peru", "Chile"), PERU, CHILE, TOLD),
    "rounds, none listed": kind(ASK, calls("Peru"), PERU, TOLD, Q2, calls("Chile"), CHILE, A2),
    "call last": kind(ASK, calls("Peru"), tools=True),
    "tools unused": kind(Q1, A1, tools=True),
    "text, call, text": _mixed(Region(TEXT, "I look."), _CALL, Region(TEXT, "Please wait."), tools=True),
    "thought, text, thought, text": _mixed(
        Region(THINKING, "A coast."), Region(TEXT, "In Peru."), Region(THINKING, "The sea."), Region(TEXT, "By the sea."), tools=False
    ),
    "image": kind(_picture("IMAGE", "What is it?"), A1),
    "text, image, text": kind(_picture("Look:", "IMAGE", "What is it?"), A1, Q2, A2),
}
