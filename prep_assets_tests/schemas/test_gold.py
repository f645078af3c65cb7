"""Gold numbers, against vectors worked out by hand."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.rl.prompts import prompt_row
from prep_assets.extensions.rl.schemas import LEVELS, arithmetic_rows, gold_as_json_number, gold_number, gold_of_number, plain_number
from prep_assets.samples import Prompt
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.schemas.conftest import in_short


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("She has 5 left.\n#### 72", "72"),
        ("#### 1,234", "1234"),
        ("#### 1,234,567.50", "1234567.50"),
        ("#### $1,234", "1234"),
        ("#### -$5", "-5"),
        ("#### $-5", "-5"),
        ("#### −7", "-7"),
        ("#### +7", "7"),
        ("####18", "18"),
        ("#### 18 \n", "18"),
        ("#### 18.", "18"),
        ("#### .5", "0.5"),
        ("#### 007", "7"),
        ("#### -0", "0"),
        ("#### 12345678901234567890.123456789", "12345678901234567890.123456789"),
    ],
)
def test_the_number_after_the_first_mark(answer: str, gold: str) -> None:
    assert gold_number(answer) == gold


@pytest.mark.parametrize("answer", ["", "The answer is 72.", "### 72", "<answer>72</answer>"])
def test_without_the_mark_there_is_no_gold(answer: str) -> None:
    with pytest.raises(Refused) as caught:
        gold_number(answer)
    assert caught.value.reason == "no_gold"


@pytest.mark.parametrize("answer", ["#### 7\n#### 8", "#### 7 #### 8", "#### 7\nThat is all.", "#### 7\n\n7 it is", "#### 7\u2028x"])
def test_what_would_be_lost_behind_the_gold_is_refused(answer: str) -> None:
    with pytest.raises(Refused) as caught:
        gold_number(answer)
    assert caught.value.reason == "bad_gold"


@pytest.mark.parametrize(
    ("gold", "number", "text"),
    [
        ("0.00005", 5e-05, "0.00005"),
        ("2.50", 2.5, "2.50"),
        ("18.0", 18.0, "18.0"),
        ("-.10", -0.1, "-0.10"),
        (0.00005, 5e-05, "0.00005"),
        ("2.5", 2.5, None),
        ("$1,000", 1000.0, None),
        (18.0, 18.0, None),
        ("10000000000000000000000", 1e22, None),
    ],
)
def test_lines_keep_the_digits_of_a_gold(gold: object, number: float, text: str | None) -> None:
    """Reward functions compare texts: 5e-05 and 2.5 score 0 for ever where a model writes what the row says."""
    example = apply(convert_with("rl_prompt"), {"prompt": "q", "gold": gold})
    assert isinstance(example, Prompt)
    assert prompt_row(example, "text") == {"prompt": "q", "gold": number, **({} if text is None else {"gold_text": text})}


NOT_PLAIN = "|forty|1/2|50%|1e5|5-3|10-20|1,2,3|1,23|12,34|5 apples|1 234|7 then 8|--5|$|.|٣|1_000|∞"


@pytest.mark.parametrize("final", NOT_PLAIN.split("|"))
def test_what_is_not_one_plain_number_is_refused(final: str) -> None:
    with pytest.raises(Refused) as caught:
        gold_number(f"1 + 1 = 2\n#### {final}")
    assert caught.value.reason == "bad_gold"


@pytest.mark.parametrize(
    ("number", "gold"),
    [
        (18.0, "18"),
        (18, "18"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e22, "10000000000000000000000"),
        (2.5e-7, "0.00000025"),
        (-3.5, "-3.5"),
        (10**25, "1" + "0" * 25),
    ],
)
def test_json_numbers_as_exact_strings(number: float, gold: str) -> None:
    assert gold_of_number(number) == gold


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_infinities_are_no_gold(number: float) -> None:
    with pytest.raises(Refused):
        gold_of_number(number)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3))
def test_a_decimal_with_separators_is_read_back_exactly(value: Decimal) -> None:
    assert Decimal(gold_number(f"#### ${value:,.3f}".replace("$-", "-$"))) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_the_way_through_its_gold(value: float) -> None:
    assert gold_as_json_number(gold_of_number(value)) == value


def test_a_gold_that_no_float_holds_is_refused() -> None:
    assert gold_as_json_number("9007199254740992") == 9007199254740992.0
    for gold in ("9007199254740993", "0.1234567890123456789", "1" + "0" * 400):
        with pytest.raises(Refused) as caught:
            gold_as_json_number(gold)
        assert caught.value.reason == "bad_gold"


def test_plain_number_takes_the_text_alone() -> None:
    assert plain_number("1,000") == "1000"
    with pytest.raises(Refused):
        plain_number(" 5")


# -- the arithmetic curriculum -----------------------------------------------------------------------------------------------------------


def test_the_default_is_the_published_file_byte_for_byte() -> None:
    rows = list(arithmetic_rows())
    data = "".join(json.dumps({"prompt": row["prompt"], "gold": gold_as_json_number(row["gold"])}) + "\n" for row in rows).encode()
    assert len(data) == 220_132
    assert hashlib.sha256(data).hexdigest() == "9026ffcb9c8fe5dd2dc6d5bbf29091a1daddb4900dc639f53b03167fa0242b1c"
    assert [row["prompt"] for row in rows[:3]] == ["What is 12 + 13?", "What is 8 - 16?", "What is 12 - 9?"]
    assert len({row["prompt"] for row in rows}) == 1295
    assert sum(row["gold"].startswith("-") for row in rows) == 810
    assert {row["level"] for row in rows} == {"seed"}


@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("unique", [False, True])
def test_every_gold_is_right_and_every_level_asks_its_own_operators(level: str, unique: bool) -> None:
    allowed = {"add": "+", "add_sub": "+-", "seed": "+-*", "mul": "*", "two_step": "+-*"}[level]
    for row in arithmetic_rows(60, largest=7, seed=3, levels=(level,), unique=unique):
        expression = row["prompt"].removeprefix("What is ").removesuffix("?")
        assert eval(expression) == int(row["gold"])
        operators = [word for word in expression.replace("(", "").replace(")", "").split() if not word.isdigit()]
        assert set(operators) <= set(allowed)
        assert len(operators) == (2 if level == "two_step" else 1)
        assert all(int(word) <= 7 for word in expression.replace("(", "").replace(")", "").split() if word.isdigit())
        assert row["level"] == level


def test_unique_asks_every_question_there_is_exactly_once() -> None:
    asked = [row["prompt"] for row in arithmetic_rows(3 * 21 * 21, unique=True)]
    assert sorted(asked) == sorted(f"What is {a} {op} {b}?" for a in range(21) for b in range(21) for op in "+-*")
    two_steps = {row["prompt"] for row in arithmetic_rows(9 * 4**3, largest=3, levels=("two_step",), unique=True)}
    assert len(two_steps) == 9 * 4**3


def test_unique_says_how_many_questions_exist() -> None:
    with pytest.raises(ConfigError, match=r"1324 unique questions of level 'seed' asked for, 1323 exist .*\(1323 in all\)"):
        list(arithmetic_rows(1324, unique=True))


def test_unique_holds_across_levels_that_overlap() -> None:
    rows = list(arithmetic_rows(81, largest=5, levels=("add", "add_sub", "seed"), unique=True))
    assert len({row["prompt"] for row in rows}) == 81
    assert Counter(row["level"] for row in rows) == {"add": 27, "add_sub": 27, "seed": 27}


def test_unique_counts_what_earlier_levels_have_asked_already() -> None:
    first = [row["prompt"] for row in arithmetic_rows(30, largest=5, levels=("add_sub",), unique=True)]
    left = 6 * 6 - sum("+" in question for question in first)
    with pytest.raises(ConfigError, match=f"30 unique questions of level 'add' asked for, {left} exist .* \\(36 in all\\)"):
        list(arithmetic_rows(60, largest=5, levels=("add_sub", "add"), unique=True))


def test_shares_seeds_and_determinism() -> None:
    levels = ("mul", "add", "two_step")
    rows = list(arithmetic_rows(11, seed=5, levels=levels))
    assert Counter(row["level"] for row in rows) == {"mul": 4, "add": 4, "two_step": 3}
    assert rows == list(arithmetic_rows(11, seed=5, levels=levels))
    assert rows != list(arithmetic_rows(11, seed=6, levels=levels))
    assert rows[4:8] == list(arithmetic_rows(4, seed=5, levels=("add",)))


@pytest.mark.parametrize("arguments", [{"n": -1}, {"largest": -1}, {"levels": ()}, {"levels": ("add", "add")}, {"levels": ("sub",)}])
def test_arguments_that_mean_nothing(arguments) -> None:
    with pytest.raises(ConfigError):
        list(arithmetic_rows(**{"n": 1, **arguments}))


def test_rows_become_prompts(convert) -> None:
    for row in arithmetic_rows(50, levels=("seed", "two_step")):
        assert in_short(convert("arithmetic", row)) == f"user: {row['prompt']} = {row['gold']} (number)"
    assert convert("arithmetic", {"prompt": "What is 4 - 6?", "gold": -2.0}).gold == "-2"
