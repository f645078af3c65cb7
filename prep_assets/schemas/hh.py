"""``hh``: Anthropic's HH-RLHF dialogues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, USER, Pair, Turn, turn
from prep_assets.schemas.columns import with_system_of
from prep_assets.schemas.fields import texts_of
from prep_assets.schemas.marked_text import split_marked
from prep_assets.schemas.pairs import pair_of, turns_of
from prep_assets.schemas.registry import Convert, schema

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

    return convert


def _split(text: str, key: str) -> tuple[str, str]:
    prompt, mark, answer = text.rpartition(ASSISTANT_MARK)
    if not mark:
        raise Refused("no_assistant_turn", f"{key!r} has no {ASSISTANT_MARK!r}; it ends {text[-50:]!r}")
    return prompt, answer.strip()


def _turns(prompt: str, key: str) -> tuple[Turn, ...]:
    return turns_of(split_marked(prompt, MARKS, key))
