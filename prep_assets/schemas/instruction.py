"""``instruction``: a prompt field and a response field, no chat template (AstrAI)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.samples import COMPLETION, PROMPT, Sample, turn
from prep_assets.schemas.columns import plain_sample
from prep_assets.schemas.fields import needed, texts_of
from prep_assets.schemas.registry import Convert, schema


@schema("instruction", gives=Sample, example={"prompt": "Question: 2 + 2?\nAnswer: ", "response": "4"})
def instruction(*, prompt_key: str = "prompt", response_key: str = "response") -> Convert:
    """A prompt and its response, tokenized as they stand: a `PROMPT` and a `COMPLETION` turn.

    Options:
        prompt_key: field with the prompt.
        response_key: field with the response.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        prompt, response = texts_of(row, prompt_key, response_key)
        needed(prompt, "empty_prompt", prompt_key)
        needed(response, "empty_answer", response_key)
        return plain_sample(row, (turn(PROMPT, prompt), turn(COMPLETION, response)))

    return convert
