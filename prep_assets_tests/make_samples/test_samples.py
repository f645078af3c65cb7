"""Every sample file has the form of the public data set that it stands for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from make_samples.handwritten_instructions import INSTRUCTIONS

Rows = Callable[[str], list[Any]]
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
DOLLY_CATEGORIES = {
    "brainstorming", "classification", "closed_qa", "creative_writing", "general_qa", "information_extraction", "open_qa", "summarization",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fields", "least"),
    [
        ("alpaca.json", ["instruction", "input", "output"], 110),
        ("dolly.jsonl", ["instruction", "context", "response", "category"], 55),
        ("chats.jsonl", ["messages"], 55),
        ("docs.jsonl.zst", ["text"], 150),
        ("hh.jsonl.gz", ["chosen", "rejected"], 75),
        ("ultrafeedback.jsonl", ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"], 55),
    ],
)
def test_the_rows_have_the_public_fields_and_differ(rows: Rows, name: str, fields: list[str], least: int) -> None:
    found = rows(name)
    assert len(found) >= least
    assert all(list(row) == fields for row in found)
    assert len({json.dumps(row) for row in found}) == len(found)


def test_no_text_is_empty_padded_or_unfinished(every_text: list[str]) -> None:
    # HH dialogues begin with two newlines, and an optional input or context may be empty; nothing else is padded.
    assert not [text for text in every_text if text.removeprefix("\n\n").strip() != text.removeprefix("\n\n")]
    assert not [text for text in every_text if any(token in text for token in CONTROL_TOKENS)]
    assert not [text for text in every_text if "  " in text and "    " not in text], "two blanks that are no indentation"


def test_instructions_and_answers_are_never_empty(rows: Rows) -> None:
    assert all(row["instruction"] and row["output"] for row in rows("alpaca.json"))
    assert all(row["instruction"] and row["response"] for row in rows("dolly.jsonl"))
    assert len({(row["instruction"], row["input"]) for row in rows("alpaca.json")}) == len(rows("alpaca.json"))
    assert {row["category"] for row in rows("dolly.jsonl")} == DOLLY_CATEGORIES


def test_instructions_with_and_without_input_many_lines_and_other_scripts_occur(rows: Rows) -> None:
    alpaca = rows("alpaca.json")
    assert sum(bool(row["input"]) for row in alpaca) >= 20
    assert sum(not row["input"] for row in alpaca) >= 20
    assert sum("\n" in row["output"] for row in alpaca) >= 20
    assert any("\u4e00" <= letter <= "\u9fff" for row in alpaca for letter in row["output"])
    assert any(letter >= "\U0001f300" for row in alpaca for letter in row["output"])


def test_sorted_lists_and_conversions_are_right(rows: Rows) -> None:
    answers = [row for row in rows("alpaca.json") if row["instruction"].startswith(("Sort these", "Convert"))]
    assert len(answers) == 16
    for row in answers:
        if "alphabetically" in row["instruction"]:
            assert row["output"].lower().split(", ") == sorted(row["input"].lower().split(", "))
        elif "numbers" in row["instruction"]:
            assert json.loads(row["output"]) == sorted(json.loads(row["input"]))[::-1]
        else:
            _, _, product = row["output"].partition(" are ")
            left, _, right = product.partition(" = ")
            count, _, factor = left.partition(" × ")
            assert float(count) * float(factor) == pytest.approx(float(right.split()[0]))


def test_the_python_functions_in_the_instructions_work() -> None:
    code: dict[str, Any] = {}
    for instruction, _, output in INSTRUCTIONS:
        if instruction.startswith("Write a Python"):
            exec(output, code)
    assert code["larger"](3, 8) == 8
    assert code["count_vowels"]("Aeroplane") == 5
    assert list(islice(code["fibonacci"](), 8)) == [0, 1, 1, 2, 3, 5, 8, 13]
    assert code["is_palindrome"]("Level")
    assert not code["is_palindrome"]("Lever")
    assert all(code["gcd"](a, b) == math.gcd(a, b) for a in range(-6, 30) for b in range(20))


def test_chats_alternate_and_end_with_the_assistant(rows: Rows) -> None:
    rounds = []
    for row in rows("chats.jsonl"):
        roles = [message["role"] for message in row["messages"]]
        assert all(list(message) == ["role", "content"] and message["content"] for message in row["messages"])
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        rounds.append(len(turns) // 2)
    assert set(rounds) == {1, 2, 3, 4, 5}
    assert 10 < sum(row["messages"][0]["role"] == "system" for row in rows("chats.jsonl")) < 50


def test_hh_pairs_share_the_prompt_and_differ_in_the_last_answer(rows: Rows) -> None:
    prompts = []
    for row in rows("hh.jsonl.gz"):
        prompt, marker, chosen = row["chosen"].rpartition("\n\nAssistant: ")
        other, _, rejected = row["rejected"].rpartition("\n\nAssistant: ")
        assert marker
        assert prompt == other
        assert prompt.startswith("\n\nHuman: ")
        assert prompt.count("\n\nHuman: ") == prompt.count("\n\nAssistant: ") + 1
        assert chosen and rejected and chosen != rejected
        assert "\n\nHuman:" not in chosen + rejected
        prompts.append(prompt)
    assert len(set(prompts)) == len(prompts)
    assert 10 < sum(prompt.count("\n\nHuman: ") > 1 for prompt in prompts) < 50


def test_ultrafeedback_answers_start_with_the_prompt_and_the_chosen_scores_higher(rows: Rows) -> None:
    found = rows("ultrafeedback.jsonl")
    for row in found:
        for side in ("chosen", "rejected"):
            assert [message["role"] for message in row[side]] == ["user", "assistant"]
            assert row[side][0]["content"] == row["prompt"]
        assert row["chosen"][1]["content"] != row["rejected"][1]["content"]
        assert 10 >= row["score_chosen"] > row["score_rejected"] >= 1
    assert len({row["prompt"] for row in found}) == len(found)


def test_preference_prompts_of_the_two_sets_differ(rows: Rows) -> None:
    asked = {row["chosen"].rpartition("\n\nAssistant: ")[0].rpartition("\n\nHuman: ")[2] for row in rows("hh.jsonl.gz")}
    assert asked.isdisjoint({row["prompt"] for row in rows("ultrafeedback.jsonl")})


def test_documents_have_paragraphs_and_notes_have_one_line(rows: Rows) -> None:
    assert all(row["text"].count("\n\n") >= 1 for row in rows("docs.jsonl.zst"))
    notes = rows("notes.txt")
    assert len(notes) == len(set(notes)) == 60
    assert all(note.endswith(".") and "\r" not in note for note in notes)
