"""Chats of one data set each: ``moss``, ``belle``, ``leetcode_python``, ``dolly``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.extensions.preference.schemas import answer_alone, split_marked
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Row, Sample, Turn, turn
from prep_assets.schemas.fields import as_mapping, needed, text_of, texts_of, value_at
from prep_assets.schemas.instructions import JOIN, alpaca
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import call_text, require_alternation, require_answer, turns_of

# ``moss``: moss-003 conversations, with or without plugins.

PARAMETERS = {"Search": "query", "Calculate": "expression", "Solve": "equation", "Text2Image": "description"}
_BETWEEN = r"\s*(?:[,，;；]\s*)?"
_COMMAND = re.compile(rf'({"|".join(PARAMETERS)})\("((?:[^"\\]|\\.)*)"\){_BETWEEN}', re.DOTALL)
_NO_COMMAND = re.compile(rf"None\b(?:\.\s*\Z)?{_BETWEEN}(?=\Z|{'|'.join(PARAMETERS)})")
NOTHING = "None"
"""The text of an empty field. A tool may answer with it, too."""

MOSS_EXAMPLE = {
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


@schema("moss", gives=Sample, example=MOSS_EXAMPLE, aliases=("MOSSMultiTurnHandler", "MOSSInstructionHandler"))
def moss(*, chat_key: str = "chat", system_key: str | None = None, plugins: bool = False) -> Convert:
    """The turns of a MOSS conversation: user, assistant, user, assistant …, freed of MOSS's own markers and stripped.

    Options:
        chat_key: object of turns, in the order of the file.
        system_key: the system prompt, such as `meta_instruction`; null for none, as in ModelLink.
        plugins: keep inner thoughts, commands and tool responses as thinking, tool calls and tool turns.
    """

    def convert(row: Row) -> Sample:
        turns: list[Turn] = []
        if system_key is not None:
            turns.append(turn(SYSTEM, needed(text_of(row, system_key), "empty_prompt", system_key).strip()))
        for name, exchange in as_mapping(value_at(row, chat_key), chat_key).items():
            if exchange:
                turns.extend(_exchange_turns(as_mapping(exchange, f"{chat_key}.{name}"), f"{chat_key}.{name}", plugins))
        require_answer(turns)
        return Sample(tuple(turns))

    return convert


def _exchange_turns(exchange: Mapping[str, Any], where: str, plugins: bool) -> list[Turn]:
    human, answer = texts_of(exchange, "Human", "MOSS")
    user = needed(human.replace("<eoh>", "").replace("<|Human|>: ", "").strip(), "empty_turn", f"{where}.Human")
    text = needed(answer.replace("<|MOSS|>:", "").replace("<eom>", "").strip(), "empty_answer", f"{where}.MOSS")
    thinking, tool_turns = _plugin_use(exchange, where) if plugins else ((), ())
    if tool_turns:
        return [turn(USER, user), *tool_turns, turn(ASSISTANT, text)]
    return [turn(USER, user), Turn(ASSISTANT, (*thinking, Region(TEXT, text)))]


def _plugin_use(exchange: Mapping[str, Any], where: str) -> tuple[tuple[Region, ...], tuple[Turn, ...]]:
    """The thinking region of an exchange, and the assistant and tool turns of its commands; both may be empty."""
    marks = (("<|Inner Thoughts|>:", "<eot>"), ("<|Commands|>:", "<eoc>"), ("<|Results|>:", "<eor>"))
    texts_and_marks = zip(texts_of(exchange, "Inner Thoughts", "Commands", "Tool Responses"), marks, strict=True)
    thought, commands, results = (text.replace(opening, "").replace(closing, "").strip() for text, (opening, closing) in texts_and_marks)
    thinking = (Region(THINKING, thought),) if thought not in ("", NOTHING) else ()
    texts = _call_texts(commands, f"{where}.Commands")
    if not texts:
        if results not in ("", NOTHING):
            raise Refused("role_order", f"{where!r} has results of tools and no commands: {results[:60]!r}")
        return thinking, ()
    calls = tuple(Region(TOOL_CALL, text) for text in texts)
    return thinking, (Turn(ASSISTANT, (*thinking, *calls)), turn(TOOL, results))


def _call_texts(commands: str, where: str) -> list[str]:
    """The texts of calls written as ``Search("a"), Calculate("1+1")``, also one a line.

    An argument is taken verbatim up to the next quotation mark without a backslash, since its backslashes are LaTeX. A ``None`` instead of calls or
    among them is skipped: the published results answer the others. A call of anything but one string (two of them, ``"{}".format(2)``) is rejected:
    no published result says what it means."""
    texts, position = [], 0
    while position < len(commands):
        call = _COMMAND.match(commands, position)
        if call is None and (nothing := _NO_COMMAND.match(commands, position)):
            position = nothing.end()
            continue
        if call is None:
            problem = f"{where!r} has something other than {', '.join(PARAMETERS)} of one string: {commands[:60]!r}"
            detail = f"{problem}. Write such calls, or None, or leave out the plugins of all rows with plugins: false"
            raise Refused("bad_tool_call", detail)
        texts.append(call_text({"name": call[1], "arguments": {PARAMETERS[call[1]]: call[2]}}, where))
        position = call.end()
    return texts


BELLE = {"instruction": "Human:你好\nAssistant:你好！有什么可以帮你？\nHuman:讲个笑话\nAssistant:", "input": "", "output": "从前有座山……"}


@schema("belle", gives=Sample, example=BELLE, aliases=("BelleMultiTurnInstructionHandler",))
def belle(
    *, instruction_key: str = "instruction", output_key: str = "output", human_mark: str = "Human:", assistant_mark: str = "Assistant:"
) -> Convert:
    """The turns inside the instruction, whose last ``Assistant:`` is answered by the output; all stripped.

    Options:
        instruction_key: the chat, `Human:…Assistant:…Human:…Assistant:`.
        output_key: the last answer.
        human_mark: mark before a user's turn.
        assistant_mark: mark before an assistant's turn.
    """

    def convert(row: Row) -> Sample:
        past, answer = texts_of(row, instruction_key, output_key)
        turns = split_marked(past, {human_mark: USER, assistant_mark: ASSISTANT}, instruction_key)
        if not turns or turns[-1] != (ASSISTANT, ""):
            raise Refused("role_order", f"{instruction_key!r} must end with {assistant_mark!r}; it ends {past[-60:]!r}")
        turns[-1] = (ASSISTANT, answer_alone(answer, f"\n{human_mark}", output_key).strip())
        sample = Sample(turns_of(turns))
        require_alternation(sample.turns, ends_with_answer=True)
        return sample

    return convert


LEETCODE = {
    "code_with_problem": "Return the sum of two numbers.\n\n```python\ndef add(a, b):\n    return a + b\n```",
    "code_only": "def add(a, b):\n    return a + b\n",
    "explanation_only": "It adds the two numbers.",
}


@schema("leetcode_python", gives=Sample, example=LEETCODE, aliases=("LeetcodePythonInstructionHandler",))
def leetcode_python(
    *, problem_key: str = "code_with_problem", code_key: str = "code_only", explanation_key: str = "explanation_only"
) -> Convert:
    """The problem (the text before its code in ``` fences, stripped), answered with code, a line break and the explanation.

    Options:
        problem_key: the problem and, after a fence, its code.
        code_key: the code.
        explanation_key: the explanation.
    """

    def convert(row: Row) -> Sample:
        problem, code, explanation = texts_of(row, problem_key, code_key, explanation_key)
        user = needed(problem.partition("```")[0].strip(), "empty_prompt", problem_key)
        if after := "".join(problem.split("```")[2:]).strip():
            raise Refused("trailing_text", f"{problem_key!r} goes on behind its code, which would be lost: {after[:60]!r}")
        needed(code, "empty_answer", code_key)
        return Sample((turn(USER, user), turn(ASSISTANT, f"{code}\n{explanation}")))

    return convert


DOLLY = {
    "instruction": "When did Virgin Australia start operating?",
    "context": "Virgin Australia commenced services on 31 August 2000 as Virgin Blue.",
    "response": "On 31 August 2000.",
    "category": "closed_qa",
}


@schema("dolly", gives=Sample, example=DOLLY)
def dolly(
    *, instruction_key: str = "instruction", context_key: str | None = "context", response_key: str = "response", join: str = JOIN
) -> Convert:
    """An instruction, with its context after a blank line where it has one, and the response; all stripped.

    Options:
        instruction_key: the instruction.
        context_key: the context, if any; null: none.
        response_key: the response.
        join: separator of instruction and context.
    """
    return alpaca(
        prompt_key=instruction_key, query_key=context_key, response_key=response_key, system_key=None, history_key=None, join=join
    )
