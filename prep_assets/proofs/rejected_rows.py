"""Rejected rows, judged by definitions of formats and by rules: which reasons of which schema are derived again, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from prep_assets.proofs import pair_rules, value_rules
from prep_assets.proofs import row_rules as rules
from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import Judged, Message, Rule, chats, letters
from prep_assets.samples import Row

# Which reasons are beyond the definitions.

Rules = Mapping[str, Rule | None]
"""A reason for rejecting a row that its definition accepts → the rule that derives it again; `None` where none does."""
BESIDE: Rules = {
    "conflicting_weights": rules.several_weights,
    "conflicting_tools": None,
    "bad_tools": value_rules.no_json,
    "wrong_type": value_rules.no_json,
    "bad_weight": rules.unstorable_weight,
}
CHAT: Rules = {
    **BESIDE,
    "role_order": rules.result_without_call,
    "unknown_tool": rules.not_offered,
    "unknown_tool_call": rules.unknown_result,
    "unanswered_tool_call": rules.missing_result,
    "conflicting_reasoning": rules.several_thoughts,
    "conflicting_content": rules.several_contents,
    "bad_tool_call": value_rules.no_json,
    "weighted_space": None,
    **{f"{kind}_count": rules.miscounted(kind) for kind in ("image", "audio", "video")},
}
SYSTEM: Rules = {"two_systems": rules.several_systems}
PROMPT: Rules = {**CHAT, **SYSTEM, "role_order": rules.open_prompt}
PAIR: Rules = {**CHAT, **SYSTEM, "equal_answers": pair_rules.equal_sides}
GROUP: Rules = {
    **PROMPT,
    "length_mismatch": value_rules.group_lengths,
    "positive_logprob": None,
    "logprobs_all_zero": value_rules.no_chance,
}
RANKED: Rules = {**PROMPT, "length_mismatch": value_rules.group_lengths, "leading_text": None, "empty_turn": None, "empty_answer": None}
GOLD: Rules = {"no_gold": value_rules.no_mark, "bad_gold": value_rules.no_number}
TOKENS: Rules = {
    **CHAT,
    **SYSTEM,
    **dict.fromkeys(("no_mask", "length_mismatch", "empty_text", "labels_shifted", "labels_differ", "masks_disagree")),
    **dict.fromkeys(("attention_hole", "trained_padding", "packed_row")),
}
ANYWHERE: Rules = {"order_contradicted": rules.out_of_order, "mixed_conversations": rules.mixed}
"""Reasons of all schemas, about fields that they do not read."""
OPEN = frozenset(("agent_steps", "anthropic", "distilled", "openai_responses", "prm800k", "sections", "semantic", "verifiers_trace"))
"""Schemas whose definition is of their outermost objects only: any reason without a rule is beyond it."""

BEYOND: Mapping[str, Rules] = {
    "text": {},
    "AlpacaPretrainHandler": {},
    "StackOverflowPythonPretrainHandler": {},
    "SharegptPretrainHandler": {},
    "interleaved": {
        "length_mismatch": value_rules.uneven("images_key", "texts_key"),
        "interleaving": value_rules.image_or_text,
        "empty_text": value_rules.nothing_interleaved,
        "missing_image": None,
        "wrong_type": value_rules.no_json,
    },
    "image_captions": {"wrong_type": value_rules.no_json},
    "llava": {**BESIDE, "image_count": rules.llava_places, "missing_image": rules.llava_places, **SYSTEM},
    "messages": {**CHAT, **SYSTEM, "role_order": rules.any_order},
    "sharegpt": {**CHAT, **SYSTEM, "role_order": rules.alternating_order},
    "R1SharegptStyleInstructionHandler": {**CHAT, **SYSTEM, "role_order": rules.alternating_order, "bad_gold": value_rules.no_gold_answer},
    "sharegpt_pairwise": {**PAIR, "role_order": rules.pairwise_order, "empty_prompt": None},
    "kto": {**CHAT, **SYSTEM, "role_order": rules.labelled_order},
    "prompt_completion": PROMPT,
    "instruction": BESIDE,
    "alpaca": {**BESIDE, "conflicting_reasoning": rules.several_thoughts, "weighted_space": None},
    "alpaca_pairwise": {**BESIDE, "equal_answers": pair_rules.equal_sides},
    "R1AlpacaStyleInstructionHandler": {**BESIDE, "bad_gold": value_rules.no_gold_answer},
    "PPOAlpacaStyleInstructionHandler": BESIDE,
    "leetcode_python": {"empty_prompt": value_rules.no_problem, "trailing_text": value_rules.more_problem},
    "gsm8k": {**GOLD, "empty_answer": value_rules.no_solution},
    "gsm8k_prompt": GOLD,
    "moss": dict.fromkeys(("empty_answer", "empty_turn", "bad_tool_call", "role_order")),
    "belle": dict.fromkeys(("role_order", "leading_text", "empty_turn", "empty_answer"), value_rules.belle_turns),
    "llama3_chat": dict.fromkeys(("leftover_text", "unknown_role", "empty_answer", "no_assistant_turn")),
    "common_words_mask": {},
    "ultra_chat_common_words_mask_hook": {"prompts_differ": value_rules.other_question},
    "nlg_read_hook": {**BESIDE, **TOKENS},
    "tokenized": TOKENS,
    "distilled": {},
    "preference": {
        **PAIR,
        "role_order": pair_rules.pair_order,
        "prompts_differ": pair_rules.other_prompts,
        "empty_prompt": pair_rules.nothing_before,
        "empty_answer": pair_rules.no_side,
        "leading_text": None,
        "empty_turn": None,
        "missing_field": None,
        "unsupported_column": None,
    },
    "compared": {
        **PAIR,
        "role_order": pair_rules.pair_order,
        **dict.fromkeys(("prompts_differ", "empty_prompt", "empty_answer", "leading_text", "empty_turn")),
    },
    "dpo_read_hook": {
        **PAIR,
        "equal_answers": None,
        "role_order": None,
        "no_assistant_turn": pair_rules.dpo_no_mark,
        "prompts_differ": pair_rules.dpo_prompts,
        **dict.fromkeys(("empty_prompt", "empty_answer", "leading_text", "empty_turn")),
    },
    "hh": {
        **BESIDE,
        "prompts_differ": pair_rules.hh_prompts,
        "empty_prompt": pair_rules.hh_no_prompt,
        "empty_answer": pair_rules.hh_no_answer,
        "equal_answers": pair_rules.hh_equal,
        "role_order": pair_rules.hh_open,
        "leading_text": pair_rules.hh_turns,
        "empty_turn": pair_rules.hh_turns,
    },
    "ultrafeedback": {
        **BESIDE,
        "prompts_differ": pair_rules.ultra_prompts,
        "empty_answer": pair_rules.ultra_last,
        "no_assistant_turn": pair_rules.ultra_last,
        "equal_answers": pair_rules.ultra_equal,
        "small_margin": pair_rules.ultra_margin,
        "score_contradicts": None,
        "wrong_type": None,
        "unsupported_column": None,
        "missing_field": None,
    },
    "rl_prompt": {**PROMPT, "bad_gold": value_rules.no_gold, "bad_arguments": None, "missing_field": None},
    "arithmetic": {**BESIDE, "not_arithmetic": value_rules.no_sum, "wrong_gold": value_rules.wrong_sum, "bad_gold": value_rules.no_gold},
    "group": GROUP,
    "group_list": {
        **RANKED,
        "single_response": value_rules.one_response,
        "equal_rewards": value_rules.one_reward,
        "tied_rewards": value_rules.tied_rewards,
        "contradicting_rewards": None,
    },
    "group_kto": {
        **RANKED,
        "single_response": value_rules.one_response,
        "equal_rewards": value_rules.one_reward,
        "several_turns": value_rules.several_turns,
        "contradicting_rewards": None,
    },
    "group_pair": {
        **RANKED,
        "equal_rewards": value_rules.one_reward,
        "small_margin": value_rules.near_rewards,
        "tied_rewards": value_rules.tied_rewards,
        "equal_answers": None,
    },
    "group_best": {**RANKED, "low_reward": value_rules.low_rewards},
    "stepwise": {**PROMPT, "length_mismatch": value_rules.uneven("completions_key", "labels_key")},
    "math_shepherd": {**BESIDE, **dict.fromkeys(("bad_steps", "empty_prompt", "empty_answer", "length_mismatch"))},
    "prm800k": {"unrated_step": value_rules.unrated_step, "length_mismatch": value_rules.no_such_completion},
    "agent_steps": {},
    "verifiers_trace": {},
    "anthropic": {},
    "openai_responses": {},
    "semantic": {
        "length_mismatch": value_rules.uneven_regions,
        "empty_region": value_rules.empty_region,
        "empty_text": value_rules.blank_regions,
        "mixed_types": value_rules.mixed_types,
    },
    "sections": {},
    "contrastive": {"conflicting_fields": value_rules.several_fields, "length_mismatch": None, "wrong_type": value_rules.no_json},
    "ques_embed_gen_hook": {"wrong_type": value_rules.no_json},
    "ctx_embed_gen_hook": {"wrong_type": value_rules.no_json},
}


# Rulings.


def ruling(format: Format, row: Row, reason: str) -> str | None:
    """Judge a row that a schema rejects. Returns ``""`` where its definition or a rule rejects it too, `None` where neither can tell, else why it is right."""
    found = format.of(row)
    if found is None or isinstance(found, bool):
        return None if found is None else ""
    accepting, read = found
    beyond = BEYOND[accepting.name]
    if accepting.name in OPEN and reason not in beyond:
        return None
    if reason not in beyond and reason not in ANYWHERE:
        return f"the definition of {accepting.name!r} accepts it, and no rule beyond it rejects a row for {reason!r}"
    must = _must(beyond.get(reason, ANYWHERE.get(reason)), read, accepting)
    if must is None:
        return None
    return "" if must else f"the definition of {accepting.name!r} accepts it, and a second reading finds no {reason!r}"


def kept_fault(format: Format, row: Row) -> str:
    """Return why a row that its schema takes must be rejected; ``""`` where nothing says so."""
    found = format.of(row)
    if found is None:
        return ""
    if isinstance(found, bool):
        return f"the definition of {format.name!r} does not accept it"
    accepting, read = found[0], Judged(found[1])
    keys = _keys(read, accepting)
    for reason, rule, about in _of_kept(accepting.name):
        if (about is None or not keys.isdisjoint(about)) and _must(rule, read, accepting):
            return f"a second reading finds {reason!r}"
    return ""


@lru_cache(1 << 8)
def _of_kept(name: str) -> list[tuple[str, Rule, Sequence[str] | None]]:
    """Return the rules that rows of a schema are judged by, their reasons, and the fields that each needs."""
    return [
        (reason, rule, _ABOUT.get(reason)) for reason, rule in BEYOND[name].items() if rule is not None and rule is not value_rules.no_json
    ]


def _must(rule: Rule | None, row: Row, format: Format) -> bool | None:
    try:
        return None if rule is None else rule(row, format)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):  # a form that it does not know
        return None


_PARTS = "parts of a content"
_COUNTED, _TOOLS = "files", "tools"
_FILES = ("image", "audio", "video", _PARTS)
_ABOUT: Mapping[str, Sequence[str]] = {
    "conflicting_weights": (*rules.WEIGHTS, _PARTS),
    "conflicting_reasoning": (*rules.REASONING, "reasoning_details", _PARTS),
    "conflicting_content": (_PARTS,),
    "two_systems": ("system",),
    **dict.fromkeys(("unknown_tool_call", "unanswered_tool_call", "unknown_tool"), (_TOOLS,)),
    **dict.fromkeys(("image_count", "audio_count", "video_count"), (_COUNTED,)),
}
"""Reasons that need one of these fields: most rows have none of them."""


def _tags(chat: Sequence[Message], format: Format) -> Iterator[str]:
    return (message.get(format.options.get("role_key", "role"), "") for message in chat)


def _keys(row: Row, format: Format) -> set[str]:
    """Return the names of a row's fields and of those of its messages, and `_PARTS` where a content has parts."""
    keys, content = set(row), format.options.get("content_key", "content")
    for chat in chats(row, format):
        keys.update(*chat)
        if any(type(message.get(content)) is list for message in chat):
            keys.add(_PARTS)
        if (
            not keys.isdisjoint((*rules.CALLS, "tool_call_id"))
            or _PARTS in keys
            or "t" in letters(chat, format)
            or not {*format.calls}.isdisjoint(_tags(chat, format))
        ):
            keys.add(_TOOLS)
    if format.options.get("system_key") in row:
        keys.add("system")
    files = {*_FILES, format.options.get("images_key"), format.options.get("audios_key"), format.options.get("videos_key")}
    return keys if keys.isdisjoint(files) else keys | {_COUNTED}
