"""AstrAI's sections and sources."""

from __future__ import annotations

import pytest

from prep_assets.errors import ConfigError
from prep_assets.samples import Group, Pair, Region
from prep_assets.schemas.registry import convert_with

MASK_P = {"field": "p", "action": "mask", "add_special_tokens": True}
TRAIN_R = {"field": "r", "action": "train", "add_special_tokens": False}
CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_without_options_it_is_the_built_in_chat(convert, said) -> None:
    sample = convert("sections", {"messages": CHAT})
    assert said(sample.turns) == [("user", "q"), ("assistant", "a")]
    assert [turn.regions[0].loss_weight for turn in sample.turns] == [None, None]


def test_prompt_masked_response_trained(convert) -> None:
    sample = convert("sections", {"p": "q: ", "r": "a"}, sections=[MASK_P, TRAIN_R])
    assert [(turn.role, turn.regions) for turn in sample.turns] == [
        ("prompt", (Region("text", "q: ", 0.0),)),
        ("completion", (Region("text", "a", 1.0),)),
    ]


def test_the_reverse_is_possible(convert) -> None:
    sample = convert("sections", {"p": "q", "r": "a"}, sections=[{"field": "p", "action": "train"}, {"field": "r", "action": "mask"}])
    assert [(turn.role, turn.regions[0].loss_weight) for turn in sample.turns] == [("completion", 1.0), ("prompt", 0.0)]


def test_all_trained_and_plain_is_a_document(convert, refusal) -> None:
    options = {"sections": [{"field": "title", "action": "train"}, {"field": "text", "action": "train"}], "min_chars": 2, "max_chars": 4}
    (document,) = convert("sections", {"title": "ab", "text": "cdef"}, **options).turns
    assert (document.role, document.text) == ("document", "abcdef")
    assert convert("sections", {"title": None, "text": "cdef"}, **options).turns[0].text == "cdef"
    assert refusal("sections", {"title": "a", "text": "cdef"}, **options).reason == "too_short"
    assert refusal("sections", {"title": "ab", "text": "cdefg"}, **options).reason == "too_long"
    assert refusal("sections", {"title": " "}, **options).reason == "nothing_to_train"


def test_null_is_no_text_and_numbers_are_theirs(convert, refusal, said) -> None:
    """AstrAI trains on the word None here."""
    assert refusal("sections", {"p": "q", "r": None}, sections=[MASK_P, TRAIN_R]).reason == "nothing_to_train"
    assert said(convert("sections", {"p": None, "r": 4}, sections=[MASK_P, TRAIN_R]).turns) == [("completion", "4")]
    assert refusal("sections", {"p": "q", "r": True}, sections=[MASK_P, TRAIN_R]).reason == "wrong_type"


@pytest.mark.parametrize(("action", "weights"), [("$role", [None, None]), ("train", [1.0, 1.0])])
def test_actions_of_a_templated_section(convert, action, weights) -> None:
    sample = convert("sections", {"m": CHAT}, sections=[{"field": "m", "action": action, "template": True}])
    assert [turn.regions[0].loss_weight for turn in sample.turns] == weights


def test_a_chat_without_an_answer_is_refused(refusal) -> None:
    assert refusal("sections", {"messages": CHAT[:1]}).reason == "no_assistant_turn"
    assert refusal("sections", {"messages": CHAT, "images": ["1.jpg"]}).reason == "unsupported_media"


DPO = {
    side: {"sections": [{"field": side, "action": "$role", "template": True}], "mask_key": f"{side}_mask"}
    for side in ("chosen", "rejected")
}


def test_chosen_and_rejected_chats_are_a_pair(convert, refusal, said) -> None:
    bad = [CHAT[0], {"role": "assistant", "content": "b"}]
    pair = convert("sections", {"chosen": CHAT, "rejected": bad}, sources=DPO)
    assert isinstance(pair, Pair)
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "a")], [("assistant", "b")])
    assert refusal("sections", {"chosen": CHAT}, sources=DPO).reason == "missing_field"
    assert refusal("sections", {"chosen": CHAT, "rejected": CHAT}, sources=DPO).reason == "equal_answers"


def test_chosen_and_rejected_fields_are_a_pair(convert, said) -> None:
    sources = {
        side: {"sections": [{"field": "p", "action": "mask"}, {"field": side, "action": "train"}]} for side in ("chosen", "rejected")
    }
    pair = convert("sections", {"p": "q", "chosen": "a", "rejected": "b"}, sources=sources)
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("prompt", "q")], [("completion", "a")], [("completion", "b")])
    assert [turn.regions[0].loss_weight for turn in (*pair.prompt, *pair.chosen, *pair.rejected)] == [0.0, 1.0, 1.0]


def grpo(template=False):
    prompts = {"field": "p", "action": "mask", "template": template}
    responses = {"field": "r", "action": "train", "template": template}
    return {
        "prompts": {"sections": [prompts]},
        "responses": {"sections": [responses], "list_field": True, "mask_key": "masks"},
        "rewards": {"sections": [{"field": "s", "action": "value"}]},
    }


def test_prompts_responses_and_rewards_are_a_group(convert, said) -> None:
    group = convert("sections", {"p": "q", "r": ["a", "b"], "s": [0.8, -0.3]}, sources=grpo())
    assert isinstance(group, Group)
    assert (said(group.prompt), group.rewards) == ([("prompt", "q")], (0.8, -0.3))
    assert [said(response) for response in group.responses] == [[("completion", "a")], [("completion", "b")]]
    chats = convert("sections", {"p": CHAT[:1], "r": [CHAT[1:]], "s": 0.9}, sources=grpo(template=True))
    assert (said(chats.prompt), said(chats.responses[0]), chats.rewards) == ([("user", "q")], [("assistant", "a")], (0.9,))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"p": "q", "r": ["a", ""], "s": [1, 2]}, "empty_answer"),
        ({"p": "q", "r": ["a"], "s": [1, 2]}, "length_mismatch"),
        ({"p": "", "r": ["a"], "s": [1]}, "empty_prompt"),
        ({"p": "q", "r": ["a"], "s": None}, "missing_field"),
        ({"p": "q", "r": "a", "s": [1]}, "wrong_type"),
    ],
)
def test_groups_never_shrink(refusal, row, reason) -> None:
    assert refusal("sections", row, sources=grpo()).reason == reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sections": [{"field": "p", "action": "trane"}]}, r"action 'trane'; did you mean 'train'\?"),
        ({"sections": [{"feild": "p", "action": "train"}]}, r"no key 'feild'; did you mean 'field'\?"),
        ({"sections": [{"action": "train"}]}, "needs a field name"),
        ({"sections": [{"field": "p", "action": "$role"}]}, "without a template"),
        ({"sections": [{"field": "p", "action": "mask"}]}, "train nothing"),
        ({"sections": [{"field": "p", "action": "value"}]}, "train nothing"),
        ({"sections": [MASK_P, {"field": "r", "action": "train", "add_special_tokens": True}]}, "add_special_tokens can only be false"),
        ({"sections": [MASK_P, {"field": "m", "action": "$role", "template": True}]}, "mixes sections"),
        ({"sections": [TRAIN_R], "sources": DPO}, "both sections and sources"),
        ({"sources": {"chosen": DPO["chosen"]}}, "sources are chosen; known: chosen"),
        ({"sources": {**DPO, "chosen": {"section": []}}}, r"no key 'section'; did you mean 'sections'\?"),
        ({"sources": {**DPO, "chosen": {"sections": []}}}, "is empty"),
        ({"sources": {**DPO, "chosen": {**DPO["chosen"], "list_field": True}}}, "list_field must be false"),
        ({"sources": {**grpo(), "responses": {"sections": [{"field": "r", "action": "train"}]}}}, "list_field must be true"),
        ({"sources": {**grpo(), "rewards": {"sections": [TRAIN_R | {"add_special_tokens": True}]}}}, "action 'value' is for rewards"),
        ({"sources": {**grpo(), "prompts": {"sections": [{"field": "p", "action": "value"}]}}}, "action 'value' is for rewards"),
    ],
)
def test_configurations_that_mean_nothing(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        convert_with("sections", options)
