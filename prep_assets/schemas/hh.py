"""``hh`` and ``belle``: chats that are written as one text, with a mark before each turn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, USER, Pair, PlainChat, Sample, Turn, turn
from prep_assets.schemas.columns import with_system_of
from prep_assets.schemas.fields import texts_of
from prep_assets.schemas.pairs import pair_of, turns_of
from prep_assets.schemas.plain_rows import PlainPairs, reads_plain
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_alternation

HUMAN_MARK = "\n\nHuman:"
ASSISTANT_MARK = "\n\nAssistant:"
MARKS = {HUMAN_MARK: USER, ASSISTANT_MARK: ASSISTANT}

EXAMPLE = {
    "chosen": "\n\nHuman: What is the capital of Peru?\n\nAssistant: Lima.",
    "rejected": "\n\nHuman: What is the capital of Peru?\n\nAssistant: I don't know.",
}


@schema("hh", gives=Pair, example=EXAMPLE)
def hh(
    *,
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    prompt_check: Literal["strict", "chosen"] = "strict",
    split_turns: bool = False,
) -> Convert:
    """Both dialogues split at their last ``\\n\\nAssistant:``; what stands before it is the prompt.

    Options:
        chosen_key: field with the dialogue that ends with the better answer.
        rejected_key: field with the dialogue that ends with the worse answer.
        prompt_check: ``strict`` refuses dialogues whose prompts differ; ``chosen`` takes the chosen one's, as train-llm-from-scratch does.
        split_turns: make a chat of the prompt; otherwise it is one user turn, with its ``Human:`` and ``Assistant:`` marks.
    """

    keys = (chosen_key, rejected_key)

    def convert(row: Mapping[str, Any]) -> Pair:
        chosen, rejected = (_split(text, key) for text, key in zip(texts_of(row, *keys), keys, strict=True))
        if chosen[0].strip() != rejected[0].strip() and prompt_check == "strict":
            raise Refused("prompts_differ", f"the prompts end {chosen[0][-50:]!r} and {rejected[0][-50:]!r}")
        if not rejected[0].strip():
            raise Refused("empty_prompt", f"the prompt of {rejected_key!r} is empty")
        prompt = _turns(chosen[0], chosen_key) if split_turns else (turn(USER, chosen[0].strip()),)
        return pair_of(row, with_system_of(row, prompt), *((turn(ASSISTANT, answer),) for _, answer in (chosen, rejected)))

    def split(row: Mapping[str, Any]) -> tuple[PlainChat | None, object, object] | None:
        if type(row[chosen_key]) is not str or type(row[rejected_key]) is not str:
            return None
        (prompt, mark, chosen), (other, other_mark, rejected) = (row[key].rpartition(ASSISTANT_MARK) for key in keys)
        prompt = prompt.strip()
        if not mark or not other_mark or not prompt or prompt != other.strip():
            return None
        return PlainChat((USER,), (prompt,)), chosen.strip(), rejected.strip()

    return convert if split_turns else reads_plain(convert, PlainPairs(frozenset(keys), split))


def _split(text: str, key: str) -> tuple[str, str]:
    prompt, mark, answer = text.rpartition(ASSISTANT_MARK)
    if not mark:
        raise Refused("no_assistant_turn", f"{key!r} has no {ASSISTANT_MARK!r}; it ends {text[-50:]!r}")
    return prompt, answer.strip()


def _turns(prompt: str, key: str) -> tuple[Turn, ...]:
    return turns_of(split_marked(prompt, MARKS, key))


def split_marked(text: str, marks: Mapping[str, str], where: str) -> list[tuple[str, str]]:
    """``(role, text)`` of each turn in `text`, whose turns begin with one of `marks` (mark to role); texts are stripped.

    Raises:
        Refused: ``leading_text`` where something stands before the first mark.
    """
    pattern = re.compile("|".join(re.escape(mark) for mark in marks))
    found = list(pattern.finditer(text))
    leading = text[: found[0].start()] if found else text
    if leading.strip():
        raise Refused("leading_text", f"{where!r} begins {leading[:60]!r}, before the first of {', '.join(map(repr, marks))}")
    ends = [match.start() for match in found[1:]] + [len(text)] * bool(found)
    return [(marks[match[0]], text[match.end() : end].strip()) for match, end in zip(found, ends, strict=True)]


BELLE = {"instruction": "Human:你好\nAssistant:你好！有什么可以帮你？\nHuman:讲个笑话\nAssistant:", "input": "", "output": "从前有座山……"}


@schema("belle", gives=Sample, example=BELLE, aliases=("BelleMultiTurnInstructionHandler",))
def belle(
    *, instruction_key: str = "instruction", output_key: str = "output", human_mark: str = "Human:", assistant_mark: str = "Assistant:"
) -> Convert:
    """The turns inside the instruction, whose last ``Assistant:`` is answered by the output; all stripped.

    Options:
        instruction_key: field with ``Human:…Assistant:…Human:…Assistant:``.
        output_key: field with the last answer.
        human_mark: what stands before a user's turn.
        assistant_mark: what stands before an assistant's turn.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        past, answer = texts_of(row, instruction_key, output_key)
        turns = split_marked(past, {human_mark: USER, assistant_mark: ASSISTANT}, instruction_key)
        if not turns or turns[-1] != (ASSISTANT, ""):
            raise Refused("role_order", f"{instruction_key!r} must end with {assistant_mark!r}; it ends {past[-60:]!r}")
        turns[-1] = (ASSISTANT, answer.strip())
        sample = Sample(turns_of(turns))
        require_alternation(sample.turns, ends_with_answer=True)
        return sample

    return convert
