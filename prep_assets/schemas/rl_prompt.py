"""``rl_prompt``: a prompt, its ground truth and the verifier that compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import SYSTEM, USER, Prompt, Turn, turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import offered, with_system_of
from prep_assets.schemas.fields import as_text, needed, value_at, wrong_type
from prep_assets.schemas.gold import gold_of_number, plain_number
from prep_assets.schemas.registry import schema
from prep_assets.schemas.roles import require_open_end

NUMBER = "number"
JUDGED = "model"
"""The verifier of prompts that a reward model judges; verl has this name for it too."""


@schema("rl_prompt", gives=Prompt, example={"prompt": "What is 12 * 12?", "gold": "144"})
def rl_prompt(
    *,
    prompt_key: str = "prompt",
    gold_key: str | None = "gold",
    verifier: str = NUMBER,
    verifier_key: str | None = None,
    system: str | None = None,
    tools_key: str = "tools",
) -> Callable[[Mapping[str, Any]], Prompt]:
    """A prompt without its answer, and what a right answer is.

    Options:
        prompt_key: field with the prompt, a string or an array of messages.
        gold_key: field with the ground truth, dots for nested ones: ``reward_model.ground_truth`` reads verl's rows. null where a reward model
            judges and there is none.
        verifier: name of the verifier; with ``number`` the gold must be one plain number.
        verifier_key: field with the verifier's name, for rows that differ in it; null to use `verifier` for all.
        system: a system prompt put before prompts that have none.
        tools_key: column with the tools on offer.
    """
    if verifier_key is not None and verifier != NUMBER:
        raise ConfigError(f"verifier is {verifier!r}, and each row names its own under {verifier_key!r}. Leave one of the two out")

    if gold_key is None and verifier == NUMBER:
        raise ConfigError(f"gold_key is null, and the verifier {NUMBER!r} compares with a gold. Name another verifier, such as {JUDGED!r}")

    def convert(row: Mapping[str, Any]) -> Prompt:
        turns = with_system_of(row, prompt_turns(value_at(row, prompt_key), prompt_key))
        if system is not None and turns[0].role != SYSTEM:
            turns = (turn(SYSTEM, system), *turns)
        name = verifier if verifier_key is None else as_text(value_at(row, verifier_key), verifier_key)
        gold = "" if gold_key is None else _gold(nested(row, gold_key), gold_key, name)
        return Prompt(turns, gold, name, **offered(row, tools_key))

    return convert


def prompt_turns(prompt: object, key: str) -> tuple[Turn, ...]:
    """A string as a user turn, messages as their turns, which do not end with the assistant's."""
    if isinstance(prompt, str):
        return (turn(USER, needed(prompt, "empty_prompt", key)),)
    turns = ChatFormat().turns(prompt, key)
    require_open_end(turns, key)
    return turns


def nested(row: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; a field whose own name is the whole path goes first."""
    if row.get(path) is not None:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, Mapping):
            wrong_type(value, path, "an object on its way")
        value = value_at(value, key)
    return value


def _gold(value: object, key: str, verifier: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return gold_of_number(value)
    text = as_text(value, key)
    if not text.strip():
        raise Refused("no_gold", f"{key!r} is empty")
    return plain_number(text.strip()) if verifier == NUMBER else text
