"""``hh``: Anthropic/hh-rlhf, two dialogues a row, each one text with a mark before each turn."""

from __future__ import annotations

from typing import Literal

from prep_assets.errors import Refused
from prep_assets.extensions.preference.schemas import ASSISTANT_MARK, HUMAN_MARK, MARKS, answer_alone, split_marked
from prep_assets.samples import ASSISTANT, USER, Pair, PlainChat, Row, turn
from prep_assets.schemas.fields import texts_of
from prep_assets.schemas.reader import PlainPairs, reads_plain
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import pair_of, turns_of, with_system_of

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
        chosen_key: the dialogue that ends with the better answer.
        rejected_key: the dialogue that ends with the worse answer.
        prompt_check: `strict` rejects dialogues whose prompts differ; `chosen` takes the chosen one's, as train-llm-from-scratch does.
        split_turns: make the prompt a chat; otherwise it is one user turn with its marks.
    """

    keys = (chosen_key, rejected_key)

    def convert(row: Row) -> Pair:
        chosen, rejected = (_split_answer(text, key) for text, key in zip(texts_of(row, *keys), keys, strict=True))
        if chosen[0].strip() != rejected[0].strip() and prompt_check == "strict":
            raise Refused("prompts_differ", f"the prompts end {chosen[0][-50:]!r} and {rejected[0][-50:]!r}")
        if not rejected[0].strip():
            raise Refused("empty_prompt", f"the prompt of {rejected_key!r} is empty")
        prompt = turns_of(split_marked(chosen[0], MARKS, chosen_key)) if split_turns else (turn(USER, chosen[0].strip()),)
        return pair_of(row, with_system_of(row, prompt), *((turn(ASSISTANT, answer),) for _, answer in (chosen, rejected)))

    def split(row: Row) -> tuple[PlainChat | None, object, object] | None:
        if type(row[chosen_key]) is not str or type(row[rejected_key]) is not str:
            return None
        (prompt, mark, chosen), (rejected_prompt, rejected_mark, rejected) = (row[key].rpartition(ASSISTANT_MARK) for key in keys)
        prompt = prompt.strip()
        if not mark or not rejected_mark or not prompt or prompt != rejected_prompt.strip() or HUMAN_MARK in chosen + rejected:
            return None
        return PlainChat((USER,), (prompt,)), chosen.strip(), rejected.strip()

    return convert if split_turns else reads_plain(convert, PlainPairs(frozenset(keys), split))


def _split_answer(text: str, key: str) -> tuple[str, str]:
    prompt, mark, answer = text.rpartition(ASSISTANT_MARK)
    if not mark:
        raise Refused("no_assistant_turn", f"{key!r} has no {ASSISTANT_MARK!r}; it ends {text[-50:]!r}")
    return prompt, answer_alone(answer, HUMAN_MARK, key).strip()
