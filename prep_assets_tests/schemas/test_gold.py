"""Gold numbers, against vectors worked out by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.schemas.gold import gold_as_json_number, gold_number, gold_of_number, plain_number


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
        ("#### 7\n#### 8", "7"),
        ("#### 7 #### 8", "7"),
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


@pytest.mark.parametrize(
    "final",
    [
        "",
        "forty",
        "1/2",
        "50%",
        "1e5",
        "5-3",
        "10-20",
        "1,2,3",
        "1,23",
        "12,34",
        "5 apples",
        "1 234",
        "7 then 8",
        "--5",
        "$",
        ".",
        "٣",
        "1_000",
        "∞",
    ],
)
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
