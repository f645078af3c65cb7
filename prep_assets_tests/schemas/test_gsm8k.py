"""GSM8K as SFT answers and as RL prompts."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from prep_assets.schemas.gold import gold_as_json_number

ROW = {"question": " How many? ", "answer": "She sold 48/2 = <<48/2=24>>24 clips.\nIn all 1,072.\n#### 1,072"}


def test_reasoning_and_answer_in_tags_notes_taken_out(convert, said) -> None:
    expected = "<think>She sold 48/2 = 24 clips.\nIn all 1,072.</think><answer>1,072</answer>"
    assert said(convert("gsm8k", ROW).turns) == [("user", "How many?"), ("assistant", expected)]


def test_the_prompt_has_the_gold_without_separators(convert) -> None:
    prompt = convert("gsm8k_prompt", ROW)
    assert (prompt.prompt[0].text, prompt.gold, prompt.verifier) == ("How many?", "1072", "number")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "It is 72."}, "no_gold"),
        ({"answer": "x\n#### many"}, "bad_gold"),
        ({"question": " "}, "empty_prompt"),
        ({"answer": None}, "missing_field"),
        ({"question": 5}, "wrong_type"),
    ],
)
def test_rows_without_question_or_gold_are_refused(refusal, change, reason) -> None:
    for name in ("gsm8k", "gsm8k_prompt"):
        assert refusal(name, {**ROW, **change}).reason == reason


def test_an_answer_without_reasoning_is_refused(refusal) -> None:
    assert refusal("gsm8k", {"question": "q", "answer": "#### 5"}).reason == "empty_answer"


def test_the_whole_train_file(real_data, convert) -> None:
    """The bytes of train-llm-from-scratch's ``rl_prompts_train.jsonl``, by their published SHA-256."""
    rows = [json.loads(line) for line in (real_data / "gsm8k/train.jsonl").read_text("utf-8").splitlines()]
    prompts = [convert("gsm8k_prompt", row) for row in rows]
    lines = [json.dumps({"prompt": p.prompt[0].text, "gold": gold_as_json_number(p.gold)}) + "\n" for p in prompts]
    assert len(lines) == 7473
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == "80b7b6650c41e07b70b63482104801eef4a884238bd1bae39225cca21bded712"
    for row, prompt in zip(rows, prompts, strict=True):
        reasoning, final = re.sub("<<[^>]*>>", "", row["answer"]).split("####")
        answer = convert("gsm8k", row).turns[1].text
        assert answer == f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        assert prompt.gold == final.strip().replace(",", "")


def test_the_reasoning_as_a_region_of_its_own(convert) -> None:
    row = {"question": "Half of 8?", "answer": "8/2 = <<8/2=4>>4\n#### 4"}
    answer = convert("gsm8k", row, thinking=True).turns[1]
    assert [(region.kind, region.text) for region in answer.regions] == [("thinking", "8/2 = 4"), ("text", "<answer>4</answer>")]
