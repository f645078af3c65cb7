"""Runs of agents: as graphs of messages, and as lists of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from prep_assets_tests.graph.workspaces import TOKENIZER

BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")


def encoded(text: str) -> list[int]:
    return BACKEND.encode(text, add_special_tokens=False).ids


def asked(parent: int | None, text: str, before: str = "\n") -> dict[str, Any]:
    ids = encoded(f"{before}<|im_start|>user\n{text}<|im_end|>\n")
    message = {"role": "user", "content": text}
    return {"parent": parent, "message": message, "sampled": False, "token_ids": ids, "mask": [False] * len(ids), "logprobs": []}


def said(parent: int, text: str, **more: Any) -> dict[str, Any]:
    """An answer behind the generation prompt, which was not sampled."""
    head, ids = encoded("<|im_start|>assistant\n"), encoded(f"{text}<|im_end|>")
    message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
    mask = [False] * len(head) + [True] * len(ids)
    scores = [-0.25 * (1 + place % 4) for place in range(len(ids))]
    return {"parent": parent, "message": message, "sampled": True, "token_ids": head + ids, "mask": mask, "logprobs": scores, **more}


def trace(number: int, **more: Any) -> dict[str, Any]:
    """A run of two turns whose last answer was tried twice, and another beginning: three branches of one prompt."""
    nodes = [
        asked(None, f"What is {number}?", ""),
        said(0, f"I ask {number}."),
        asked(1, "the tool says 4"),
        said(2, f"It is {number}."),
        said(2, f"Maybe {number}."),
        said(0, "No idea."),
    ]
    rewards = {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": -0.25}}
    return {"version": 3, "task": {"data": {"idx": number}}, "agent": {}, "nodes": nodes, "rewards": rewards, "is_completed": True, **more}


Message = dict[str, str]


def messages(*texts: str) -> list[Message]:
    """A user and an assistant by turns."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def call(asked: Sequence[Message], answer: str, before: Sequence[int] = (), **more: Any) -> dict[str, Any]:
    """A call whose prompt is what `before` has, and the messages that it does not have yet."""
    new = asked if not before else asked[-1:]
    text = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in new)
    given = [*before, *encoded(f"{chr(10) if before else ''}{text}<|im_start|>assistant\n")]
    ids = encoded(f"{answer}<|im_end|>")
    scores = [-0.25 * (1 + place % 4) for place in range(len(ids))]
    tokens = {"prompt_ids": given, "completion_ids": ids, "completion_mask": [1] * len(ids), "completion_logprobs": scores}
    return {"prompt": list(asked), "completion": [{"role": "assistant", "content": answer}], "tokens": tokens, **more}


def whole(made: dict[str, Any]) -> list[int]:
    return [*made["tokens"]["prompt_ids"], *made["tokens"]["completion_ids"]]


def run(number: int, reward: float) -> dict[str, Any]:
    """Four calls: the second goes on with the first; a sub-agent is asked between; the last was given a summary in place of the history."""
    first = call(messages(f"What is {number}?"), f"I ask {number}.")
    helper = call(messages(f"Look {number} up."), f"Found {number}.", extras={"agent": "helper"})
    second = call(messages(f"What is {number}?", f"I ask {number}.", "the tool says 4"), f"It is {number}.", whole(first))
    compact = call(messages(f"You asked for {number}, and know 4."), f"Then {number}.")
    return {"trajectory": [first, helper, second, compact], "reward": reward}


def of_verifiers(step: dict[str, Any]) -> dict[str, Any]:
    tokens = {**step["tokens"], "prompt_mask": [0], "overlong_prompt": False, "is_truncated": False, "routed_experts": None}
    return {**step, "tokens": tokens, "response": {"id": "x"}, "reward": None, "is_truncated": False, "trajectory_id": "a", "extras": {}}


def of_rllm(step: dict[str, Any]) -> dict[str, Any]:
    tokens = dict(zip(("prompt_ids", "response_ids", "logprobs"), map(step["tokens"].get, SAMPLED), strict=True))
    more = {
        "thought": "x",
        "model_response": "x",
        "reward": 0.0,
        "done": True,
        "mc_return": 0.0,
        "weight_version": 3,
        "routing_matrices": None,
    }
    return {**tokens, **more, "chat_completions": [*step["prompt"], *step["completion"]], "info": {}}


SAMPLED = ("prompt_ids", "completion_ids", "completion_logprobs")
