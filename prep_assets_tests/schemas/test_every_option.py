"""No option of a schema is accepted and ignored: each changes what a fitting row becomes, or is refused where it has no effect.

An option that names a field, a tag or a mark is walked without an entry: the row is written with another name, and only the option that says so
reads it as before. Every other option has an entry in `OTHER`; one that is added without fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Example
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.sessions import branch, claude, sidechain, trajectory

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
CALL = {"from": "function_call", "value": '{"name": "add", "arguments": {}}'}
SEEN = {"from": "observation", "value": "3"}
ASKED, ANSWERED = {"from": "human", "value": "<image> 1 + 2?"}, {"from": "gpt", "value": "3"}
SHAREGPT = {"system": "Be brief.", "conversations": [ASKED, CALL, SEEN, ANSWERED], "tools": [TOOL], "images": ["1.png"]}
SYSTEM_MESSAGE = {"from": "system", "value": "Be brief."}
PAIRWISE = {**SHAREGPT, "conversations": [ASKED, CALL, SEEN], "chosen": ANSWERED, "rejected": {"from": "gpt", "value": "4"}}
ALPACA = {
    "instruction": "Add.",
    "input": " 1 and 2",
    "system": "Be brief.",
    "history": [["Hi", "Hello"]],
    "output": " 3",
    "chosen": " 3",
    "rejected": "4",
}
SAMPLED = {
    "prompt": "1 + 2?",
    "responses": ["3", "4"],
    "rewards": [1, 0],
    "t": [[5], [6, 7]],
    "l": [[-1.0], [-0.5, -2.0]],
    "p": [1, 2],
    "m": [[1], [1, 1]],
    "r": [[1.0], [0.5]],
}
SIDES = {"chosen": "\n\nHuman: 1 + 2?\n\nAssistant: 3", "rejected": "\n\nHuman: 1 + 2?\n\nAssistant: 4"}
OTHER_PROMPT = {"chosen": SIDES["chosen"], "rejected": SIDES["rejected"].replace("1 +", "2 +")}
LONG_CHAT = {side: "\n\nHuman: Hi\n\nAssistant: Hello" + text for side, text in SIDES.items()}
QUESTION, ANSWER = {"role": "user", "content": "1?"}, {"role": "assistant", "content": "1."}
TWO_QUESTIONS = {"messages": [QUESTION, QUESTION, ANSWER]}
PLAIN_KTO = {"prompt": "1 + 2?", "completion": "3", "label": True}
FAR = {**schemas()["ultrafeedback"].example, "prompt": "Another one."}
WORDS = {"prompt": "Who?", "completion": "I am the keeper."}
CHAT = [{"role": "user", "content": "<image> 1 + 2?"}, {"role": "assistant", "content": "3"}]

TOKENS = {"prompt_ids": [1, 9], "completion_ids": [5, 2], "completion_mask": [1, 0], "completion_logprobs": [-1.0, -2.0]}
STEP = {"prompt": [QUESTION], "completion": [ANSWER], "tokens": TOKENS, "p": [1, 8], "t": [6, 2], "l": [-1.0, -3.0], "m": [1, 1], "r": 0.25}
LATER = {**STEP, "prompt": [QUESTION, ANSWER, QUESTION], "tokens": {**TOKENS, "prompt_ids": [1, 9, 5, 2, 1]}, "who": "helper"}
STEPPED = {"trajectory": [STEP, LATER], "reward": 1}

ROWS: Mapping[str, Mapping[str, Any]] = {
    "agent_steps": {**STEPPED, "runs": [STEPPED, STEPPED]},
    "alpaca": ALPACA,
    "alpaca_pairwise": ALPACA,
    "AlpacaStyleInstructionHandler": {**ALPACA, "a": "5"},
    "AlpacaStylePairwiseHandler": {**ALPACA, "a": "5"},
    "messages": {"messages": CHAT, "system": "Be brief.", "tools": [TOOL], "images": ["1.png"]},
    "preference": {"prompt": "1 + 2?", "chosen": "3", "rejected": "4", "tools": [TOOL], "system": "Be brief."},
    "prompt_completion": {"prompt": " 1 + 2?", "completion": "3"},
    "rl_prompt": {"prompt": "1 + 2?", "gold": "3", "tools": [TOOL], "v": "text"},
    "sharegpt": SHAREGPT,
    "SharegptStyleInstructionHandler": {**SHAREGPT, "a": "Be long."},
    "sharegpt_pairwise": PAIRWISE,
    "SharegptStylePairwiseHandler": {**PAIRWISE, "a": "Be long."},
    "PPOAlpacaStyleInstructionHandler": {**ALPACA, "a": "5"},
    "R1AlpacaStyleInstructionHandler": {**ALPACA, "output": "3", "a": "5"},
    "R1SharegptStyleInstructionHandler": {
        "conversations": [{"from": "human", "value": "1 + 2?"}, {"from": "gpt", "value": "3"}],
        "a": "Be long.",
    },
    "HunyuanInstructionHandler": {"messages": CHAT, "a": "Be long."},
    "common_words_mask": WORDS,
    "contrastive": {"query": "1 + 2?", "pos": ["3"], "neg": ["4"], "prompt": "Answer:", "a": "5"},
    "tokenized": {"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "text": "abc", "messages": [QUESTION, ANSWER]},
    "distilled": {
        "input_ids": [1, 2, 3],
        "labels": [-100, -100, 3],
        "text": "abc",
        "messages": [QUESTION, ANSWER],
        "target_token_ids": [[], [2, 4], [3, 1]],
        "target_logprobs": [[], [-0.25, -2.0], [-0.5, -1.5]],
        "target_mask": [[], [1, 1], [1, 0]],
        "sums": [0, 1, 1],
    },
}
"""Rows that show more options than the schema's own example."""

ROWS_OF: Mapping[tuple[str, str], Mapping[str, Any]] = {
    **{
        (name, "system_tag"): {**row, "system": "", "conversations": [SYSTEM_MESSAGE, *row["conversations"]]}
        for name, row in ROWS.items()
        if name in ("sharegpt", "sharegpt_pairwise")
    },
    **{
        (name, f"{kind}s_key"): {
            **ROWS[name],
            f"{kind}s": [f"1.{kind}"],
            "conversations": [{"from": "human", "value": f"<{kind}> <image>"}, *ROWS[name]["conversations"][1:]],
        }
        for name in ("sharegpt", "sharegpt_pairwise")
        for kind in ("audio", "video")
    },
    ("verifiers_trace", "branches"): {
        **schemas()["verifiers_trace"].example,
        "nodes": [*(nodes := schemas()["verifiers_trace"].example["nodes"]), {**nodes[3], "parent": 0}],
    },
    ("agent_session", "several"): {"lines": [*claude(), *branch()]},
    ("agent_session", "sidechains"): {"lines": [*claude(), *sidechain()]},
    ("agent_session", "open_end"): {"lines": claude()[:-1]},
    ("agent_session", "pass_over"): {"lines": [*claude(), {"type": "telepathy"}]},
    ("atif", "agent"): {**schemas()["atif"].example, "subagent_trajectories": [{**trajectory(), "trajectory_id": "t"}]},
    ("atif_group", "subagents"): {**trajectory(), "subagent_trajectories": [{**trajectory(1), "trajectory_id": "t"}]},
    **{(name, "request_key"): {"request": schemas()[name].example} for name in ("anthropic", "openai_responses")},
    ("anthropic", "response_key"): {**schemas()["anthropic"].example, "response": {"content": [{"type": "text", "text": "4."}]}},
    ("openai_responses", "response_key"): {
        **schemas()["openai_responses"].example,
        "response": {"output": [{"role": "user", "content": "So?"}]},
    },
    ("rl_prompt", "arguments_key"): {"prompt": "1 + 2?", "gold": "3", "v": ["1"]},
    **{("kto", option): PLAIN_KTO for option in ("prompt_key", "completion_key", "template")},
    **{("preference", option): SIDES for option in ("user_mark", "assistant_mark")},
    ("prompt_completion", "tools_key"): {"prompt": CHAT[:1], "completion": CHAT[1:], "tools": [TOOL], "images": ["1.png"]},
    ("preference", "template"): {"prompt": "1 + 2?", "chosen": "3", "rejected": "4"},
    ("ultra_chat_common_words_mask_hook", "later_messages"): {"prompt": "1?", "messages": [QUESTION, ANSWER, QUESTION, ANSWER]},
    ("messages", "order"): TWO_QUESTIONS,
    ("messages", "roles"): {"messages": [{"role": "human", "content": "1?"}, *CHAT[1:]]},
    ("preference", "roles"): {
        side: [{"role": "human", "content": "1?"}, {"role": "assistant", "content": answer}]
        for side, answer in (("chosen", "3"), ("rejected", "4"))
    },
    ("kto", "roles"): {"messages": [{"role": "human", "content": "1?"}, *CHAT[1:]], "label": True},
    ("hh", "prompt_check"): OTHER_PROMPT,
    ("hh", "split_turns"): LONG_CHAT,
    ("ultrafeedback", "prompt_check"): FAR,
    ("ultrafeedback", "completions_key"): {
        "instruction": "1 + 2?",
        "completions": [{"response": "3", "overall_score": 9}, {"response": "4", "overall_score": 2}],
    },
    ("dpo_read_hook", "prompt_key"): {"p": "1 + 2?", "chosen": "3", "rejected": "4"},
    ("dpo_read_hook", "assistant_role"): {"chosen": "1 + 2? bot: 3", "rejected": "1 + 2? bot: 4"},
    **{(name, "ties"): {"prompt": "1?", "responses": ["1", "2", "3"], "rewards": [1, 0, 1]} for name in ("group_pair", "group_list")},
    **{("group", option): SAMPLED for option in ("token_ids_key", "logprobs_key", "prompt_ids_key", "sampled_mask_key")},
    ("group", "turn_rewards_key"): SAMPLED,
    **{("tokenized", option): {"prompt_ids": [1, 2], "completion_ids": [3]} for option in ("prompt_ids_key", "completion_ids_key")},
    ("tokenized", "mask_keys"): {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1], "assistant_masks": [0, 0, 1]},
    ("distilled", "mask_keys"): {
        "input_ids": [1, 2],
        "loss_mask": [1, 1],
        "assistant_masks": [0, 1],
        "target_token_ids": [[2]],
        "target_logprobs": [[-1.0]],
    },
    ("distilled", "compression"): {"input_ids": [1, 2], "target_token_ids": [[32]], "target_logprobs": [[0, 0, 128, 191]]},
    ("semantic", "separator"): {"semantic_data_array": [{"type": kind, "content": [{"text": "a"}]} for kind in ("prompt", "completion")]},
    ("interleaved", "image_dir"): {"images": ["https://a.org/cat.jpg", None], "texts": [None, "A cat."]},
    ("text", "strip"): {"text": " A cat."},
    ("llama3_chat", "strip"): {"text": schemas()["llama3_chat"].example["text"].replace("Hi<", "Hi <")},
    ("sections", "sections"): {"messages": CHAT, "a": "1 + 2?", "b": "3"},
    ("sections", "sources"): {"messages": CHAT, "chosen": CHAT, "rejected": [CHAT[0], {**CHAT[1], "content": "4"}]},
    **{("sections", option): {"a": "1 + 2 = 3"} for option in ("min_chars", "max_chars")},
}
"""Rows for one option."""


def _field(name: str, action: str, template: bool = False) -> dict[str, Any]:
    return {"field": name, "action": action, "template": template}


PLAIN = {"sections": [_field("a", "train")]}
OTHER: Mapping[tuple[str, str], tuple[Any, Mapping[str, Any]]] = {
    ("agent_session", "several"): ("last", {}),
    ("agent_session", "sidechains"): ("leave_out", {}),
    ("agent_session", "open_end"): ("trim", {}),
    ("agent_session", "pass_over"): (["telepathy"], {}),
    ("atif", "agent"): ("t", {}),
    ("atif_group", "runs_key"): ("trials", {}),
    ("atif_group", "reward_key"): ("extra.score", {}),
    ("atif_group", "subagents"): ("train", {}),
    ("agent_steps", "runs_key"): ("runs", {}),
    ("agent_steps", "prompt_ids_key"): ("p", {}),
    ("agent_steps", "token_ids_key"): ("t", {}),
    ("agent_steps", "logprobs_key"): ("l", {}),
    ("agent_steps", "sampled_mask_key"): ("m", {}),
    ("agent_steps", "turn_rewards_key"): ("r", {}),
    ("agent_steps", "agent_key"): ("who", {}),
    ("agent_steps", "agents"): (["helper"], {"agent_key": "who"}),
    **{("alpaca", option): (value, {}) for option, value in (("join", "\n"), ("strip", False))},
    **{("alpaca_pairwise", option): (value, {}) for option, value in (("join", " "), ("strip", True))},
    ("AlpacaStyleInstructionHandler", "map_keys"): ({"response": "a"}, {}),
    ("AlpacaStylePairwiseHandler", "map_keys"): ({"rejected": "a"}, {}),
    ("SharegptStyleInstructionHandler", "map_keys"): ({"system": "a"}, {}),
    ("SharegptStylePairwiseHandler", "map_keys"): ({"system": "a"}, {}),
    ("PPOAlpacaStyleInstructionHandler", "map_keys"): ({"prompt": "a"}, {}),
    ("R1AlpacaStyleInstructionHandler", "map_keys"): ({"response": "a"}, {}),
    ("R1AlpacaStyleInstructionHandler", "verifier"): ("number", {}),
    ("R1SharegptStyleInstructionHandler", "map_keys"): ({"system": "a"}, {}),
    ("R1SharegptStyleInstructionHandler", "verifier"): ("number", {}),
    ("HunyuanInstructionHandler", "map_keys"): ({"system": "a"}, {}),
    ("common_words_mask", "words"): (["keeper."], {}),
    ("distilled", "compression"): ({"d": 16, "k": 1, "exact_k": 1, "residual_bins": []}, {}),
    ("distilled", "log_sum_key"): ("sums", {}),
    ("distilled", "mask_keys"): (["loss_mask"], {}),
    ("distilled", "shifted"): (True, {}),
    ("distilled", "teacher_shifted"): (True, {}),
    ("distilled", "top_k"): (1, {}),
    ("dolly", "join"): (" ", {}),
    ("dpo_read_hook", "prompt_key"): ("p", {}),
    ("dpo_read_hook", "assistant_role"): ("bot:", {}),
    ("finetuning_llava_hook", "phase"): (1, {}),
    ("finetuning_llava_hook_prompt_completion", "phase"): (1, {}),
    ("group", "token_ids_key"): ("t", {}),
    ("group", "logprobs_key"): ("l", {"token_ids_key": "t"}),
    ("group", "prompt_ids_key"): ("p", {"token_ids_key": "t"}),
    ("group", "sampled_mask_key"): ("m", {"token_ids_key": "t"}),
    ("group", "turn_rewards_key"): ("r", {"token_ids_key": "t", "sampled_mask_key": "m"}),
    ("group_pair", "min_margin"): (5.0, {}),
    ("group_pair", "margin"): (True, {}),
    ("group_pair", "ties"): ("refuse", {}),
    ("group_list", "ties"): ("refuse", {}),
    **{(name, "ranks_key"): ("rewards", {}) for name in ("group_list", "group_kto", "group_pair", "group_best")},
    **{(name, "marked_prompt"): (True, {}) for name in ("group_list", "group_kto", "group_pair", "group_best")},
    ("group_kto", "desirable_from"): (1.0, {}),
    ("compared", "margin"): (True, {}),
    ("group_best", "at_least"): (5.0, {}),
    ("math_shepherd", "tag"): ("<step>", {}),
    ("stepwise", "separator"): ("\n\n", {}),
    ("prm800k", "separator"): ("\n\n", {}),
    ("gsm8k", "thinking"): (True, {}),
    ("hh", "prompt_check"): ("chosen", {}),
    ("hh", "split_turns"): (True, {}),
    ("image_captions", "pretraining"): (True, {}),
    ("interleaved", "image_dir"): ("there", {}),
    ("kto", "roles"): ({"human": "user"}, {}),
    ("preference", "roles"): ({"human": "user"}, {}),
    ("kto", "template"): (False, {}),
    ("llama3_chat", "strip"): (False, {}),
    ("llava", "phase"): (1, {}),
    ("llava", "template"): (False, {}),
    ("messages", "order"): ("alternate", {}),
    ("messages", "roles"): ({"human": "user"}, {}),
    ("moss", "plugins"): (True, {}),
    ("moss", "system_key"): ("meta_instruction", {}),
    ("obelics_hook", "image_dir"): ("there", {}),
    ("preference", "template"): (False, {}),
    **{(name, "separator"): ("\n", {}) for name in ("prompt_completion", "prompt_completion_text_read_hook", "semantic")},
    ("prompt_completion", "strip"): (True, {}),
    ("prompt_completion", "template"): (True, {}),
    **{(name, "request_key"): ("request", {}) for name in ("anthropic", "openai_responses")},
    **{(name, "response_key"): ("response", {}) for name in ("anthropic", "openai_responses")},
    ("rl_prompt", "arguments_key"): ("v", {}),
    ("rl_prompt", "system"): ("Be brief.", {}),
    ("rl_prompt", "verifier"): ("text", {}),
    ("rl_prompt", "verifier_key"): ("v", {}),
    ("verifiers_trace", "branches"): ("last", {}),
    ("verifiers_trace", "agent"): ("solver", {}),
    ("sections", "sections"): ([_field("a", "mask"), _field("b", "train")], {}),
    ("sections", "sources"): ({side: {"sections": [_field(side, "$role", template=True)]} for side in ("chosen", "rejected")}, {}),
    ("sections", "min_chars"): (50, PLAIN),
    ("sections", "max_chars"): (3, PLAIN),
    ("semantic", "pretraining"): (True, {}),
    ("semantic", "semantic_attention_mask"): ({"answer": False}, {}),
    ("semantic", "semantic_drop_mask"): ({"answer": True}, {}),
    ("semantic", "semantic_loss_weight"): ({"answer": 0.5}, {}),
    ("contrastive", "query_key"): ("a", {}),
    ("contrastive", "positive_key"): ("a", {}),
    ("contrastive", "negative_key"): ("a", {}),
    ("tokenized", "mask_keys"): (["loss_mask"], {}),
    ("tokenized", "shifted"): (True, {}),
    ("text", "max_chars"): (3, {}),
    ("text", "min_chars"): (50, {}),
    ("text", "strip"): (True, {}),
    ("ultra_chat_common_words_mask_hook", "later_messages"): ("leave_out", {}),
    ("ultrafeedback", "min_margin"): (8.0, {}),
    ("ultrafeedback", "prompt_check"): ("column", {}),
}
"""Another value of each option that names nothing in the row, and the options beside it that give it a meaning."""

Rewrite = Callable[[str], str]
ALL = [(name, option) for name, each in schemas().items() for option in each.options]


def rewritten(value: Any, *, keys: Rewrite = str, texts: Rewrite = str) -> Any:
    """`value` with each key and each text inside it rewritten."""
    if isinstance(value, Mapping):
        return {keys(key): rewritten(each, keys=keys, texts=texts) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rewritten(each, keys=keys, texts=texts) for each in value]
    return texts(value) if isinstance(value, str) else value


def written_otherwise(option: str, name: str, row: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The value of `option` for a row in which its default `name` is written in another way, and that row. `None` if it names nothing."""

    def other(text: str) -> str:
        return "elsewhere" if text == name else text

    if option.endswith("_key") or option in ("role_tag", "content_tag"):
        return "elsewhere", rewritten(row, keys=other)
    if option.endswith("_tag"):
        return "elsewhere", rewritten(row, texts=other)
    if option.endswith("_mark") or option == "image_token":
        return "[mark]", rewritten(row, texts=lambda text: text.replace(name, "[mark]"))
    return None


def row_for(name: str, option: str) -> Mapping[str, Any]:
    return ROWS_OF.get((name, option), ROWS.get(name, schemas()[name].example))


def outcome(name: str, row: Mapping[str, Any], **options: Any) -> Example | str:
    """The example, or why the row is refused."""
    try:
        return apply(convert_with(name, options), row)
    except Refused as refusal:
        return refusal.reason


NAMING = [
    pytest.param(name, option, *found, id=f"{name}-{option}")
    for name, option in ALL
    if (name, option) not in OTHER
    if isinstance(default := schemas()[name].options[option].default, str)
    if (found := written_otherwise(option, default, row_for(name, option))) is not None
]


def test_every_option_of_every_schema_is_walked() -> None:
    named = {tuple(case.values[:2]) for case in NAMING}
    assert named | set(OTHER) == set(ALL)
    assert {*ROWS, *(name for name, _ in ROWS_OF)} <= set(schemas())
    assert set(ROWS_OF) <= set(ALL)


@cells(("name", "option", "value", "row"), NAMING)
def test_a_row_with_another_name_needs_the_option_that_says_so(name: str, option: str, value: str, row: Mapping[str, Any]) -> None:
    before = outcome(name, row_for(name, option))
    assert not isinstance(before, str), before
    assert outcome(name, row, **{option: value}) == before
    assert outcome(name, row) != before


@cells(("name", "option"), [pytest.param(*each, id="-".join(each)) for each in OTHER])
def test_another_value_changes_the_example_or_refuses_the_row(name: str, option: str) -> None:
    value, beside = OTHER[name, option]
    row = row_for(name, option)
    outcomes = [outcome(name, row, **beside), outcome(name, row, **beside, **{option: value})]
    assert outcomes[0] != outcomes[1]
    assert not all(isinstance(each, str) for each in outcomes), outcomes


NULLABLE = [
    (name, option)
    for name, option in ALL
    if isinstance(schemas()[name].options[option].default, str) and get_type_hints(schemas()[name].factory)[option] == str | None
]


@pytest.mark.parametrize(("name", "option"), NULLABLE)
def test_a_field_that_null_ignores_was_read_before(name: str, option: str) -> None:
    row, beside = row_for(name, option), {"verifier": "model"} if (name, option) == ("rl_prompt", "gold_key") else {}
    assert outcome(name, row, **beside, **{option: None}) != outcome(name, row, **beside)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("agent_steps", {"agents": ["helper"]}, "agent_key"),
        ("alpaca", {"query_key": None, "join": "\n"}, "join"),
        ("alpaca_pairwise", {"query_key": None, "join": " "}, "join"),
        ("dolly", {"context_key": None, "join": "\n"}, "join"),
        ("rl_prompt", {"verifier": "text", "verifier_key": "v"}, "verifier"),
        ("dpo_read_hook", {"prompt_key": "prompt", "assistant_role": "bot:"}, "assistant_role"),
        ("group", {"logprobs_key": "l"}, "token_ids_key"),
        ("group", {"token_ids_key": "t", "turn_rewards_key": "r"}, "sampled_mask_key"),
        ("prompt_completion", {"separator": "|", "template": True}, "separator"),
        ("sections", {"min_chars": 5}, "min_chars"),
        ("sections", {"max_chars": 5, "sections": [_field("a", "mask"), _field("b", "train")]}, "max_chars"),
        ("sections", {"max_chars": 5, "sources": OTHER["sections", "sources"][0]}, "max_chars"),
    ],
)
def test_an_option_that_means_nothing_beside_others_is_refused(name: str, options: Mapping[str, Any], said: str) -> None:
    """All but the one of `group` were accepted, and did nothing."""
    with pytest.raises(ConfigError, match=said):
        convert_with(name, options)
