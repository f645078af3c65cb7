"""KTO labels, RL prompts and reward groups."""

from __future__ import annotations

import pytest

QUESTION, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize("label", [True, False])
def test_kto_of_messages_and_of_prompt_and_completion(convert, said, label) -> None:
    for row in (
        {"messages": [QUESTION, ANSWER]},
        {"prompt": "q", "completion": "a"},
        {"prompt": [QUESTION], "completion": [ANSWER]},
    ):
        sample = convert("kto", {**row, "label": label})
        assert (said(sample.turns), sample.label) == ([("user", "q"), ("assistant", "a")], label)


def test_kto_of_sharegpt_rows(convert, said) -> None:
    row = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "kto_tag": False}
    options = {"messages_key": "conversations", "role_key": "from", "content_key": "value", "label_key": "kto_tag"}
    sample = convert("kto", row, **options, roles={"human": "user", "gpt": "assistant"})
    assert (said(sample.turns), sample.label) == ([("user", "q"), ("assistant", "a")], False)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [QUESTION, ANSWER]}, "missing_field"),
        ({"messages": [QUESTION, ANSWER], "label": 1}, "wrong_type"),
        ({"messages": [QUESTION, ANSWER], "label": "true"}, "wrong_type"),
        ({"messages": [QUESTION, ANSWER, QUESTION], "label": True}, "role_order"),
        ({"messages": [QUESTION], "label": True}, "no_assistant_turn"),
        ({"label": True}, "missing_field"),
    ],
)
def test_kto_refuses(refusal, row, reason) -> None:
    assert refusal("kto", row).reason == reason


@pytest.mark.parametrize(("gold", "exact"), [("1,234", "1234"), ("$5", "5"), (18.0, "18"), (18, "18"), (-0.5, "-0.5"), (" 7 ", "7")])
def test_number_golds_are_exact_strings(convert, gold, exact) -> None:
    prompt = convert("rl_prompt", {"prompt": " q ", "gold": gold})
    assert (prompt.prompt[0].role, prompt.prompt[0].text, prompt.gold, prompt.verifier) == ("user", " q ", exact, "number")


def test_other_verifiers_get_the_gold_as_it_is(convert) -> None:
    row = {"prompt": "q", "answer": " 1/2 ", "ability": "latex"}
    assert convert("rl_prompt", row, gold_key="answer", verifier="exact").gold == " 1/2 "
    prompt = convert("rl_prompt", row, gold_key="answer", verifier_key="ability")
    assert (prompt.gold, prompt.verifier) == (" 1/2 ", "latex")


def test_verl_rows(convert, said) -> None:
    row = {"prompt": [QUESTION], "data_source": "openai/gsm8k", "reward_model": {"style": "rule", "ground_truth": "72"}}
    prompt = convert("rl_prompt", row, gold_key="reward_model.ground_truth")
    assert (said(prompt.prompt), prompt.gold) == ([("user", "q")], "72")


def test_a_field_whose_name_has_dots_goes_before_the_path(convert) -> None:
    row = {"prompt": "q", "a.b": "1", "a": {"b": "2"}}
    assert convert("rl_prompt", row, gold_key="a.b").gold == "1"


def test_a_system_prompt_for_prompts_that_have_none(convert, said) -> None:
    assert said(convert("rl_prompt", {"prompt": "q", "gold": "1"}, system="s").prompt) == [("system", "s"), ("user", "q")]
    own = {"prompt": [{"role": "system", "content": "own"}, QUESTION], "gold": "1"}
    assert said(convert("rl_prompt", own, system="s").prompt) == [("system", "own"), ("user", "q")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "q"}, "missing_field"),
        ({"prompt": "q", "gold": ""}, "no_gold"),
        ({"prompt": "q", "gold": "forty"}, "bad_gold"),
        ({"prompt": "q", "gold": float("nan")}, "bad_gold"),
        ({"prompt": "q", "gold": True}, "wrong_type"),
        ({"prompt": "q", "gold": ["1"]}, "wrong_type"),
        ({"prompt": " ", "gold": "1"}, "empty_prompt"),
        ({"prompt": [QUESTION, ANSWER], "gold": "1"}, "role_order"),
        ({"prompt": [], "gold": "1"}, "empty_prompt"),
        ({"prompt": {"text": "q"}, "gold": "1"}, "wrong_type"),
        ({"prompt": "<image>q", "gold": "1", "images": ["1.jpg"]}, "unsupported_media"),
        ({"prompt": "<image>q", "gold": "1", "image": "1.jpg"}, "unsupported_media"),
    ],
)
def test_rl_prompt_refuses(refusal, row, reason) -> None:
    assert refusal("rl_prompt", row).reason == reason


def test_a_missing_step_of_a_path_is_named(refusal) -> None:
    assert "'ground_truth'" in refusal("rl_prompt", {"prompt": "q", "a": {}}, gold_key="a.ground_truth").detail
    assert refusal("rl_prompt", {"prompt": "q", "a": 5}, gold_key="a.b").reason == "wrong_type"


def test_groups_keep_their_size_and_rewards_stay_floats(convert, said) -> None:
    group = convert("group", {"prompt": "q", "responses": ["a", [ANSWER]], "rewards": [0.8, -0.3]})
    assert said(group.prompt) == [("user", "q")]
    assert [said(response) for response in group.responses] == [[("assistant", "a")], [("assistant", "a")]]
    assert group.rewards == (0.8, -0.3)
    assert convert("group", {"prompt": [QUESTION], "responses": ["a"], "rewards": 1}).rewards == (1.0,)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rewards": [1.0]}, "length_mismatch"),
        ({"responses": [], "rewards": []}, "length_mismatch"),
        ({"responses": ["a", " "]}, "empty_answer"),
        ({"responses": ["a", [QUESTION]]}, "no_assistant_turn"),
        ({"responses": ["a", [QUESTION, ANSWER]]}, "role_order"),
        ({"rewards": [1.0, None]}, "wrong_type"),
        ({"rewards": [1.0, True]}, "wrong_type"),
        ({"rewards": [1.0, float("inf")]}, "wrong_type"),
        ({"responses": "ab"}, "wrong_type"),
        ({"image": "0.jpg"}, "unsupported_media"),
        ({"history": [["a", "b"]]}, "unsupported_column"),
        ({"label": True}, "unsupported_column"),
    ],
)
def test_group_refuses(refusal, change, reason) -> None:
    assert refusal("group", {"prompt": "q", "responses": ["a", "b"], "rewards": [1.0, 0.0], **change}).reason == reason
