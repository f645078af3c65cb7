"""``moss``: moss-003 conversations, with or without plugins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.schemas.fields import as_mapping, needed, text_of, texts_of, value_at
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_answer
from prep_assets.schemas.tools import call_text

PARAMETERS = {"Search": "query", "Calculate": "expression", "Solve": "equation", "Text2Image": "description"}
_BETWEEN = r"\s*(?:[,，;；]\s*)?"
_COMMAND = re.compile(rf'({"|".join(PARAMETERS)})\("((?:[^"\\]|\\.)*)"\){_BETWEEN}', re.DOTALL)
_NO_COMMAND = re.compile(rf"None\b(?:\.\s*\Z)?{_BETWEEN}(?=\Z|{'|'.join(PARAMETERS)})")
NOTHING = "None"
"""What stands in a field that has nothing to say. A tool may well answer it."""

EXAMPLE = {
    "meta_instruction": "You are an AI assistant whose name is MOSS.\n",
    "chat": {
        "turn_1": {
            "Human": "<|Human|>: What is 12 * 12?<eoh>\n",
            "Inner Thoughts": "<|Inner Thoughts|>: I should calculate it.<eot>\n",
            "Commands": '<|Commands|>: Calculate("12*12")<eoc>\n',
            "Tool Responses": '<|Results|>:\nCalculate("12*12") => 144\n<eor>\n',
            "MOSS": "<|MOSS|>: It is 144.<eom>\n",
        }
    },
}


@schema("moss", gives=Sample, example=EXAMPLE, aliases=("MOSSMultiTurnHandler", "MOSSInstructionHandler"))
def moss(*, chat_key: str = "chat", system_key: str | None = None, plugins: bool = False) -> Convert:
    """The turns of a MOSS conversation: user, assistant, user, assistant …, freed of MOSS's own markers and stripped.

    Options:
        chat_key: field with the object of turns, which are taken in the order of the file.
        system_key: field with a system prompt, such as ``meta_instruction``; null for none, as in ModelLink.
        plugins: keep inner thoughts, commands and tool responses, as thinking, tool calls and tool turns. ModelLink leaves them out; without
            this option they are fields that are not read.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        turns: list[Turn] = []
        if system_key is not None:
            turns.append(turn(SYSTEM, needed(text_of(row, system_key), "empty_prompt", system_key).strip()))
        for name, exchange in as_mapping(value_at(row, chat_key), chat_key).items():
            if exchange:
                turns.extend(_exchange(as_mapping(exchange, f"{chat_key}.{name}"), f"{chat_key}.{name}", plugins))
        require_answer(turns)
        return Sample(tuple(turns))

    return convert


def _exchange(exchange: Mapping[str, Any], where: str, plugins: bool) -> list[Turn]:
    human, answer = texts_of(exchange, "Human", "MOSS")
    user = needed(human.replace("<eoh>", "").replace("<|Human|>: ", "").strip(), "empty_turn", f"{where}.Human")
    text = needed(answer.replace("<|MOSS|>:", "").replace("<eom>", "").strip(), "empty_answer", f"{where}.MOSS")
    before, tool_turns = _plugin_use(exchange, where) if plugins else ((), ())
    if tool_turns:
        return [turn(USER, user), *tool_turns, turn(ASSISTANT, text)]
    return [turn(USER, user), Turn(ASSISTANT, (*before, Region(TEXT, text)))]


def _plugin_use(exchange: Mapping[str, Any], where: str) -> tuple[tuple[Region, ...], tuple[Turn, ...]]:
    """The thought of an exchange, and where commands were run the assistant turn that calls and the tool turn that answers."""
    thought, commands, results = (
        _unmarked(text, *marks)
        for text, marks in zip(
            texts_of(exchange, "Inner Thoughts", "Commands", "Tool Responses"),
            (("<|Inner Thoughts|>:", "<eot>"), ("<|Commands|>:", "<eoc>"), ("<|Results|>:", "<eor>")),
            strict=True,
        )
    )
    thinking = (Region(THINKING, thought),) if thought not in ("", NOTHING) else ()
    texts = _calls(commands, f"{where}.Commands")
    if not texts:
        if results not in ("", NOTHING):
            raise Refused("role_order", f"{where!r} has results of tools and no commands: {results[:60]!r}")
        return thinking, ()
    calls = tuple(Region(TOOL_CALL, text) for text in texts)
    return thinking, (Turn(ASSISTANT, (*thinking, *calls)), turn(TOOL, results))


def _unmarked(text: str, opening: str, closing: str) -> str:
    return text.replace(opening, "").replace(closing, "").strip()


def _calls(commands: str, where: str) -> list[str]:
    """Commands are written ``Search("a"), Calculate("1+1")``, also below each other. An argument is taken as it stands up to the next quotation mark
    without a backslash, since its backslashes are LaTeX. A ``None`` in their place or among them is skipped: the published results answer the others. A
    call of anything else than one string (two of them, ``"{}".format(2)``) is refused: no published result says what it means."""
    texts, position = [], 0
    while position < len(commands):
        call = _COMMAND.match(commands, position)
        if call is None and (nothing := _NO_COMMAND.match(commands, position)):
            position = nothing.end()
            continue
        if call is None:
            why = f"{where!r} has something other than {', '.join(PARAMETERS)} of one string: {commands[:60]!r}"
            raise Refused("bad_tool_call", f"{why}. Write such calls, or None, or leave out the plugins of all rows with plugins: false")
        texts.append(call_text({"name": call[1], "arguments": {PARAMETERS[call[1]]: call[2]}}, where))
        position = call.end()
    return texts
