"""``gsm8k`` and ``gsm8k_prompt``: grade-school math as SFT answers and as RL prompts."""

from __future__ import annotations

import re

from prep_assets.extensions.rl.schemas import MARK, final_text, gold_number, plain_number
from prep_assets.samples import ASSISTANT, TEXT, THINKING, USER, Prompt, Region, Row, Sample, Turn, turn
from prep_assets.schemas.fields import needed, texts_of
from prep_assets.schemas.registry import Convert, schema

EXAMPLE = {"question": "Tom has 3 boxes of 4 pens. How many pens has he?", "answer": "He has 3*4 = <<3*4=12>>12 pens.\n#### 12"}
_CALCULATOR_NOTE = re.compile(r"<<[^>]*>>")


@schema("gsm8k", gives=Sample, example=EXAMPLE)
def gsm8k(*, question_key: str = "question", answer_key: str = "answer", thinking: bool = False) -> Convert:
    """The question, answered as ``<think>{reasoning}</think><answer>{final}</answer>``, calculator notes ``<<…>>`` taken out.

    Options:
        question_key: the question.
        answer_key: the worked solution and, after `####`, the final number.
        thinking: make the reasoning a thinking region, for templates that write `<think>` (qwen3).
    """

    def convert(row: Row) -> Sample:
        question, answer = texts_of(row, question_key, answer_key)
        needed(question, "empty_prompt", question_key)
        plain = _CALCULATOR_NOTE.sub("", answer)
        final = final_text(plain)
        plain_number(final)
        reasoning = needed(plain.partition(MARK)[0].strip(), "empty_answer", f"{answer_key} before {MARK}")
        answered = f"<answer>{final}</answer>"
        if thinking:
            regions = (Region(THINKING, reasoning), Region(TEXT, answered))
            return Sample((turn(USER, question.strip()), Turn(ASSISTANT, regions)))
        return Sample((turn(USER, question.strip()), turn(ASSISTANT, f"<think>{reasoning}</think>{answered}")))

    return convert


@schema("gsm8k_prompt", gives=Prompt, example=EXAMPLE, variant_of="gsm8k")
def gsm8k_prompt(*, question_key: str = "question", answer_key: str = "answer") -> Convert:
    """The question as an RL prompt, and the number after ``####`` as its gold.

    Options:
        question_key: the question.
        answer_key: the worked solution and, after `####`, the final number.
    """

    def convert(row: Row) -> Prompt:
        question, answer = texts_of(row, question_key, answer_key)
        needed(question, "empty_prompt", question_key)
        return Prompt((turn(USER, question.strip()),), gold_number(answer))

    return convert
