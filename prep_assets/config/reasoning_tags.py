"""The tags that public models write around reasoning."""

from __future__ import annotations

REASONING_TAGS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ, GLM-4.5, Nemotron, SmolLM3
    ("<thinking>", "</thinking>"),  # Reflection, and answers in Anthropic's style
    ("<thought>", "</thought>"),  # EXAONE Deep
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1, Bespoke-Stratos, OpenThoughts
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
)
"""Opening and closing tag of each spelling."""
