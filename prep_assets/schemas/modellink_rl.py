"""MindSpeed-LLM's handlers of reinforcement learning: a prompt with its whole history, and the reference answer that a reward is computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prep_assets.samples import ASSISTANT, Prompt, Sample
from prep_assets.schemas.alpaca import alpaca_keys, alpaca_prompt
from prep_assets.schemas.columns import offered
from prep_assets.schemas.fields import needed, text_of
from prep_assets.schemas.gold import plain_number
from prep_assets.schemas.registry import schema
from prep_assets.schemas.rl_prompt import JUDGED, NUMBER
from prep_assets.schemas.sharegpt import sharegpt, sharegpt_options

REFERENCE = "reference"
"""The verifier of handlers that store a reference answer and leave it to the trainer how to compare."""


@schema("R1AlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "What is 12 * 12?", "input": "", "output": "144"})
def r1_alpaca(*, map_keys: Mapping[str, str] | None = None, verifier: str = REFERENCE) -> Callable[[Mapping[str, Any]], Prompt]:
    """MindSpeed-LLM's handler: system, history and question of an Alpaca row, its output as the reference answer.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    keys = {"prompt_key": "instruction", "query_key": "input", "system_key": "system", "history_key": "history", "response_key": "output"}
    keys |= alpaca_keys(map_keys, ("response",))
    answer_key = keys.pop("response_key")

    def convert(row: Mapping[str, Any]) -> Prompt:
        gold = needed(text_of(row, answer_key), "no_gold", answer_key)
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), _gold(gold, verifier), verifier, **offered(row))

    return convert


@schema("PPOAlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "Write a haiku.", "input": ""})
def ppo_alpaca(*, map_keys: Mapping[str, str] | None = None) -> Callable[[Mapping[str, Any]], Prompt]:
    """MindSpeed-LLM's handler of prompts that a reward model judges: system, history and question of an Alpaca row. Its answer is not read.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``.
    """
    keys = {
        "prompt_key": "instruction",
        "query_key": "input",
        "system_key": "system",
        "history_key": "history",
        **alpaca_keys(map_keys, ()),
    }

    def convert(row: Mapping[str, Any]) -> Prompt:
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), "", JUDGED, **offered(row))

    return convert


EXAMPLE = {"conversations": [{"from": "human", "value": "What is 12 * 12?"}, {"from": "gpt", "value": "144"}]}


@schema("R1SharegptStyleInstructionHandler", gives=Prompt, example=EXAMPLE)
def r1_sharegpt(*, map_keys: Mapping[str, Any] | None = None, verifier: str = REFERENCE) -> Callable[[Mapping[str, Any]], Prompt]:
    """MindSpeed-LLM's handler: a ShareGPT conversation up to its last answer, which is the reference answer.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, and under ``tags`` the names of the tags.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    read = sharegpt(**sharegpt_options(map_keys, ()))

    def convert(row: Mapping[str, Any]) -> Prompt:
        sample = read(row)
        assert isinstance(sample, Sample) and sample.turns[-1].role == ASSISTANT
        *prompt, answer = sample.turns
        return Prompt(tuple(prompt), _gold(answer.text, verifier), verifier, sample.tools, sample.documents, sample.template_options)

    return convert


def _gold(text: str, verifier: str) -> str:
    return plain_number(text.strip()) if verifier == NUMBER else text
