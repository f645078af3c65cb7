"""``group``: a prompt with several responses and a reward for each (offline GRPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, Group, Turn, turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.fields import as_list, as_number, needed, value_at
from prep_assets.schemas.images import no_images, refuse_columns, refuse_media
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rl_prompt import prompt_turns
from prep_assets.schemas.roles import require_answer


@schema("group", gives=Group, example={"prompt": "What is 2 + 2?", "responses": ["4", "5"], "rewards": [1.0, -0.25]})
def group(*, prompt_key: str = "prompt", responses_key: str = "responses", rewards_key: str = "rewards") -> Convert:
    """One prompt, its responses, and one finite reward a response; none is dropped.

    Options:
        prompt_key: field with the prompt, a string or an array of messages.
        responses_key: array of responses, each a string or an array of messages.
        rewards_key: array of rewards; a single number for a single response.
    """

    keys = (prompt_key, responses_key, rewards_key)

    def convert(row: Mapping[str, Any]) -> Group:
        refuse_media(row, read=keys)
        refuse_columns(row, ("system", "history", "tools"), read=keys)
        prompt = prompt_turns(value_at(row, prompt_key), prompt_key)
        values = as_list(value_at(row, responses_key), responses_key)
        responses = tuple(_response(value, f"{responses_key}[{i}]") for i, value in enumerate(values))
        return Group(prompt, responses, rewards_for(value_at(row, rewards_key), rewards_key, len(responses)))

    return convert


def rewards_for(value: object, where: str, responses: int) -> tuple[float, ...]:
    """One float a response. Refuses ``length_mismatch`` and a group without responses."""
    values: Sequence[Any] = as_list(value, where) if isinstance(value, list | tuple) else [value]
    rewards = tuple(as_number(reward, f"{where}[{i}]") for i, reward in enumerate(values))
    if len(rewards) != responses or not rewards:
        raise Refused("length_mismatch", f"{where!r} has {len(rewards)} rewards for {responses} responses")
    return rewards


def _response(value: object, where: str) -> tuple[Turn, ...]:
    if isinstance(value, str):
        return (turn(ASSISTANT, needed(value, "empty_answer", where)),)
    turns = ChatFormat().turns(value, where, no_images())
    require_answer(turns)
    if turns[0].role != ASSISTANT:
        raise Refused("role_order", f"{where!r} begins with a {turns[0].role} turn")
    return turns
