"""Semantic data arrays: types, weights, masks and their defaults."""

from __future__ import annotations

import pytest

from prep_assets.samples import IMAGE, TEXT, Pair, Region


def array(*turns):
    return {"semantic_data_array": list(turns)}


def turn(kind, *content, **masks):
    return {"type": kind, "content": list(content), **{f"semantic_{key}": value for key, value in masks.items()}}


ANSWER = turn("assistant", {"text": "a"})


def weights(sample):
    return [[region.loss_weight for region in turn.regions] for turn in sample.turns]


def test_medical_question_trains_passage_and_answer(convert) -> None:
    """The motivating example of Cerebras' documentation: passage 1, question 0, answer by default."""
    row = array(turn("user", {"passage": "p"}, {"question": "q"}, loss_weight=[1, 0]), turn("assistant", {"answer": "a"}))
    sample = convert("semantic", row)
    assert sample.turns[0].regions == (Region("passage", "p", 1.0), Region("question", "q", 0.0))
    assert sample.turns[1].regions == (Region("answer", "a"),)


def test_without_weights_the_mask_policy_of_the_type_decides(convert) -> None:
    sample = convert("semantic", array(turn("system", {"text": "s"}), turn("user", {"text": "q"}), ANSWER))
    assert [turn.role for turn in sample.turns] == ["system", "user", "assistant"]
    assert weights(sample) == [[None], [None], [None]]
    assert all(region.attend and not region.drop for turn in sample.turns for region in turn.regions)


def test_fractions_survive(convert) -> None:
    sample = convert("semantic", array(turn("prompt", {"text": "p"}), turn("completion", {"a": "x"}, {"b": "y"}, loss_weight=[0.5, True])))
    assert weights(sample) == [[None], [0.5, 1.0]]


def test_defaults_by_region_name_with_zero_honoured_and_the_turns_own_list_first(convert) -> None:
    row = array(turn("user", {"passage": "p"}, {"text": "q"}), turn("assistant", {"passage": "x"}, {"text": "a"}, loss_weight=[0.25, 0.75]))
    options = {
        "semantic_loss_weight": {"passage": 1, "text": 0},
        "semantic_drop_mask": {"passage": True},
        "semantic_attention_mask": {"passage": 0},
    }
    sample = convert("semantic", row, **options)
    assert weights(sample) == [[1.0, 0.0], [0.25, 0.75]]
    assert [[(region.drop, region.attend) for region in turn.regions] for turn in sample.turns] == [[(True, False), (False, True)]] * 2


def test_turn_masks(convert) -> None:
    row = array(
        turn("prompt", {"image": "i.png"}, {"text": "t"}, drop_mask=[False, True], attention_mask=[1, 0]), turn("completion", {"text": "c"})
    )
    assert convert("semantic", row).turns[0].regions == (Region(IMAGE, "i.png", 0.0), Region(TEXT, "t", None, attend=False, drop=True))


@pytest.mark.parametrize("kind", ["user", "assistant", "completion"])
def test_an_image_weighs_nothing_unless_the_row_says_so(convert, kind) -> None:
    content = [{"image": "i.png"}, {"text": "t"}]
    rest = [turn("completion", {"text": "c"})] if kind == "completion" else [turn("assistant", {"text": "c"})]
    assert weights(convert("semantic", array(turn(kind, *content), *rest)))[0] == [0.0, None]
    assert weights(convert("semantic", array(turn(kind, *content, loss_weight=[1, 1]), *rest)))[0] == [1.0, 1.0]


def test_untyped_turns_are_one_document(convert) -> None:
    row = array({"content": [{"text": "a"}, {"image": "i.png"}]}, {"content": [{"text": "b"}], "semantic_loss_weight": [0]})
    (document,) = convert("semantic", row).turns
    assert document.role == "document"
    assert document.regions == (Region(TEXT, "a"), Region(IMAGE, "i.png", 0.0), Region(TEXT, "b", 0.0))


def test_pretraining_ignores_types_and_leaves_empty_regions_out(convert, refusal) -> None:
    row = array(turn("user", {"text": "a"}, {"text": ""}, {"text": None}, loss_weight=[1, 0, 0]), ANSWER)
    assert convert("semantic", row, pretraining=True).turns[0].regions == (Region(TEXT, "a", 1.0), Region(TEXT, "a"))
    assert refusal("semantic", row).reason == "empty_region"
    assert refusal("semantic", array({"content": [{"text": ""}]})).reason == "empty_text"


def test_tags(convert) -> None:
    content = [{"passage": "p", "include_tags": True}, {"image": "i.png", "include_tags": True}, {"text": "t", "include_tags": False}]
    user = convert("semantic", array(turn("user", *content, loss_weight=[1, 0.5, 0]), ANSWER)).turns[0]
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
    row = array(turn("prompt", {"text": "q"}), turn("rejected", {"text": "r"}), turn("chosen", {"text": "c"}))
    pair = convert("semantic", row)
    assert isinstance(pair, Pair)
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "c")], [("assistant", "r")])
    for turns in (row["semantic_data_array"][:2], row["semantic_data_array"][1:], [*row["semantic_data_array"], ANSWER]):
        assert refusal("semantic", array(*turns)).reason in ("role_order", "empty_prompt")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (array(), "empty_text"),
        (array(turn("user", {"text": "q"})), "no_assistant_turn"),
        (array(turn("prompt", {"text": "q"})), "no_completion"),
        (array(turn("human", {"text": "q"}), ANSWER), "unknown_role"),
        (array(turn("user", {"text": "q"}), turn("completion", {"text": "a"})), "mixed_types"),
        (array({"content": [{"text": "q"}]}, ANSWER), "mixed_types"),
        (array(turn("user", {"text": "q"}, loss_weight=[1, 0]), ANSWER), "length_mismatch"),
        (array(turn("user", {"text": "q"}, drop_mask=[]), ANSWER), "length_mismatch"),
        (array(turn("user", {"text": "q"}, loss_weight=[-1]), ANSWER), "bad_weight"),
        (array(turn("user", {"text": "q"}, attention_mask=[2]), ANSWER), "wrong_type"),
        (array(turn("user", {"text": "q", "other": "x"}), ANSWER), "wrong_type"),
        (array(turn("user", {"text": ["q"]}), ANSWER), "wrong_type"),
        (array(turn("user"), ANSWER), "empty_region"),
        (array({"type": "user"}, ANSWER), "missing_field"),
        (array(turn("user", {"text": "q"}, loss_weight="1"), ANSWER), "wrong_type"),
    ],
)
def test_arrays_that_are_none_are_refused(refusal, row, reason) -> None:
    assert refusal("semantic", row).reason == reason
