"""Documents, prompts and completions: text that no chat template touches."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, PROMPT, TEXT, USER, Group, Pair, Region, document, turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with


def test_a_document_is_one_turn_with_the_text_as_it_is(convert) -> None:
    assert convert("text", {"text": " a\n"}) == document(" a\n")
    assert convert("text", {"text": " a\n"}).turns[0].role == DOCUMENT
    assert convert("GeneralPretrainHandler", {"body": "a"}, text_key="body") == document("a")


def test_cerebras_hook_strips(convert) -> None:
    assert convert("text_read_hook", {"body": " a\n"}, text_key="body") == document("a")


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", {}, "empty_text"),
        (" \n", {}, "empty_text"),
        ("ab", {"min_chars": 3}, "too_short"),
        ("abcd", {"max_chars": 3}, "too_long"),
        (None, {}, "missing_field"),
        (5, {}, "wrong_type"),
    ],
)
def test_documents_outside_the_bounds_are_refused(refusal, text, options, reason) -> None:
    assert refusal("text", {"text": text}, **options).reason == reason


def test_the_bounds_are_inclusive_and_count_code_points(convert) -> None:
    for text in ("né✓", "abc", "  a"):
        assert convert("text", {"text": text}, min_chars=3, max_chars=3) == document(text)


def test_a_refusal_says_what_the_record_has(refusal) -> None:
    assert refusal("text", {"body": "x", "id": 1}).detail == "needs 'text'; it has 'body', 'id'"
    assert refusal("text", {}).detail == "needs 'text'; it has no fields"


def test_instruction_keeps_prompt_and_response_apart(convert, refusal) -> None:
    row = {"instruction": "Add 2 and 2: ", "output": "4"}
    sample = convert("instruction", row, prompt_key="instruction", response_key="output")
    assert sample.turns == (turn(PROMPT, "Add 2 and 2: "), turn(COMPLETION, "4"))
    assert refusal("instruction", {"prompt": "q", "response": " "}).reason == "empty_answer"
    assert refusal("instruction", {"prompt": " ", "response": "a"}).reason == "empty_prompt"


def test_prompt_completion_of_strings(convert, said) -> None:
    row = {"prompt": " q ", "completion": " a "}
    assert said(convert("prompt_completion", row).turns) == [("prompt", " q "), ("completion", " a ")]
    assert said(convert("prompt_completion", row, template=True).turns) == [("user", " q "), ("assistant", " a ")]
    assert said(convert("prompt_completion_text_read_hook", row).turns) == [("prompt", " q "), ("completion", " a ")]
    assert said(convert("prompt_completion_chat_read_hook", row).turns) == [("user", "q"), ("assistant", "a")]


def test_prompt_completion_keeps_the_tools(convert) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    for row in ({"prompt": "q", "completion": "a"}, chat):
        assert convert("prompt_completion", {**row, "tools": tools}, template=True).tools == tuple(tools)


def test_prompt_completion_of_messages_trains_the_completion_only(convert) -> None:
    row = {
        "prompt": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "content": "c", "weight": 0.5},
            {"role": "user", "content": "d"},
        ],
        "completion": [{"role": "assistant", "content": "e"}],
    }
    weights = [turn.regions[0].loss_weight for turn in convert("prompt_completion", row).turns]
    assert weights == [None, 0.0, 0.5, None, None]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "q", "completion": [{"role": "assistant", "content": "a"}]}, "wrong_type"),
        ({"prompt": [{"role": "user", "content": "q"}], "completion": "a"}, "wrong_type"),
        ({"prompt": [{"role": "assistant", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}, "role_order"),
        ({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "user", "content": "a"}]}, "no_assistant_turn"),
        ({"prompt": [], "completion": []}, "empty_prompt"),
        ({"prompt": "q", "completion": "a", "images": ["1.jpg"]}, "unsupported_media"),
    ],
)
def test_prompt_completion_refuses(refusal, row, reason) -> None:
    assert refusal("prompt_completion", row).reason == reason


def test_a_separator_stands_after_the_prompt_and_weighs_nothing(convert, refusal) -> None:
    """Cerebras: prompt + sep token + completion; the sep token belongs to no region, so its weight is 0."""
    prompt, completion = convert("prompt_completion", {"prompt": "2+2", "completion": "4"}, separator="<|sep|>").turns
    assert [(region.text, region.loss_weight) for region in prompt.regions] == [("2+2", None), ("<|sep|>", 0.0)]
    assert (prompt.text + completion.text, completion.role) == ("2+2<|sep|>4", "completion")
    messages = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    assert refusal("prompt_completion", messages, separator="|").reason == "wrong_type"


def test_token_ids_are_no_text(convert, refusal, said) -> None:
    assert refusal("nlg_read_hook", {"context": [1, 2], "completion": "c"}).reason == "wrong_type"
    assert refusal("nlg_read_hook", {"context": {}, "completion": "c"}).reason == "wrong_type"
    assert said(convert("nlg_read_hook", {"context": "a", "completion": "b"}).turns) == [("prompt", "a"), ("completion", "b")]


@pytest.mark.parametrize("given", ["", "2 and 2"])
def test_alpaca_in_modellinks_pretraining_template(convert, given) -> None:
    """The string of its handler, but for the input section, which is left out where it would say ``###None``."""
    text = convert("AlpacaPretrainHandler", {"instruction": "Add.", "input": given, "output": "4 {x}"}).turns[0].text
    section = f"### Input:\n{given}\n\n" if given else ""
    assert text == (
        "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers "
        "to the user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the "
        f"request.\n\n### Instruction:\nAdd.\n\n{section}### Response: ASSISTANT: 4 {{x}}"
    )


def test_modellinks_other_pretraining_handlers(convert, refusal) -> None:
    row = {"title": "Sort", "question_body": "How?", "answer_body": "sorted()"}
    text = convert("StackOverflowPythonPretrainHandler", row).turns[0].text
    assert text == "In python, Sort\n### Question:\nHow?\n### Response:\nsorted()\n"
    rows = {"conversations": [{"value": "a"}, {"content": "b"}, {"from": "gpt", "value": "c"}]}
    assert convert("SharegptPretrainHandler", rows).turns[0].text == "abc"
    assert refusal("SharegptPretrainHandler", {"conversations": [{"from": "gpt"}]}).reason == "missing_field"
    assert refusal("AlpacaPretrainHandler", {"instruction": "Add.", "input": "", "output": " "}).reason == "empty_text"


# -- rows of token ids: what each spelling of a mask says, and each way in which a row contradicts itself --------------------------------


CHAT = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "1."}]


def read(row: dict[str, Any], **options: Any) -> tuple[list[int], list[float]]:
    found = apply(convert_with("tokenized", options), row).tokenized  # type: ignore[union-attr]
    assert found is not None
    return list(found.ids), list(found.weights)


@pytest.mark.parametrize(
    ("row", "options", "ids", "weights"),
    [
        # TRL, axolotl and LLaMA-Factory: labels at the place of their token
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}, {}, [1, 2, 3], [0, 1, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, -100, 3], "attention_mask": [1, 1, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        # padding on either side is not stored
        ({"input_ids": [0, 1, 2, 0], "labels": [-100, -100, 2, -100], "attention_mask": [0, 1, 1, 0]}, {}, [1, 2], [0, 1]),
        # TRL's two masks, of which both must be 1
        ({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1], "assistant_masks": [1, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "labels": [1, 2, 3], "completion_mask": [0, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 0.5, True]}, {}, [1, 2, 3], [0, 0.5, 1]),
        # SkyRL: a prompt and a response, the mask as long as the response
        ({"prompt_ids": [1, 2], "completion_ids": [3, 4]}, {}, [1, 2, 3, 4], [0, 0, 1, 1]),
        (
            {"prompt_token_ids": [1, 2], "response_ids": [3, 4], "loss_masks": [0, 1]},
            {"prompt_ids_key": "prompt_token_ids", "completion_ids_key": "response_ids", "mask_keys": ["loss_masks"]},
            [1, 2, 3, 4],
            [0, 0, 0, 1],
        ),
        # Cerebras: labels one place before their token, the last token among them alone, a loss mask under the name attention_mask
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, 4]}, {"shifted": True}, [1, 2, 3, 4], [0, 0, 1, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, -100]}, {"shifted": True}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 0]}, {"shifted": True}, [1, 2, 3], [0, 0, 1]),
        (
            {"input_ids": [1, 2, 3, 0], "attention_mask": [0, 1, 1, 0], "labels": [2, 3, 0, 0]},
            {"shifted": True, "mask_keys": ["attention_mask"]},
            [1, 2, 3, 0],
            [0, 0, 1, 1],
        ),
    ],
)
def test_ids_and_weights(row: dict[str, Any], options: dict[str, Any], ids: list[int], weights: list[float]) -> None:
    assert read(row, **options) == (ids, weights)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"input_ids": [1, 2]}, "no_mask"),
        ({"labels": [1]}, "missing_field"),
        ({"input_ids": [1, 2], "labels": [1]}, "length_mismatch"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "length_mismatch"),
        ({"input_ids": [1, 2], "loss_mask": [1, 1], "attention_mask": [1]}, "length_mismatch"),
        ({"input_ids": [], "labels": []}, "empty_text"),
        ({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [0, 0]}, "empty_text"),
        ({"input_ids": [1, True], "labels": [1, 1]}, "wrong_type"),
        ({"input_ids": [1, 2.0], "labels": [1, 2]}, "wrong_type"),
        ({"input_ids": [1, 1 << 70], "labels": [1, 1]}, "wrong_type"),
        ({"input_ids": [1, 2], "loss_mask": [0, "1"]}, "wrong_type"),
        ({"input_ids": [1, 2], "loss_mask": [0, -1]}, "bad_weight"),
        ({"input_ids": [1, 2], "loss_mask": [0, float("nan")]}, "bad_weight"),
        ({"input_ids": [1, 2, 3], "labels": [2, 3, -100]}, "labels_shifted"),
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 4]}, "labels_differ"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "loss_mask": [1, 1]}, "masks_disagree"),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 0, 1], "attention_mask": [1, 0, 1]}, "attention_hole"),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1], "attention_mask": [1, 1, 0]}, "trained_padding"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "attention_mask": [1, 2]}, "wrong_type"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "seq_lengths": [1, 1]}, "packed_row"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "position_ids": [0, 0]}, "packed_row"),
        ({"input_ids": [1, 2], "labels": [-100, 2], "messages": [CHAT[0], {**CHAT[1], "weight": 0}]}, "masks_disagree"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as caught:
        read(row)
    assert caught.value.reason == reason


def test_text_and_messages_stay_beside_the_ids_as_evidence() -> None:
    sample = apply(
        convert_with("tokenized"), {"input_ids": [1, 2], "labels": [-100, 2], "text": "ab", "messages": CHAT, "position_ids": [0, 1]}
    )
    assert sample.tokenized.text == "ab"  # type: ignore[union-attr]
    assert [turn.role for turn in sample.turns] == [USER, ASSISTANT]  # type: ignore[union-attr]


def test_cerebras_hook_for_language_generation_hands_over_ids() -> None:
    """Their documentation: context and completion are lists of token ids; their own code ends with a NameError there."""
    found = apply(convert_with("nlg_read_hook"), {"context": [5, 6], "completion": [7]}).tokenized  # type: ignore[union-attr]
    assert found is not None and (found.ids, found.weights) == ((5, 6, 7), (0.0, 0.0, 1.0))


def test_a_loss_mask_under_the_name_of_the_attention_stands_alone() -> None:
    with pytest.raises(ConfigError, match="stands alone"):
        convert_with("tokenized", {"mask_keys": ["attention_mask", "loss_mask"]})


# -- semantic data arrays: types, weights, masks and their defaults ----------------------------------------------------------------------


def array(*turns):
    return {"semantic_data_array": list(turns)}


def typed(kind, *content, **masks):
    return {"type": kind, "content": list(content), **{f"semantic_{key}": value for key, value in masks.items()}}


ANSWER = typed("assistant", {"text": "a"})


def weights(sample):
    return [[region.loss_weight for region in typed.regions] for typed in sample.turns]


def test_medical_question_trains_passage_and_answer(convert) -> None:
    """The motivating example of Cerebras' documentation: passage 1, question 0, answer by default."""
    row = array(typed("user", {"passage": "p"}, {"question": "q"}, loss_weight=[1, 0]), typed("assistant", {"answer": "a"}))
    sample = convert("semantic", row)
    assert sample.turns[0].regions == (Region("passage", "p", 1.0), Region("question", "q", 0.0))
    assert sample.turns[1].regions == (Region("answer", "a"),)


def test_without_weights_the_mask_policy_of_the_type_decides(convert) -> None:
    sample = convert("semantic", array(typed("system", {"text": "s"}), typed("user", {"text": "q"}), ANSWER))
    assert [typed.role for typed in sample.turns] == ["system", "user", "assistant"]
    assert weights(sample) == [[None], [None], [None]]
    assert all(region.attend and not region.drop for typed in sample.turns for region in typed.regions)


def test_fractions_survive(convert) -> None:
    sample = convert(
        "semantic",
        array(typed("prompt", {"text": "p"}), typed("completion", {"a": "x"}, {"b": "y"}, loss_weight=[0.5, True])),
    )
    assert weights(sample) == [[None], [0.5, 1.0]]


def test_defaults_by_region_name_with_zero_honoured_and_the_turns_own_list_first(convert) -> None:
    row = array(
        typed("user", {"passage": "p"}, {"text": "q"}),
        typed("assistant", {"passage": "x"}, {"text": "a"}, loss_weight=[0.25, 0.75]),
    )
    options = {
        "semantic_loss_weight": {"passage": 1, "text": 0},
        "semantic_drop_mask": {"passage": True},
        "semantic_attention_mask": {"passage": 0},
    }
    sample = convert("semantic", row, **options)
    assert weights(sample) == [[1.0, 0.0], [0.25, 0.75]]
    assert [[(region.drop, region.attend) for region in typed.regions] for typed in sample.turns] == [[(True, False), (False, True)]] * 2


def test_turn_masks(convert) -> None:
    row = array(
        typed("prompt", {"image": "i.png"}, {"text": "t"}, drop_mask=[False, True], attention_mask=[1, 0]),
        typed("completion", {"text": "c"}),
    )
    assert convert("semantic", row).turns[0].regions == (Region(IMAGE, "i.png", 0.0), Region(TEXT, "t", None, attend=False, drop=True))


@pytest.mark.parametrize("kind", ["user", "assistant", "completion"])
def test_an_image_weighs_nothing_unless_the_row_says_so(convert, kind) -> None:
    content = [{"image": "i.png"}, {"text": "t"}]
    rest = [typed("completion", {"text": "c"})] if kind == "completion" else [typed("assistant", {"text": "c"})]
    assert weights(convert("semantic", array(typed(kind, *content), *rest)))[0] == [0.0, None]
    assert weights(convert("semantic", array(typed(kind, *content, loss_weight=[1, 1]), *rest)))[0] == [1.0, 1.0]


def test_untyped_turns_are_one_document(convert) -> None:
    row = array({"content": [{"text": "a"}, {"image": "i.png"}]}, {"content": [{"text": "b"}], "semantic_loss_weight": [0]})
    (document,) = convert("semantic", row).turns
    assert document.role == "document"
    assert document.regions == (Region(TEXT, "a"), Region(IMAGE, "i.png", 0.0), Region(TEXT, "b", 0.0))


def test_pretraining_ignores_types_and_leaves_empty_regions_out(convert, refusal) -> None:
    row = array(typed("user", {"text": "a"}, {"text": ""}, {"text": None}, loss_weight=[1, 0, 0]), ANSWER)
    assert convert("semantic", row, pretraining=True).turns[0].regions == (Region(TEXT, "a", 1.0), Region(TEXT, "a"))
    assert refusal("semantic", row).reason == "empty_region"
    assert refusal("semantic", array({"content": [{"text": ""}]})).reason == "empty_text"


def test_tags(convert) -> None:
    content = [{"passage": "p", "include_tags": True}, {"image": "i.png", "include_tags": True}, {"text": "t", "include_tags": False}]
    user = convert("semantic", array(typed("user", *content, loss_weight=[1, 0.5, 0]), ANSWER)).turns[0]
    assert user.regions == (
        Region("passage", "<passage>p</passage>", 1.0),
        Region(TEXT, "<image>", 0.5),
        Region(IMAGE, "i.png", 0.5),
        Region(TEXT, "</image>", 0.5),
        Region(TEXT, "t", 0.0),
    )
    document = convert("semantic", array({"content": content})).turns[0]
    assert document.text == "<|passage|>p<|passage|><|image|>i.png<|image|>t"


def test_preference_arrays(convert, refusal, said) -> None:
    row = array(typed("prompt", {"text": "q"}), typed("rejected", {"text": "r"}), typed("chosen", {"text": "c"}))
    pair = convert("semantic", row)
    assert isinstance(pair, Pair)
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "c")], [("assistant", "r")])
    for turns in (row["semantic_data_array"][:2], row["semantic_data_array"][1:], [*row["semantic_data_array"], ANSWER]):
        assert refusal("semantic", array(*turns)).reason in ("role_order", "empty_prompt")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (array(), "empty_text"),
        (array(typed("user", {"text": "q"})), "no_assistant_turn"),
        (array(typed("prompt", {"text": "q"})), "no_completion"),
        (array(typed("human", {"text": "q"}), ANSWER), "unknown_role"),
        (array(typed("user", {"text": "q"}), typed("completion", {"text": "a"})), "mixed_types"),
        (array({"content": [{"text": "q"}]}, ANSWER), "mixed_types"),
        (array(typed("user", {"text": "q"}, loss_weight=[1, 0]), ANSWER), "length_mismatch"),
        (array(typed("user", {"text": "q"}, drop_mask=[]), ANSWER), "length_mismatch"),
        (array(typed("user", {"text": "q"}, loss_weight=[-1]), ANSWER), "bad_weight"),
        (array(typed("user", {"text": "q"}, attention_mask=[2]), ANSWER), "wrong_type"),
        (array(typed("user", {"text": "q", "other": "x"}), ANSWER), "wrong_type"),
        (array(typed("user", {"text": ["q"]}), ANSWER), "wrong_type"),
        (array(typed("user"), ANSWER), "empty_region"),
        (array({"type": "user"}, ANSWER), "missing_field"),
        (array(typed("user", {"text": "q"}, loss_weight="1"), ANSWER), "wrong_type"),
    ],
)
def test_arrays_that_are_none_are_refused(refusal, row, reason) -> None:
    assert refusal("semantic", row).reason == reason


# -- astrAI's sections and sources -------------------------------------------------------------------------------------------------------


MASK_P = {"field": "p", "action": "mask", "add_special_tokens": True}
TRAIN_R = {"field": "r", "action": "train", "add_special_tokens": False}
CHAT_SECTIONS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def test_without_options_it_is_the_built_in_chat(convert, said) -> None:
    sample = convert("sections", {"messages": CHAT_SECTIONS})
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
    sample = convert("sections", {"m": CHAT_SECTIONS}, sections=[{"field": "m", "action": action, "template": True}])
    assert [turn.regions[0].loss_weight for turn in sample.turns] == weights


def test_a_chat_without_an_answer_is_refused(refusal) -> None:
    assert refusal("sections", {"messages": CHAT_SECTIONS[:1]}).reason == "no_assistant_turn"
    assert refusal("sections", {"messages": CHAT_SECTIONS, "images": ["1.jpg"]}).reason == "unsupported_media"


DPO = {
    side: {"sections": [{"field": side, "action": "$role", "template": True}], "mask_key": f"{side}_mask"}
    for side in ("chosen", "rejected")
}


def test_chosen_and_rejected_chats_are_a_pair(convert, refusal, said) -> None:
    bad = [CHAT_SECTIONS[0], {"role": "assistant", "content": "b"}]
    pair = convert("sections", {"chosen": CHAT_SECTIONS, "rejected": bad}, sources=DPO)
    assert isinstance(pair, Pair)
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "a")], [("assistant", "b")])
    assert refusal("sections", {"chosen": CHAT_SECTIONS}, sources=DPO).reason == "missing_field"
    assert refusal("sections", {"chosen": CHAT_SECTIONS, "rejected": CHAT_SECTIONS}, sources=DPO).reason == "equal_answers"


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
    chats = convert("sections", {"p": CHAT_SECTIONS[:1], "r": [CHAT_SECTIONS[1:]], "s": 0.9}, sources=grpo(template=True))
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
