"""Preference pairs: HH-RLHF, UltraFeedback, explicit and implicit prompts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import Refused
from prep_assets.pipeline.lines import preference_row
from prep_assets.proofs.plain_reading import pair_lines
from prep_assets.samples import ASSISTANT, USER, Pair, PlainPair
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets.text.render import InlineReasoning
from prep_assets_tests.effort import examples

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


# -- pairs that are read in columns are what their schema makes of them, and what the most obvious reading says --------------------------


TAGS = [tag for pair in REASONING_TAGS for tag in pair]
TEXTS = st.sampled_from(["a", "b", " a\n", "", " ", "<think>b</think>c", "\n\nAssistant: d", "é"])
ROLES = st.sampled_from(["user", "user", "assistant", "assistant", "system", "developer", "tool", "human"])
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": TEXTS}, optional={"name": st.just("n")})
ANSWERS = st.one_of(TEXTS, st.lists(MESSAGES, max_size=2), TEXTS.map(lambda text: [{"role": "assistant", "content": text}]))
PROMPTS = st.one_of(st.none(), TEXTS, st.lists(MESSAGES, max_size=3), TEXTS.map(lambda text: [{"role": "user", "content": text}]))
DIALOGUES = st.lists(st.tuples(st.sampled_from(["\n\nHuman:", "\n\nAssistant:", ""]), TEXTS).map("".join), max_size=3).map("".join)
SIDES = TEXTS.map(lambda text: [{"role": "user", "content": "a"}, {"role": "assistant", "content": text}])
SCORES = st.sampled_from([1, 2.0, 3, None, True])
ROWS = {
    "preference": st.fixed_dictionaries({"prompt": PROMPTS, "chosen": ANSWERS, "rejected": ANSWERS}),
    "hh": st.fixed_dictionaries({"chosen": DIALOGUES, "rejected": DIALOGUES}),
    "ultrafeedback": st.fixed_dictionaries(
        {"prompt": TEXTS, "chosen": SIDES | ANSWERS, "rejected": SIDES | ANSWERS, "score_chosen": SCORES, "score_rejected": SCORES}
    ),
}
USUAL: dict[str, dict[str, Any]] = {
    "preference": {"prompt": [{"role": "user", "content": "p"}], "chosen": "c", "rejected": "r"},
    "hh": {"chosen": "\n\nHuman: p\n\nAssistant: c", "rejected": "\n\nHuman: p\n\nAssistant: r"},
    "ultrafeedback": {
        "prompt": "p",
        "chosen": [{"role": "user", "content": "p "}, {"role": "assistant", "content": " c"}],
        "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}],
        "score_chosen": 2,
        "score_rejected": 1.0,
    },
}


def reader_of(schema: str, ignore: tuple[str, ...] = (), **options: Any) -> Reader:
    """A reader that has seen a row of the usual columns, as the first row of a file."""
    reader = Reader(convert_with(schema, options, gives=Pair), Account(ignore))
    apply(reader, {**USUAL[schema], **dict.fromkeys(ignore, "x")})
    return reader


def plain_of(reader: Reader, row: dict[str, Any]) -> PlainPair | None:
    [found] = reader.rows([row])
    return found if isinstance(found, PlainPair) else None


def line_of(example: object, form: Any) -> dict[str, Any] | None:
    try:
        return preference_row(example, form)
    except Refused:
        return None


@pytest.mark.parametrize("schema", ROWS)
def test_read_in_columns(schema: str) -> None:
    reader = reader_of(schema)

    @settings(max_examples=examples(150))
    @given(ROWS[schema])
    def check(row: dict[str, Any]) -> None:
        plain = plain_of(reader, row)
        try:
            pair = apply(reader, row)
        except Refused:
            pair = None
        if plain is not None:
            assert isinstance(plain, PlainPair) and plain.pair() == pair
        for form in ("text", "messages"):
            made = line_of(pair, form)
            assert plain is None or line_of(plain, form) == made
            [line] = pair_lines([row], schema, {}, form, TAGS)
            assert line is None or (line == made and list(line) == list(made or ()))

    check()
    assert isinstance(plain_of(reader, USUAL[schema]), PlainPair)
    lines = [*pair_lines([USUAL[schema]], schema, {}, "text", TAGS), *pair_lines([USUAL[schema]], schema, {}, "messages", TAGS)]
    assert schema == "ultrafeedback" or None not in lines
    assert pair_lines([{**USUAL[schema], "more": 1}], schema, {}, "text", TAGS) == [None]


@pytest.mark.parametrize("schema", ROWS)
def test_columns_beside_the_texts(schema: str) -> None:
    row = USUAL[schema]
    reader = reader_of(schema, ("mine",))
    assert isinstance(plain_of(reader, {**row, "mine": "x"}), PlainPair) and reader.account.counts["mine"] == 2
    used = Reader(convert_with(schema, {}, gives=Pair), Account(("mine",), ["mine"]))
    apply(used, {**row, "mine": "x"})
    # what is ignored is counted in each row, whether a condition uses it or not
    assert isinstance(plain_of(used, {**row, "mine": "x"}), PlainPair) and used.account.counts["mine"] == 2
    assert plain_of(reader, {**row, "other": "x"}) is None  # columns that no row had yet
    columns: list[dict[str, Any]] = [{"system": "s"}, {"tools": [], "margin": None}]
    for beside in columns:
        apply(reader, row | beside) if schema == "preference" else None
        assert plain_of(reader, row | beside) is None
    assert plain_of(reader_of(schema, ("mine.inner",)), {**row, "mine.inner": "x"}) is None


def test_texts_without_tags() -> None:
    reasoning = InlineReasoning("auto", REASONING_TAGS, shown=True)
    assert reasoning.leaves(("a", "< think>")) and not reasoning.leaves(("a", f"b{TAGS[-1]}"))


def test_options_that_read_otherwise() -> None:
    for schema, options in (
        ("preference", {"template": False}),
        ("hh", {"split_turns": True}),
        ("ultrafeedback", {"prompt_check": "column"}),
    ):
        row = {**USUAL[schema], **({"prompt": "p"} if schema == "preference" else {})}
        reader = Reader(convert_with(schema, options, gives=Pair), Account())
        apply(reader, row)
        assert plain_of(reader, row) is None
    margin = reader_of("ultrafeedback", min_margin=0.5)
    assert (
        plain_of(margin, USUAL["ultrafeedback"]) is not None and plain_of(margin, {**USUAL["ultrafeedback"], "score_rejected": 1.6}) is None
    )


# -- kTO labels, RL prompts and reward groups --------------------------------------------------------------------------------------------


QUESTION_REWARDS, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize("label", [True, False])
def test_kto_of_messages_and_of_prompt_and_completion(convert, said, label) -> None:
    for row in (
        {"messages": [QUESTION_REWARDS, ANSWER]},
        {"prompt": "q", "completion": "a"},
        {"prompt": [QUESTION_REWARDS], "completion": [ANSWER]},
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
        ({"messages": [QUESTION_REWARDS, ANSWER]}, "missing_field"),
        ({"messages": [QUESTION_REWARDS, ANSWER], "label": 1}, "wrong_type"),
        ({"messages": [QUESTION_REWARDS, ANSWER], "label": "true"}, "wrong_type"),
        ({"messages": [QUESTION_REWARDS, ANSWER, QUESTION_REWARDS], "label": True}, "role_order"),
        ({"messages": [QUESTION_REWARDS], "label": True}, "no_assistant_turn"),
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
    row = {"prompt": [QUESTION_REWARDS], "data_source": "openai/gsm8k", "reward_model": {"style": "rule", "ground_truth": "72"}}
    prompt = convert("rl_prompt", row, gold_key="reward_model.ground_truth")
    assert (said(prompt.prompt), prompt.gold) == ([("user", "q")], "72")


def test_a_field_whose_name_has_dots_goes_before_the_path(convert) -> None:
    row = {"prompt": "q", "a.b": "1", "a": {"b": "2"}}
    assert convert("rl_prompt", row, gold_key="a.b").gold == "1"


def test_a_system_prompt_for_prompts_that_have_none(convert, said) -> None:
    assert said(convert("rl_prompt", {"prompt": "q", "gold": "1"}, system="s").prompt) == [("system", "s"), ("user", "q")]
    own = {"prompt": [{"role": "system", "content": "own"}, QUESTION_REWARDS], "gold": "1"}
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
        ({"prompt": [QUESTION_REWARDS, ANSWER], "gold": "1"}, "role_order"),
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
    assert convert("group", {"prompt": [QUESTION_REWARDS], "responses": ["a"], "rewards": 1}).rewards == (1.0,)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rewards": [1.0]}, "length_mismatch"),
        ({"responses": [], "rewards": []}, "length_mismatch"),
        ({"responses": ["a", " "]}, "empty_answer"),
        ({"responses": ["a", [QUESTION_REWARDS]]}, "no_assistant_turn"),
        ({"responses": ["a", [QUESTION_REWARDS, ANSWER]]}, "role_order"),
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
