"""Mask policies, and the reasons for which a chat may be rejected under them."""

from __future__ import annotations

from prep_assets.proofs.derive import MaskOptions
from prep_assets_tests.masks.bound import with_options

REASONS = {
    *("noncharacter", "lone_surrogate", "control_token_outside_content", "control_token_in_content", "bad_tool_call", "too_deeply_nested"),
    *("template_refuses", "template_drops_content", "template_rewrites_content", "generation_prompt_not_found", "stop_token_not_found"),
    *("template_drops_tools", "template_drops_names", "template_reorders_content", "no_stop_token"),
    *("mask_not_provable", "mask_border_inside_token", "nothing_to_train"),
    *("conflicting_reasoning", "unbalanced_reasoning", "inline_reasoning", "empty_answer"),
}


POLICIES = {
    "default": MaskOptions(),
    "all stop tokens": with_options(train_on_eos="all"),
    "no reasoning": with_options(train_thinking=False),
    "no tool calls": with_options(train_tool_calls=False),
    "last turn": with_options(train_turns="last", train_on_eos="last"),
    "every role": with_options(mask={}, mask_default="train"),
    "every role, no stop token": with_options(mask={}, mask_default="train", train_on_eos="none"),
    "headers": with_options(train_headers=True),
    "every token": with_options(mask={}, mask_default="train", train_headers=True, train_on_eos="all"),
}
