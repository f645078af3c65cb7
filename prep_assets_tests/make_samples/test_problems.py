"""The word problems are right: every calculator note is worked out again by a second evaluator."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

Rows = Callable[[str], list[Any]]
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}


def worked_out(expression: str) -> Fraction:
    """Dijkstra's shunting yard on exact fractions; a minus where a number is due is a sign."""
    values: list[Fraction] = []
    operators: list[str] = []

    def reduce() -> None:
        right, left = values.pop(), values.pop()
        operator = operators.pop()
        values.append({"+": left + right, "-": left - right, "*": left * right, "/": left / right if operator == "/" else left}[operator])

    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/()]", expression)
    assert "".join(tokens) == expression, f"{expression!r} holds something else than arithmetic"
    sign, number_is_due = 1, True
    for token in tokens:
        if token == "-" and number_is_due:
            sign = -sign
        elif token == "(":
            operators.append(token)
        elif token == ")":
            while operators[-1] != "(":
                reduce()
            operators.pop()
        elif token in PRECEDENCE:
            while operators and PRECEDENCE.get(operators[-1], 0) >= PRECEDENCE[token]:
                reduce()
            operators.append(token)
            number_is_due = True
        else:
            values.append(sign * Fraction(token))
            sign, number_is_due = 1, False
    while operators:
        reduce()
    (value,) = values
    return value


def wrong_notes(answer: str) -> list[str]:
    """What is wrong in an answer: notes that do not hold or are not repeated in the text, a final number that is not the last result."""
    found = []
    notes = re.findall(r"<<([^<>=]+)=([^<>]+)>>(-?\d+(?:\.\d+)?)", answer)
    if len(notes) != answer.count("<<") or not notes:
        found.append("a note is malformed")
    found += [f"{left}={right}" for left, right, _ in notes if worked_out(left) != Fraction(right)]
    found += [f"{right} is followed by {shown}" for _, right, shown in notes if right != shown]
    final = re.fullmatch(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?", answer.rpartition("\n#### ")[2])
    if final is None or not notes or Fraction(final[0].replace(",", "")) != Fraction(notes[-1][1]):
        found.append("the final number is not the last result")
    return found


@pytest.mark.parametrize(
    ("expression", "value"),
    [("2+3*4", 14), ("(2+3)*4", 20), ("-6+4", -2), ("7-2-1", 4), ("12/4/3", 1), ("0.1+0.2", Fraction(3, 10)), ("0-5-3", -8)],
)
def test_the_second_evaluator_knows_arithmetic(expression: str, value: Fraction) -> None:
    assert worked_out(expression) == value


@pytest.mark.parametrize(
    "answer",
    [
        "It is <<2*3=7>>7.\n#### 7",
        "It is <<2*3=6>>7.\n#### 6",
        "It is <<2*3=6>>6.\n#### 8",
        "It is <<2*3=6>>6.\n#### 06,0",
        "It is 6.\n#### 6",
        "It is <<2*3>>6.\n#### 6",
    ],
)
def test_a_wrong_answer_is_noticed(answer: str) -> None:
    assert wrong_notes(answer)


def test_every_note_and_every_final_number_is_right(rows: Rows) -> None:
    assert [(row["question"], wrong_notes(row["answer"])) for row in rows("gsm8k.jsonl") if wrong_notes(row["answer"])] == []


def test_the_rows_have_the_public_form_and_differ(rows: Rows) -> None:
    problems = rows("gsm8k.jsonl")
    assert len(problems) == 200
    assert all(list(row) == ["question", "answer"] for row in problems)
    assert len({row["question"] for row in problems}) == len(problems)
    assert not [row["question"] for row in problems if re.search(r"[{}]|<<", row["question"])]


def test_the_numbers_of_a_question_are_used_in_its_answer(rows: Rows) -> None:
    for row in rows("gsm8k.jsonl"):
        asked = re.findall(r"\d+(?:\.\d+)?", row["question"])
        notes = {Fraction(number) for note in re.findall(r"<<(.+?)=", row["answer"]) for number in re.findall(r"\d+(?:\.\d+)?", note)}
        text = {Fraction(number) for number in re.findall(r"\d+(?:\.\d+)?", row["answer"])}
        assert {Fraction(number) for number in asked} <= notes | text, row["question"]


def test_every_kind_of_result_occurs(rows: Rows) -> None:
    finals = [row["answer"].rpartition("#### ")[2] for row in rows("gsm8k.jsonl")]
    assert sum("," in final for final in finals) >= 10, "thousands with a separator"
    assert sum(re.fullmatch(r"\d{4,}", final) is not None for final in finals) >= 5, "thousands without one"
    assert sum(final.startswith("-") for final in finals) >= 5, "negative"
    assert sum("." in final for final in finals) >= 10, "decimal"


def test_no_two_rows_share_thirteen_words_in_a_row(rows: Rows) -> None:
    owner: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(rows("gsm8k.jsonl")):
        words = re.findall(r"\w+", f"{row['question']} {row['answer']}".lower())
        for start in range(len(words) - 12):
            run = tuple(words[start : start + 13])
            assert owner.setdefault(run, number) == number, " ".join(run)
