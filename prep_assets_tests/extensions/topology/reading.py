"""Megatron-LM's `SFTDataset`, rewritten from its text: https://github.com/NVIDIA/Megatron-LM, megatron/training/datasets/sft_dataset.py.

Messages are put together as they are (prompt format ``identity``); what assistants say is a target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

IGNORE = -100
Message = Mapping[str, str]


def conversations_of(merged: Sequence[Message]) -> list[list[Message]]:
    """A system message begins another."""
    found: list[list[Message]] = []
    for message in merged:
        if message["role"] == "system" or not found:
            found.append([])
        found[-1].append(message)
    return found


def tokenized(conversation: Sequence[Message], encode: Callable[[str], list[int]]) -> tuple[list[int], list[int]]:
    """Tokens and targets."""
    tokens, targets = encode("".join(message["content"] for message in conversation)), list[int]()
    for number, message in enumerate(conversation):
        told = encode(message["content"])
        if message["role"] == "assistant":
            assert told, "empty assistant turn"
            assert conversation[number - 1]["role"] in ("user", "tool")
        assert tokens[len(targets) : len(targets) + len(told)] == told, "turn tokens match those of the conversation"
        targets += told if message["role"] == "assistant" else [IGNORE] * len(told)
    assert len(targets) == len(tokens)
    return tokens, targets


def item(merged: Sequence[Message], encode: Callable[[str], list[int]], length: int, context_parallel: int, pad: int) -> dict[str, Any]:
    """One item of the data set; `cu_seqlens` without the repetitions at its end."""
    tokens, targets, positions, borders = list[int](), list[int](), list[int](), [0]

    def fill(count: int) -> None:
        tokens.extend([pad] * count)
        targets.extend([pad] * count)
        positions.extend(range(positions[-1] + 1, positions[-1] + 1 + count))

    for conversation in conversations_of(merged):
        own, own_targets = tokenized(conversation, encode)
        tokens += own
        targets += own_targets
        positions += range(len(own))
        if context_parallel > 1:
            fill(-len(tokens) % (2 * context_parallel))
        borders.append(len(tokens))
        assert len(tokens) <= length, "the trainer would cut a document off"
    if len(tokens) < length + 1:
        fill(length + 1 - len(tokens))
        borders[-1] = length
    labels = targets[1:]
    return {
        "tokens": tokens[:-1],
        "labels": labels,
        "loss_mask": [int(label not in (pad, IGNORE)) for label in labels],
        "position_ids": positions[:-1],
        "cu_seqlens": borders,
    }


def trained_by_nemo_rl(merged: Sequence[Message], encode: Callable[[str], list[int]]) -> list[list[int]]:
    """What NeMo-RL's reader of the same lines trains of each conversation, with the prompt format ``identity``, as its pull request 3380 had it on 2026-08-17:
    every token but the first, whoever says it. Of a row it takes the messages alone, and the last one has to be an assistant's.
    """
    if merged[-1]["role"] != "assistant":
        raise ValueError("Megatron SFT packed records must end with an assistant message")
    return [encode("".join(message["content"] for message in conversation))[1:] for conversation in conversations_of(merged)]
