"""AstrAI's documented ids and masks: golden vectors, and an independent implementation on arbitrary records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.astrai.columns import Row
from prep_assets.astrai.config import parse_pipeline
from prep_assets.astrai.masks import AstraiBuilder
from prep_assets.astrai.preprocess import load_tokenizer
from prep_assets.astrai.task import task_of
from prep_assets.errors import Refused, TemplateError
from prep_assets_tests.astrai.conftest import VOCABULARY, chat, ids, message, write_tokenizer
from prep_assets_tests.astrai.pipelines import CHAT, DPO, GRPO, INSTRUCTION, SECTIONS_CHAT, SECTIONS_TEXT, TEXT, changed
from prep_assets_tests.astrai.reference import Documented
from prep_assets_tests.effort import examples

SHORT_TEXT = changed(TEXT, preprocessing={"min_chars": 0})


def build(directory: Path, pipeline: dict[str, Any], *rows: Any) -> list[Row | Refused]:
    return AstraiBuilder(task_of(parse_pipeline(pipeline, "p")), load_tokenizer(directory)).build(rows)


def one(directory: Path, pipeline: dict[str, Any], row: Any) -> dict[str, list[Any]]:
    (found,) = build(directory, pipeline, row)
    assert isinstance(found, Row), found
    return {key: cells.values.tolist() for key, cells in found.cells.items()}


def refusal(directory: Path, pipeline: dict[str, Any], row: Any) -> str:
    (found,) = build(directory, pipeline, row)
    assert isinstance(found, Refused), found
    return f"{found.stage}/{found.reason}"


EXCHANGE = chat(("system", "a b"), ("user", "c"), ("assistant", "d"), ("user", "e"), ("assistant", "f g"))


def test_the_documented_chat_bos_masked_and_whole_assistant_messages_trained(tokenizer: Path) -> None:
    spans = ["<s>", "<|im_start|> system a b <|im_end|>", "<|im_start|> user c <|im_end|>", "<|im_start|> assistant d <|im_end|>"]
    spans += ["<|im_start|> user e <|im_end|>", "<|im_start|> assistant f g <|im_end|>"]
    assert one(tokenizer, CHAT, EXCHANGE) == {
        "sequence": ids(" ".join(spans)),
        "loss_mask": [0] + [0] * 5 + [0] * 4 + [1] * 4 + [0] * 4 + [1] * 5,
    }


def test_a_tokenizer_without_bos_starts_with_the_first_message(tmp_path: Path) -> None:
    directory = write_tokenizer(tmp_path, declared={})
    assert one(directory, CHAT, chat(("user", "a")))["sequence"] == ids("<|im_start|> user a <|im_end|>")


def test_every_role_masked_and_every_role_trained(tokenizer: Path) -> None:
    masked = one(tokenizer, {**CHAT, "mask": {}}, EXCHANGE)["loss_mask"]
    trained = one(tokenizer, {**CHAT, "mask": {}, "mask_default": "train"}, EXCHANGE)["loss_mask"]
    assert sum(masked) == 0
    assert trained == [0] + [1] * (len(trained) - 1)


def test_chats_are_cut_on_the_right(tokenizer: Path) -> None:
    whole = one(tokenizer, CHAT, EXCHANGE)
    cut = one(tokenizer, changed(CHAT, preprocessing={"max_seq_len": 12}), EXCHANGE)
    assert cut == {key: values[:12] for key, values in whole.items()}


def test_how_many_tokens_were_cut_is_known(tokenizer: Path) -> None:
    (row,) = build(tokenizer, changed(CHAT, preprocessing={"max_seq_len": 12}), EXCHANGE)
    assert isinstance(row, Row)
    assert row.cut == 23 - 12


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": []}, "schema/empty"),
        ({}, "schema/empty"),
        ({"messages": "a"}, "schema/wrong_type"),
        ({"messages": ["a"]}, "schema/wrong_type"),
        ({"messages": [{"content": "a"}]}, "schema/missing_field"),
        ({"messages": [message("user", None)]}, "schema/wrong_type"),
        ({"messages": [message("user", [{"type": "text", "text": "a"}])]}, "schema/wrong_type"),
    ],
)
def test_a_chat_that_is_none_is_refused_and_not_the_run(row: Any, reason: str, tokenizer: Path) -> None:
    assert refusal(tokenizer, CHAT, row) == reason


def test_a_chat_of_one_token_is_refused(tmp_path: Path) -> None:
    directory = write_tokenizer(tmp_path, declared={}, template="{{ messages[0]['content'] }}")
    assert refusal(directory, CHAT, chat(("user", "a"))) == "tokenize/empty"


def test_a_template_that_says_no_refuses_the_record(tmp_path: Path) -> None:
    directory = write_tokenizer(tmp_path, template="{{ raise_exception('no') }}")
    assert refusal(directory, CHAT, EXCHANGE) == "render/template_refuses"


def test_a_tokenizer_without_a_template_stops_a_chat_run(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="chat_template"):
        build(write_tokenizer(tmp_path, template=None), CHAT, EXCHANGE)
    assert one(tmp_path, SHORT_TEXT, {"content": "a"})["sequence"] == ids("a")


def test_instruction_prompt_with_special_tokens_response_without(post_tokenizer: Path) -> None:
    found = one(post_tokenizer, INSTRUCTION, {"instruction": "a b", "output": "c d e"})
    assert found == {"sequence": ids("<s> a b </s> c d e"), "loss_mask": [0, 0, 0, 0, 1, 1, 1]}


def test_instruction_reversed(post_tokenizer: Path) -> None:
    reversed_mask = {**INSTRUCTION, "mask": {"prompt": "train", "response": "mask"}}
    assert one(post_tokenizer, reversed_mask, {"instruction": "a", "output": "b c"})["loss_mask"] == [1, 1, 1, 0, 0]


def test_an_instruction_has_a_mask_even_where_all_of_it_is_trained(tokenizer: Path) -> None:
    everything = {**INSTRUCTION, "mask": {}, "mask_default": "train"}
    assert one(tokenizer, everything, {"instruction": "a", "output": "b"})["loss_mask"] == [1, 1]


def test_one_blank_field_is_encoded_two_are_refused(post_tokenizer: Path) -> None:
    assert one(post_tokenizer, INSTRUCTION, {"instruction": " ", "output": "b"})["sequence"] == ids("<s> </s> b")
    assert one(post_tokenizer, INSTRUCTION, {"instruction": "a"})["loss_mask"] == [0, 0, 0]
    assert refusal(post_tokenizer, INSTRUCTION, {"instruction": " ", "output": ""}) == "schema/empty"


def test_null_is_no_text_and_numbers_are_their_text(tokenizer: Path) -> None:
    assert one(tokenizer, INSTRUCTION, {"instruction": "a", "output": None})["sequence"] == ids("a")
    assert one(tokenizer, INSTRUCTION, {"instruction": "a", "output": 7})["sequence"] == ids("a 7")
    assert refusal(tokenizer, INSTRUCTION, {"instruction": "a", "output": ["b"]}) == "schema/wrong_type"


def test_text_has_no_mask_and_its_special_tokens(post_tokenizer: Path) -> None:
    assert one(post_tokenizer, SHORT_TEXT, {"content": "a b"}) == {"sequence": ids("<s> a b </s>")}
    cut = changed(SHORT_TEXT, preprocessing={"max_seq_len": 3})
    assert one(post_tokenizer, cut, {"content": "a b"})["sequence"] == ids("<s> a b")


@pytest.mark.parametrize(("length", "kept"), [(4, False), (5, True), (7, True), (8, False)])
def test_lengths_of_texts_are_inclusive_and_count_characters(length: int, kept: bool, tokenizer: Path) -> None:
    bounds = changed(TEXT, preprocessing={"min_chars": 5, "max_chars": 7})
    (found,) = build(tokenizer, bounds, {"content": "é" * length})
    assert isinstance(found, Row) is kept


@pytest.mark.parametrize("value", ["", "   ", 5, None, ["a"]])
def test_a_text_is_a_string_with_something_in_it(value: Any, tokenizer: Path) -> None:
    assert refusal(tokenizer, SHORT_TEXT, {"content": value}).startswith("schema/")


# -- sections ---------------------------------------------------------------------------------------------------------------------------


def sections(*specs: dict[str, Any]) -> dict[str, Any]:
    return {"input": {"sections": list(specs)}, "preprocessing": {"min_chars": 0}}


def test_special_tokens_stand_at_the_first_section_that_has_text(post_tokenizer: Path) -> None:
    fields = sections({"field": "x", "action": "mask"}, {"field": "y", "action": "train"})
    assert one(post_tokenizer, fields, {"x": "a", "y": "b"}) == {"sequence": ids("<s> a </s> b"), "loss_mask": [0, 0, 0, 1]}
    assert one(post_tokenizer, fields, {"x": " ", "y": "b"}) == {"sequence": ids("<s> b </s>"), "loss_mask": [1, 1, 1]}


def test_special_tokens_where_they_are_asked_for(post_tokenizer: Path) -> None:
    fields = sections(
        {"field": "x", "action": "mask", "add_special_tokens": False}, {"field": "y", "action": "train", "add_special_tokens": True}
    )
    assert one(post_tokenizer, fields, {"x": "a", "y": "b"})["sequence"] == ids("a <s> b </s>")


def test_a_template_beside_text_has_one_bos_in_front_of_everything(tokenizer: Path) -> None:
    fields = sections({"field": "x", "action": "mask"}, {"field": "messages", "action": "train", "template": True})
    found = one(tokenizer, fields, {"x": "a", **chat(("user", "b"))})
    assert found == {"sequence": ids("<s> a <|im_start|> user b <|im_end|>"), "loss_mask": [0, 0, 1, 1, 1, 1]}


def test_the_length_of_a_text_is_that_of_the_record_not_of_each_section(tokenizer: Path) -> None:
    two = {**sections({"field": "x", "action": "train"}, {"field": "y", "action": "train"}), "preprocessing": {"min_chars": 6}}
    assert one(tokenizer, two, {"x": "a", "y": "b c d"})["sequence"] == ids("a b c d")
    assert refusal(tokenizer, two, {"x": "a", "y": "b c"}) == "schema/too_short"


def test_the_mask_is_there_for_a_record_that_is_trained_throughout(tokenizer: Path) -> None:
    fields = sections({"field": "x", "action": "mask"}, {"field": "y", "action": "train"})
    rows = build(tokenizer, fields, {"x": "", "y": "a"}, {"x": "b", "y": "c"})
    assert [row.cells["loss_mask"].values.tolist() for row in rows if isinstance(row, Row)] == [[1], [0, 1]]


# -- sources ----------------------------------------------------------------------------------------------------------------------------

GROUP = {"prompt": [message("user", "a")], "responses": ["b c", "d", "e f g"], "rewards": [1.0, -0.3, 0.8]}


def test_a_pair(tokenizer: Path) -> None:
    row = {"chosen": chat(("user", "a"), ("assistant", "b"))["messages"], "rejected": chat(("user", "a"), ("assistant", "c d"))["messages"]}
    assert one(tokenizer, DPO, row) == {
        "chosen": ids("<s> <|im_start|> user a <|im_end|> <|im_start|> assistant b <|im_end|>"),
        "chosen_mask": [0] * 5 + [1] * 4,
        "rejected": ids("<s> <|im_start|> user a <|im_end|> <|im_start|> assistant c d <|im_end|>"),
        "rejected_mask": [0] * 5 + [1] * 5,
    }


@pytest.mark.parametrize("missing", ["chosen", "rejected"])
def test_a_pair_needs_both_sides(missing: str, tokenizer: Path) -> None:
    row = {side: chat(("user", "a"), ("assistant", side[0]))["messages"] for side in ("chosen", "rejected") if side != missing}
    assert refusal(tokenizer, DPO, row) == "schema/empty"


def test_a_group_keeps_its_responses_apart_without_special_tokens_and_its_rewards_as_fractions(post_tokenizer: Path) -> None:
    (row,) = build(post_tokenizer, GRPO, GROUP)
    assert isinstance(row, Row)
    assert row.cells["responses"].values.tolist() == ids("b c d e f g")
    assert row.cells["responses"].lengths == row.cells["masks"].lengths == (2, 1, 3)
    assert row.cells["masks"].values.tolist() == [1] * 6
    assert row.cells["prompts_mask"].values.tolist() == [0] * 5
    assert row.cells["rewards"].values.dtype == np.float32
    assert row.cells["rewards"].values.tolist() == np.array([1.0, -0.3, 0.8], np.float32).tolist()


def test_each_response_is_cut_by_itself(tokenizer: Path) -> None:
    (row,) = build(tokenizer, changed(GRPO, preprocessing={"max_seq_len": 2}), GROUP)
    assert isinstance(row, Row)
    assert row.cells["responses"].values.tolist() == ids("b c d e f")
    assert row.cells["responses"].lengths == row.cells["masks"].lengths == (2, 1, 2)
    assert row.cut == 3 + 1  # of the prompt, and of the last response


def test_a_single_reward_for_a_single_response(tokenizer: Path) -> None:
    assert one(tokenizer, GRPO, {**GROUP, "responses": ["b"], "rewards": 0.5})["rewards"] == [0.5]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rewards": [1.0]}, "schema/length_mismatch"),
        ({"responses": [], "rewards": []}, "schema/length_mismatch"),
        ({"responses": ["b", " ", "c"]}, "schema/empty_answer"),
        ({"rewards": [1.0, None, 0.0]}, "schema/wrong_type"),
        ({"rewards": None}, "schema/missing_field"),
        ({"responses": "b"}, "schema/wrong_type"),
    ],
)
def test_a_group_never_shrinks_beside_its_rewards(change: dict[str, Any], reason: str, tokenizer: Path) -> None:
    assert refusal(tokenizer, GRPO, {**GROUP, **change}) == reason


# -- against the documentation's algorithm ----------------------------------------------------------------------------------------------

words = st.lists(st.sampled_from([*VOCABULARY, "é", "\n", "  ", "中"]), max_size=8).map(" ".join)
messages = st.lists(st.builds(message, st.sampled_from(["system", "user", "assistant", "tool"]), words), min_size=1, max_size=5)
masks = st.dictionaries(st.sampled_from(["system", "user", "assistant"]), st.sampled_from(["train", "mask"]))
actions = st.sampled_from(["train", "mask"])


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(messages, min_size=1, max_size=4), mask=masks, default=actions, longest=st.integers(1, 40), post=st.booleans())
def test_chats_equal_the_documented_algorithm(
    rows: list[Any], mask: dict[str, str], default: str, longest: int, post: bool, tokenizer: Path, post_tokenizer: Path
) -> None:
    directory = post_tokenizer if post else tokenizer
    pipeline = {**changed(CHAT, preprocessing={"max_seq_len": longest}), "mask": mask, "mask_default": default}
    documented = Documented(directory)
    for row, found in zip(rows, build(directory, pipeline, *[{"messages": row} for row in rows]), strict=True):
        expected = documented.chat({"messages": row}, mask, default, longest)
        assert expected is not None
        assert isinstance(found, Row)
        assert (found.cells["sequence"].values.tolist(), found.cells["loss_mask"].values.tolist()) == expected


@settings(max_examples=examples(60), deadline=None)
@given(prompt=words, response=words, prompt_action=actions, default=actions, longest=st.integers(1, 20), post=st.booleans())
def test_instructions_equal_the_documented_algorithm(
    prompt: str, response: str, prompt_action: str, default: str, longest: int, post: bool, tokenizer: Path, post_tokenizer: Path
) -> None:
    directory = post_tokenizer if post else tokenizer
    mask = {"prompt": prompt_action}
    pipeline = {**changed(INSTRUCTION, preprocessing={"max_seq_len": longest}), "mask": mask, "mask_default": default}
    (found,) = build(directory, pipeline, {"instruction": prompt, "output": response})
    if not prompt.strip() and not response.strip():
        assert isinstance(found, Refused)
        return
    expected = Documented(directory).instruction(prompt, response, mask, default, longest)
    assert isinstance(found, Row)
    assert (found.cells["sequence"].values.tolist(), found.cells["loss_mask"].values.tolist()) == expected


@settings(max_examples=examples(60), deadline=None)
@given(text=words, shortest=st.integers(0, 12), longest=st.integers(1, 10), post=st.booleans(), typed=st.booleans())
def test_texts_equal_the_documented_algorithm(
    text: str, shortest: int, longest: int, post: bool, typed: bool, tokenizer: Path, post_tokenizer: Path
) -> None:
    directory = post_tokenizer if post else tokenizer
    steps = {"min_chars": shortest, "max_chars": 30, "max_seq_len": longest}
    pipeline = changed(TEXT, preprocessing=steps) if typed else changed(SECTIONS_TEXT, preprocessing=steps)
    (found,) = build(directory, pipeline, {"content": text, "text": text})
    expected = Documented(directory).text(text, shortest, 30, longest)
    assert (found.cells["sequence"].values.tolist() if isinstance(found, Row) else None) == expected


@settings(max_examples=examples(30), deadline=None)
@given(rows=st.lists(messages, min_size=2, max_size=6))
def test_a_batch_is_its_records_one_by_one(rows: list[Any], tokenizer: Path) -> None:
    records = [{"messages": row} for row in rows]
    together = build(tokenizer, SECTIONS_CHAT, *records)
    for record, found in zip(records, together, strict=True):
        (alone,) = build(tokenizer, SECTIONS_CHAT, record)
        assert isinstance(found, Row) and isinstance(alone, Row)
        assert {key: cells.values.tolist() for key, cells in found.cells.items()} == {
            key: cells.values.tolist() for key, cells in alone.cells.items()
        }
