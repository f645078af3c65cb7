"""Preference pairs: HH-RLHF, UltraFeedback, explicit and implicit prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.samples import ASSISTANT, USER
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with

PROMPT = "\n\nHuman: a\n\nAssistant: b\n\nHuman: c"


def hh(chosen: str, rejected: str, other_prompt: str = PROMPT) -> dict[str, str]:
    return {"chosen": f"{PROMPT}\n\nAssistant: {chosen}", "rejected": f"{other_prompt}\n\nAssistant: {rejected}"}


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


def test_hh_is_split_at_the_last_assistant(convert, said) -> None:
    pair = convert("hh", hh("good ", " bad"))
    assert said(pair.prompt) == [("user", PROMPT.strip())]
    assert (said(pair.chosen), said(pair.rejected)) == ([("assistant", "good")], [("assistant", "bad")])
    assert said(convert("hh", hh("good", "bad"), split_turns=True).prompt) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_hh_prompts_must_be_equal_unless_the_chosen_one_is_asked_for(convert, refusal, said) -> None:
    row = hh("good", "bad", "\n\nHuman: other")
    assert refusal("hh", row).reason == "prompts_differ"
    assert said(convert("hh", row, prompt_check="chosen").prompt) == [("user", PROMPT.strip())]
    assert refusal("hh", hh("good", "bad", ""), prompt_check="chosen").reason == "empty_prompt"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (hh("", "bad"), "empty_answer"),
        (hh("good", " "), "empty_answer"),
        (hh("same", " same"), "equal_answers"),
        ({"chosen": "\n\nAssistant: x", "rejected": "\n\nAssistant: y"}, "empty_prompt"),
        ({"chosen": "x", "rejected": "y"}, "no_assistant_turn"),
        ({"chosen": "x"}, "missing_field"),
        ({"chosen": ["x"], "rejected": "y"}, "wrong_type"),
    ],
)
def test_hh_refuses(refusal, row, reason) -> None:
    assert refusal("hh", row).reason == reason


def ultra(chosen="good", rejected="bad", prompt=" q ", **columns):
    sides = {key: [message("user", "q"), message("assistant", text)] for key, text in (("chosen", chosen), ("rejected", rejected))}
    return {"prompt": prompt, **sides, **columns}


def test_ultrafeedback(convert, refusal, said) -> None:
    pair = convert("ultrafeedback", ultra(" good"))
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "good")], [("assistant", "bad")])
    assert refusal("ultrafeedback", ultra(prompt="other")).reason == "prompts_differ"
    assert said(convert("ultrafeedback", ultra(prompt="other"), prompt_check="column").prompt) == [("user", "other")]
    assert refusal("ultrafeedback", ultra(chosen="bad")).reason == "equal_answers"
    assert refusal("ultrafeedback", ultra(chosen=" ")).reason == "empty_answer"
    assert refusal("ultrafeedback", {**ultra(), "chosen": []}).reason == "empty_answer"
    assert refusal("ultrafeedback", {**ultra(), "chosen": [message("user", "q"), message("user", "x")]}).reason == "no_assistant_turn"


def test_ultrafeedback_margin(convert, refusal) -> None:
    row = ultra(score_chosen=7.5, score_rejected=7.0)
    assert convert("ultrafeedback", row, min_margin=0.5)
    assert refusal("ultrafeedback", row, min_margin=0.6).reason == "small_margin"
    assert refusal("ultrafeedback", ultra(), min_margin=0.0).reason == "missing_field"


QUESTION, GOOD, BAD = message("user", "q"), message("assistant", "good"), message("assistant", "bad")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [QUESTION], "chosen": GOOD, "rejected": BAD},
        {"prompt": "q", "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [QUESTION], "chosen": "good", "rejected": "bad"},
        {"prompt": "q", "chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
        {"prompt": [QUESTION], "chosen": [{**QUESTION, "weight": 0}, GOOD], "rejected": [QUESTION, BAD]},
        {"prompt": None, "chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
        {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"},
    ],
)
def test_explicit_and_implicit_prompts_give_the_same_pair(convert, said, row) -> None:
    pair = convert("preference", row)
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "good")], [("assistant", "bad")])


def test_without_a_template_strings_stand_as_they_are(convert, said) -> None:
    pair = convert("preference", {"prompt": "q ", "chosen": " g", "rejected": " b"}, template=False)
    assert (said(pair.prompt), said(pair.chosen)) == ([("prompt", "q ")], [("completion", " g")])


def test_implicit_text_with_other_marks(convert, said) -> None:
    row = {"chosen": "<U>q<A>good", "rejected": "<U>q<A>bad"}
    assert said(convert("preference", row, user_mark="<U>", assistant_mark="<A>").prompt) == [("user", "q")]


def test_weights_do_not_tell_prompts_apart_and_are_kept(convert) -> None:
    row = {
        "c": [message("user", "q", loss_weight=0.0), message("assistant", "good", loss_weight=1.0)],
        "r": [message("user", "q"), message("assistant", "bad", loss_weight=0.5)],
    }
    pair = convert("preference", row, chosen_key="c", rejected_key="r")
    assert [turn.regions[0].loss_weight for turn in (*pair.prompt, *pair.chosen, *pair.rejected)] == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"chosen": [QUESTION, GOOD], "rejected": [message("user", "p"), BAD]}, "prompts_differ"),
        ({"chosen": [QUESTION, GOOD], "rejected": [QUESTION, GOOD]}, "equal_answers"),
        ({"chosen": [QUESTION, GOOD], "rejected": [QUESTION]}, "empty_answer"),
        ({"chosen": [GOOD], "rejected": [BAD]}, "empty_prompt"),
        ({"chosen": [QUESTION, GOOD], "rejected": []}, "empty_answer"),
        ({"chosen": "", "rejected": ""}, "empty_answer"),
        ({"chosen": "good", "rejected": "bad"}, "leading_text"),
        ({"chosen": "\n\nHuman: \n\nAssistant: x", "rejected": "\n\nHuman: \n\nAssistant: y"}, "empty_turn"),
        ({"chosen": "good", "rejected": [BAD]}, "wrong_type"),
        ({"prompt": "q", "chosen": "good", "rejected": [BAD]}, "wrong_type"),
        ({"prompt": "q", "chosen": "good", "rejected": "good"}, "equal_answers"),
        ({"prompt": "q", "chosen": "good", "rejected": " "}, "empty_answer"),
        ({"prompt": " ", "chosen": "good", "rejected": "bad"}, "empty_prompt"),
        ({"prompt": [QUESTION, GOOD], "chosen": [GOOD], "rejected": [BAD]}, "role_order"),
        ({"prompt": [], "chosen": [GOOD], "rejected": [BAD]}, "empty_prompt"),
        ({"prompt": [QUESTION], "chosen": [message("user", "p"), GOOD], "rejected": [BAD]}, "role_order"),
        ({"prompt": "q", "chosen": "good", "rejected": "bad", "images": ["1.jpg"]}, "unsupported_media"),
        ({"prompt": "q", "chosen": "good", "rejected": "bad", "image": "0.jpg"}, "unsupported_media"),
        ({"prompt": "q", "chosen": "good", "rejected": "bad", "history": [["a", "b"]]}, "unsupported_column"),
        ({"prompt": "q", "chosen": "good", "rejected": "bad", "system": 5}, "wrong_type"),
        ({"prompt": [message("system", "s"), QUESTION], "chosen": "good", "rejected": "bad", "system": "t"}, "two_systems"),
        ({"prompt": 5, "chosen": "good", "rejected": "bad"}, "wrong_type"),
    ],
)
def test_preference_refuses(refusal, row, reason) -> None:
    assert refusal("preference", row).reason == reason


def test_the_system_column_of_a_pair_begins_its_prompt(convert, refusal, said) -> None:
    row = {"system": "Be brief.", "question": "q", "chosen": "good", "rejected": "bad"}
    expected = [("system", "Be brief."), ("user", "q")]
    assert said(convert("preference", row, prompt_key="question").prompt) == expected
    assert said(convert("dpo_read_hook", row, prompt_key="question").prompt) == expected
    sides = {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD], "system": "s"}
    for more in ({}, {"prompt": [QUESTION]}):
        pair = convert("preference", {**sides, **more})
        assert [role for role, _ in said(pair.prompt)] == ["system", "user"] and len(pair.chosen) == 1
    for blank in ("", " ", None):
        assert said(convert("preference", {**row, "system": blank}, prompt_key="question").prompt) == [("user", "q")]
    assert refusal("preference", row, prompt_key="question", system_key=None).reason == "unsupported_column"
    assert refusal("preference", row, prompt_key="question", template=False).reason == "unsupported_column"


@pytest.mark.parametrize("column", ["image", "images", "video", "videos", "audio", "audios", "history"])
def test_columns_that_hold_nothing_are_no_reason_to_refuse(convert, column) -> None:
    for nothing in (None, [], ""):
        assert convert("preference", {"prompt": "q", "chosen": "good", "rejected": "bad", column: nothing}).prompt


texts = st.sampled_from(["a", "b", "c"])
chats = st.lists(st.tuples(texts, texts), min_size=1, max_size=3)


@given(chats, texts, texts, chats)
def test_the_implicit_prompt_is_the_longest_common_beginning(shared, good, bad, rest) -> None:
    """Built from its parts, so that the parts are known: shared exchanges, one question, and then two different answers."""
    if good == bad:
        return
    before = [message(role, text) for pair in shared for role, text in zip((USER, ASSISTANT), pair, strict=True)] + [message(USER, "q")]
    after = [message(role, text) for pair in rest for role, text in zip((USER, ASSISTANT), pair, strict=True)]
    row = {"chosen": [*before, message(ASSISTANT, good), *after], "rejected": [*before, message(ASSISTANT, bad)]}
    pair = apply(convert_with("preference"), row)
    assert [message(turn.role, turn.text) for turn in pair.prompt] == before
    assert [message(turn.role, turn.text) for turn in pair.chosen] == [message(ASSISTANT, good), *after]


def test_cerebras_dpo_hook_with_a_prompt_field(convert, said) -> None:
    row = {"p": " q ", "chosen": " good", "rejected": "bad "}
    pair = convert("dpo_read_hook", row, prompt_key="p")
    assert (said(pair.prompt), said(pair.chosen), said(pair.rejected)) == ([("user", "q")], [("assistant", "good")], [("assistant", "bad")])


def test_cerebras_dpo_hook_cuts_at_the_last_marker_in_any_case(convert, refusal, said) -> None:
    row = {"chosen": "Human: q ASSISTANT: x Assistant: good", "rejected": "Human: q ASSISTANT: x Assistant: bad"}
    pair = convert("dpo_read_hook", row)
    assert said(pair.prompt) == [("user", "Human: q ASSISTANT: x Assistant:")]
    assert (said(pair.chosen), said(pair.rejected)) == ([("assistant", "good")], [("assistant", "bad")])
    row = {"chosen": "İ: q assistant: good", "rejected": "İ: q assistant: bad"}
    assert said(convert("dpo_read_hook", row).chosen) == [("assistant", "good")]
    assert refusal("dpo_read_hook", {**row, "rejected": "İ: p assistant: bad"}).reason == "prompts_differ"
    assert refusal("dpo_read_hook", {"chosen": "x", "rejected": "y"}).reason == "no_assistant_turn"


def test_cerebras_dpo_hook_with_messages(convert, refusal, said) -> None:
    pair = convert("dpo_read_hook", {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]})
    assert (said(pair.prompt), said(pair.rejected)) == ([("user", "q")], [("assistant", "bad")])
    assert refusal("dpo_read_hook", {"chosen": "x", "rejected": [BAD]}).reason == "wrong_type"


def test_alpaca_pairs(convert, refusal, said) -> None:
    row = {"instruction": "i", "input": "j", "system": "s", "history": [["a", "b"]], "chosen": " good", "rejected": "bad"}
    for name in ("alpaca_pairwise", "AlpacaStylePairwiseHandler"):
        pair = convert(name, row)
        assert said(pair.prompt) == [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "i\nj")]
        assert (said(pair.chosen), said(pair.rejected)) == ([("assistant", " good")], [("assistant", "bad")])
    renamed = {"i": "q", "c": "x", "r": "y"}
    assert said(convert("AlpacaStylePairwiseHandler", renamed, map_keys={"prompt": "i", "chosen": "c", "rejected": "r"}).chosen)
    assert refusal("alpaca_pairwise", {**row, "chosen": "bad"}).reason == "equal_answers"
    assert refusal("alpaca_pairwise", {**row, "rejected": ""}).reason == "empty_answer"
    assert refusal("alpaca_pairwise", {**row, "instruction": "", "input": ""}).reason == "empty_prompt"


def test_llama_factory_v1_rows_need_no_option(convert, said, refusal) -> None:
    row = {
        "chosen_messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "yes"}],
        "rejected_messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "no"}],
    }
    found = convert("preference", row)
    assert (said(found.prompt), said(found.chosen), said(found.rejected)) == (
        [("user", "Q?")],
        [("assistant", "yes")],
        [("assistant", "no")],
    )
    assert refusal("preference", {"chosen_messages": row["chosen_messages"]}).reason == "missing_field"
    # a name that somebody chose is never exchanged for another
    assert refusal("preference", row, chosen_key="chosen", rejected_key="worse").reason == "missing_field"


def completion(response, score, *ratings, **more):
    annotations = {f"aspect {number}": {"Rating": rating} for number, rating in enumerate(ratings)}
    return {"response": response, "overall_score": score, "annotations": annotations, **more}


def test_ultrafeedback_reads_all_completions(convert, refusal, said) -> None:
    """The rows of openbmb/UltraFeedback: the best and the worst completion are the pair."""
    row = {"instruction": "q", "completions": [completion("b", 7, "4"), completion(" a", 8.5, "5", "N/A"), completion("c", 3, "2")]}
    found = convert("ultrafeedback", row)
    assert [said(side) for side in (found.prompt, found.chosen, found.rejected)] == [
        [("user", "q")],
        [("assistant", "a")],
        [("assistant", "c")],
    ]
    assert refusal("ultrafeedback", row, min_margin=6.0).reason == "small_margin"
    assert refusal("ultrafeedback", {**row, "completions": row["completions"][:1] * 2}).reason == "small_margin"
    assert refusal("ultrafeedback", {**row, "completions": [completion("a", 7, "four")]}).reason == "wrong_type"
    assert (
        refusal("ultrafeedback", {**row, "completions": [{**completion("a", 7), "model": "x", "system": "s"}, completion("b", 2)]}).reason
        == "unsupported_column"
    )


@pytest.mark.parametrize(
    "ratings", [{"fine-grained_score": 2.0}, {"annotations": {"helpfulness": {"Rating": "1"}, "honesty": {"Rating": 3}}}]
)
def test_ultrafeedback_a_score_of_1_that_was_written_as_10(convert, refusal, ratings) -> None:
    """UltraFeedback#8: the chosen score is the higher one, so that only the ratings tell."""
    bad, good = completion("good", 10.0, **ratings), completion("bad", 8.0, "4", "5")
    binarized = {**ultra(), "score_chosen": 10.0, "score_rejected": 8.0}
    assert convert("ultrafeedback", binarized)
    for row in ({**binarized, "completions": [bad, good]}, {"instruction": "q", "completions": [bad, good]}):
        assert refusal("ultrafeedback", row).reason == "score_contradicts"
        assert convert("ultrafeedback", {**row, "completions": [{**bad, "annotations": {}, "fine-grained_score": 2.25}, good]})


def test_ultrafeedback_sides_have_the_scores_of_their_completions(convert, refusal) -> None:
    row = {**ultra(), "score_chosen": 9.0, "score_rejected": 2.0}
    assert convert("ultrafeedback", {**row, "completions": [completion("good", 9), completion("bad", 2), completion("c", 10)]})
    assert refusal("ultrafeedback", {**row, "completions": [completion("good", 1), completion("bad", 2)]}).reason == "score_contradicts"
    assert refusal("ultrafeedback", {**ultra(), "completions": [completion("good", 1), completion("bad", 2)]}).reason == "score_contradicts"
