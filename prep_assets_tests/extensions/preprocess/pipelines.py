"""AstrAI's own example configurations, as its documentation prints them."""

from __future__ import annotations

from typing import Any

CHAT: dict[str, Any] = {
    "version": 1,
    "input": {"type": "chat", "messages_key": "messages"},
    "mask": {"system": "mask", "user": "mask", "assistant": "train"},
    "mask_default": "mask",
    "preprocessing": {"max_seq_len": 2048, "deduplicate": True},
    "output": {"domain_key": "source", "storage_format": "bin", "max_tokens_per_shard": 100000000},
}
INSTRUCTION: dict[str, Any] = {
    "version": 1,
    "input": {"type": "instruction", "prompt_key": "instruction", "response_key": "output"},
    "mask": {"prompt": "mask", "response": "train"},
    "mask_default": "mask",
    "preprocessing": {"max_seq_len": 2048},
    "output": {"storage_format": "bin"},
}
TEXT: dict[str, Any] = {
    "version": 1,
    "input": {"type": "text", "text_key": "content"},
    "mask": {},
    "preprocessing": {"max_seq_len": 2048, "min_chars": 50},
    "output": {"storage_format": "bin"},
}
SECTIONS_CHAT: dict[str, Any] = {
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"system": "mask", "user": "mask", "assistant": "train"},
    "mask_default": "mask",
    "preprocessing": {"max_seq_len": 2048},
    "output": {"storage_format": "bin", "dtype": {"loss_mask": "bool"}},
}
SECTIONS_INSTRUCTION: dict[str, Any] = {
    "input": {"sections": [{"field": "prompt", "action": "mask", "add_special_tokens": True}, {"field": "response", "action": "train"}]},
    "mask_default": "mask",
    "preprocessing": {"max_seq_len": 2048},
}
SECTIONS_TEXT: dict[str, Any] = {
    "input": {"sections": [{"field": "text", "action": "train"}]},
    "preprocessing": {"max_seq_len": 8192, "min_chars": 100},
}
DPO: dict[str, Any] = {
    "input": {
        "sources": {
            "chosen": {"sections": [{"field": "chosen", "action": "$role", "template": True}]},
            "rejected": {"sections": [{"field": "rejected", "action": "$role", "template": True}]},
        }
    },
    "mask": {"user": "mask", "assistant": "train"},
    "mask_default": "mask",
}
GRPO: dict[str, Any] = {
    "input": {
        "sources": {
            "prompts": {"sections": [{"field": "prompt", "action": "mask", "template": True}]},
            "responses": {"sections": [{"field": "responses", "action": "train"}], "list_field": True, "mask_key": "masks"},
            "rewards": {"sections": [{"field": "rewards", "action": "value"}]},
        }
    },
    "mask": {"user": "mask", "assistant": "train"},
    "mask_default": "mask",
}
EXAMPLES = {
    "chat": CHAT,
    "instruction": INSTRUCTION,
    "text": TEXT,
    "sections chat": SECTIONS_CHAT,
    "sections instruction": SECTIONS_INSTRUCTION,
    "sections text": SECTIONS_TEXT,
    "dpo": DPO,
    "grpo": GRPO,
}


def changed(pipeline: dict[str, Any], **parts: dict[str, Any]) -> dict[str, Any]:
    """`pipeline` with keys of its parts added or replaced: ``changed(CHAT, output={"domain_key": None})``."""
    return {**pipeline, **{part: {**pipeline.get(part, {}), **values} for part, values in parts.items()}}
