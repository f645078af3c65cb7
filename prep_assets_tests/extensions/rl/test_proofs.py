"""Golds: the second reading, alone and against real data; questions of the curriculum, drawn again."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.extensions.lines.write import Claims
from prep_assets.extensions.rl.prompts import GOLDS
from prep_assets.extensions.rl.proofs.golds import (
    CONVERTED,
    Gold,
    as_number,
    check_golds,
    check_prompts,
    is_told,
    second_reading,
    stands_in,
    worked_out,
)
from prep_assets.extensions.rl.proofs.questions import questions
from prep_assets.extensions.rl.schemas import LEVELS, arithmetic_rows
from prep_assets.graph.graph import CHECKS, run_check
from prep_assets_tests.graph.workspaces import build, domain, minimal, resealed, workspace_in


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("so\n#### 18", Fraction(18)),
        ("#### \u22123.", Fraction(-3)),
        ("####\n 0.1", Fraction(1, 10)),
        ("#### 5\r\nmore", Fraction(5)),
        ("#### 5\n#### 5.0", None),
        ("#### 5\n#### 6", None),
        ("no mark, 18", None),
        ("#### many", None),
        ("####", None),
        ("#### 1/0", None),
        ("#### 2.50.", Fraction(5, 2)),
        ("#### .5", Fraction(1, 2)),
        ("#### X5", None),
        ("#### 5X", None),
        ("#### \u00a07", Fraction(7)),
    ],
)
def test_second_reading(answer: str, value: Fraction | None) -> None:
    assert second_reading(answer) == value


@given(st.integers(-(10**12), 10**12), st.integers(0, 99))
def test_second_reading_of_any_decimal_with_separators(whole: int, cents: int) -> None:
    sign = "-" if whole < 0 else ""
    expected = Fraction(abs(whole) * 100 + cents, 100) * (-1 if whole < 0 else 1)
    assert second_reading(f"because\n#### {sign}{abs(whole):,}.{cents:02}") == expected


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is 12 + 13?", Fraction(25)),
        ("What is (12 - 30) * 4?", Fraction(-72)),
        ("What is 1 / 3?", Fraction(1, 3)),
        ("What is -5?", Fraction(-5)),
        ("What is 1 / 0?", None),
        ("What is 2 ** 9?", None),
        ("What is love?", None),
        ("What is __import__('os')?", None),
        ("12 + 13", None),
        ("What is " + "(" * 500 + "1" + ")" * 500 + "?", None),
    ],
)
def test_worked_out(question: str, value: Fraction | None) -> None:
    assert worked_out(question) == value


def test_golds_that_no_other_code_finds_are_counted_apart() -> None:
    """They were counted as agreeing with a second reading, which the same converter had made."""
    verdict = check_golds([Gold("a", "p", 3, Fraction(3)), Gold("b", "p", "worked out", CONVERTED)])
    assert verdict.passed
    assert dict(verdict.numbers) == {"golds_checked": 2, "golds_agreed": 1, "golds_converted_again": 1}
    assert "1 are their schema's own" in verdict.summary
    assert not check_golds([Gold("b", "p", "worked out", None)]).passed


@pytest.mark.parametrize(
    ("gold", "second", "agrees"),
    [
        ("18", Fraction(18), False),
        (True, Fraction(1), False),
        (Fraction(1, 3), Fraction(1, 3), True),
        (Fraction(1, 3), Fraction(1, 2), False),
        (0.1, Fraction("0.1"), True),
    ],
)
def test_a_gold_is_a_number(gold: object, second: Fraction, agrees: bool) -> None:
    assert check_golds([Gold("a", "p", gold, second)]).passed is agrees


def test_a_gold_as_text() -> None:
    assert (as_number("1.50"), as_number(3), as_number("Lima")) == (Fraction(3, 2), Fraction(3), None)


@pytest.mark.parametrize(
    ("gold", "row", "stands"),
    [
        ("Lima", {"question": "Capital?", "answer": " Lima\n"}, True),
        ("1234", {"reward_model": {"ground_truth": "1,234"}}, True),
        ("0.5", {"answers": ["x", 0.50]}, True),
        ("Lima", {"answer": "Lima or Quito"}, False),
        ("1", {"checked": True, "answer": None}, False),
        ("None", {"answer": None}, False),
        ("True", {"answer": True}, False),
    ],
)
def test_a_gold_that_stands_in_its_row(gold: str, row: dict[str, object], stands: bool) -> None:
    assert stands_in(gold, row) is stands


def test_every_gold_of_gsm8k_agrees_and_every_corrupted_one_is_caught(real_data: Path, tmp_path: Path) -> None:
    families = minimal("rl", {"gsm8k": domain(real_data / "gsm8k" / "train.jsonl", "gsm8k")}, arithmetic={"n": 1})
    workspace = workspace_in(tmp_path, families)
    for name, partition in (("rl_raw", "gsm8k"), ("rl_prompts_by_domain", "gsm8k")):
        published = build(workspace, name, partition)
    (check,) = (each for each in CHECKS["rl_prompts_by_domain"] if each.name == "gold_answers")
    assert run_check(check, workspace, published).numbers == {"golds_checked": 7473, "golds_agreed": 7473}

    path = published.directory / "rl_prompts_train.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    draw = random.Random(7)
    for number, at in enumerate(draw.sample(range(len(rows)), 200)):
        gold = rows[at]["gold"]
        rows[at]["gold"] = (gold + 1, -gold if gold else 7, gold + 0.1, gold * 10 if gold else 10)[number % 4]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    verdict = run_check(check, workspace, resealed(published))
    assert not verdict.passed
    assert verdict.numbers == {"golds_checked": 7473, "golds_agreed": 7273}


@pytest.mark.parametrize(
    ("told", "row", "stands"),
    [
        ("[1,2]", {"tests": [1, 2]}, True),
        ("[1,2]", {"tests": "[1, 2]"}, True),
        ("['a']".replace("'", '"'), {"tests": "['a']"}, True),
        ("[1,2]", {"info": {"tests": [1, 2]}}, True),
        ('{"b":1,"a":[2]}', {"a": [2], "b": 1}, True),
        ('{"b":1,"a":[2]}', {"a": [2], "b": 2}, False),
        ("[1,2]", {"tests": [1, 2, 3]}, False),
        ("[1]", {"tests": [True]}, False),
        ("[1]", {"tests": [1.0]}, False),
        ("{}", {"tests": {}}, True),
        ("[1]", {"tests": "[1"}, False),
        ("[1]", {}, False),
    ],
)
def test_what_a_verifier_is_told_stands_in_its_row(told: str, row: dict[str, object], stands: bool) -> None:
    assert is_told(told, row) is stands


@pytest.mark.parametrize("levels", [(name,) for name in LEVELS] + [("mul", "seed", "add_sub"), ("two_step", "add")])
@pytest.mark.parametrize("unique", [False, True])
def test_questions_of_arithmetic(levels: tuple[str, ...], unique: bool) -> None:
    for n, largest, seed in ((34, 20, 0), (11, 3, 7), (2, 0, 1)) if not unique else ((34, 20, 0), (12, 3, 7)):
        rows = [(row["prompt"], int(row["gold"]), row["level"]) for row in arithmetic_rows(n, largest, seed, levels, unique)]
        assert [*questions(n, largest, seed, levels, unique=unique)] == rows


EQUAL_GOLDS = [
    (2.5, 2.5),
    ("2.50", "+2.5"),
    ("-0", "0.0"),
    ("-2/04", "-0.5"),
    ("007", "7"),
    ("1,000.5", "1000.50"),
    ("The Nile", "the  nile"),
    ("0.10000000000000000001", "0.100000000000000000010"),
]
OTHER_GOLDS = [
    (2.5, -2.5),
    ("2.5", "25"),
    ("A", "B"),
    ("1,00", "100"),
    ("1.", "1"),
    (".5", "0.5"),
    ("1/0", "0"),
    ("0.1", "0.10000000000000000001"),
    ("٣", "3"),
]


@pytest.mark.parametrize(("golds", "equal"), [*((each, True) for each in EQUAL_GOLDS), *((each, False) for each in OTHER_GOLDS)])
def test_a_prompt_with_two_golds(golds: tuple[Any, Any], equal: bool) -> None:
    """The check and the build compare golds alike, by other code."""
    one, two = ({"prompt": "Q?", "gold": gold, "verifier": "own"} for gold in golds)
    claims = Claims(GOLDS, frozenset())
    claims.check([one, two])
    assert not claims.found if equal else len(claims.found) == 1
    found = check_prompts([one], [two])
    assert found.passed == equal
    assert equal or (found.worst is not None and found.worst.where == "test line 1" and "another gold as well" in found.worst.note)
    for changed in ({**two, "prompt": "R?"}, {**two, "verifier": "math"}, {**two, "arguments": "[]"}, {**two, "gold": ""}):
        assert check_prompts([one, changed], []).passed
        Claims(GOLDS, frozenset()).check([one, changed])
