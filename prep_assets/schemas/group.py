"""``group``: a prompt with several responses and a reward for each (offline GRPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, Group, Sampled, Turn, turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import offered, with_system_of
from prep_assets.schemas.fields import as_integer, as_list, as_number, needed, value_at
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rl_prompt import prompt_turns
from prep_assets.schemas.roles import require_answer


@schema("group", gives=Group, example={"prompt": "What is 2 + 2?", "responses": ["4", "5"], "rewards": [1.0, -0.25]})
def group(
    *,
    prompt_key: str = "prompt",
    responses_key: str = "responses",
    rewards_key: str = "rewards",
    token_ids_key: str | None = None,
    logprobs_key: str | None = None,
    prompt_ids_key: str | None = None,
) -> Convert:
    """One prompt, its responses, and one finite reward a response; none is dropped.

    Options:
        prompt_key: field with the prompt, a string or an array of messages.
        responses_key: array of responses, each a string or an array of messages.
        rewards_key: array of rewards; a single number for a single response.
        token_ids_key: array of arrays: the token ids of each response as the model sampled them. They are stored as they are.
        logprobs_key: array of arrays: the log-probability of each of these tokens.
        prompt_ids_key: array: the token ids of the prompt; without it the chat template gives them.
    """
    if token_ids_key is None and (logprobs_key or prompt_ids_key):
        raise ConfigError("logprobs_key and prompt_ids_key go with token_ids_key: they are about tokens as they were sampled")

    def convert(row: Mapping[str, Any]) -> Group:
        prompt = with_system_of(row, prompt_turns(value_at(row, prompt_key), prompt_key))
        values = as_list(value_at(row, responses_key), responses_key)
        responses = tuple(_response(value, f"{responses_key}[{i}]") for i, value in enumerate(values))
        rewards = rewards_for(value_at(row, rewards_key), rewards_key, len(responses))
        sampled = _sampled(row, token_ids_key, logprobs_key, prompt_ids_key, len(responses)) if token_ids_key else None
        return Group(prompt, responses, rewards, sampled=sampled, **offered(row))

    return convert


def rewards_for(value: object, where: str, responses: int) -> tuple[float, ...]:
    """One float a response. Refuses ``length_mismatch`` and a group without responses."""
    values: Sequence[Any] = as_list(value, where) if isinstance(value, list | tuple) else [value]
    rewards = tuple(as_number(reward, f"{where}[{i}]") for i, reward in enumerate(values))
    if len(rewards) != responses or not rewards:
        raise Refused("length_mismatch", f"{where!r} has {len(rewards)} rewards for {responses} responses")
    return rewards


def _sampled(row: Mapping[str, Any], ids_key: str, logprobs_key: str | None, prompt_key: str | None, responses: int) -> Sampled:
    ids = tuple(_ids(each, f"{ids_key}[{i}]") for i, each in enumerate(as_list(value_at(row, ids_key), ids_key)))
    if len(ids) != responses:
        raise Refused("length_mismatch", f"{ids_key!r} has {len(ids)} lists of ids for {responses} responses")
    prompt = _ids(value_at(row, prompt_key), prompt_key) if prompt_key else None
    return Sampled(ids, prompt, _logprobs(row, logprobs_key, ids) if logprobs_key else None)


def _ids(value: object, where: str) -> tuple[int, ...]:
    ids = tuple(as_integer(each, f"{where}[{i}]") for i, each in enumerate(as_list(value, where)))
    if not ids:
        raise Refused("empty_answer", f"{where!r} has no token ids")
    return ids


def _logprobs(row: Mapping[str, Any], key: str, ids: Sequence[Sequence[int]]) -> tuple[tuple[float, ...], ...]:
    lists = as_list(value_at(row, key), key)
    found = tuple(tuple(as_number(one, f"{key}[{i}]") for one in as_list(each, f"{key}[{i}]")) for i, each in enumerate(lists))
    if [len(each) for each in found] != [len(each) for each in ids]:
        raise Refused("length_mismatch", f"{key!r} has lists of {[len(each) for each in found]} for ids of {[len(each) for each in ids]}")
    if any(one > 0 for each in found for one in each):
        raise Refused("positive_logprob", f"{key!r} holds a number above 0, which cannot be a log-probability")
    return found


def _response(value: object, where: str) -> tuple[Turn, ...]:
    if isinstance(value, str):
        return (turn(ASSISTANT, needed(value, "empty_answer", where)),)
    turns = ChatFormat().turns(value, where)
    require_answer(turns)
    if turns[0].role != ASSISTANT:
        raise Refused("role_order", f"{where!r} begins with a {turns[0].role} turn")
    return turns
