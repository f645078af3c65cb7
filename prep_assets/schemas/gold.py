"""Gold answers: numbers as exact decimal strings.

A reward is only as good as the gold it is compared with, so there is no guessing here: where the number is not plainly there, the record is
refused.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from prep_assets.errors import Refused

MARK = "####"
# sign and dollar sign in either order; digits plain or in well-formed groups of three; decimals
_NUMBER = re.compile(r"(?:([+\-−])?\$?|\$([+\-−]))([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)?(\.[0-9]+)?\.?")


def gold_number(answer: str) -> str:
    """The number after the first ``####`` of a GSM8K answer, as an exact decimal string such as ``"1234"`` or ``"-0.50"``.

    The rest of that line must be the number and nothing else. Thousands separators and ``$`` are taken away.

    Raises:
        Refused: ``no_gold`` without the mark, ``bad_gold`` where no number stands after it.
    """
    return plain_number(final_text(answer))


def final_text(answer: str) -> str:
    """The text after the first ``####`` up to the end of its line, or to another mark, stripped."""
    _, mark, rest = answer.partition(MARK)
    if not mark:
        raise Refused("no_gold", f"the answer has no {MARK!r}; it ends {answer[-60:]!r}")
    lines = rest.partition(MARK)[0].strip().splitlines()
    return lines[0].strip() if lines else ""


def plain_number(text: str) -> str:
    """`text`, which must be one number as people write it, as an exact decimal string.

    Raises:
        Refused: ``bad_gold`` for anything else: ``1/2``, ``50%``, ``1e5``, ``5-3``, ``1,2,3``.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[3] or match[4]):
        raise Refused("bad_gold", f"{text[:60]!r} is not one plain number")
    digits = (match[3] or "0").replace(",", "") + (match[4] or "")
    negative = (match[1] or match[2] or "+") != "+" and any(digit in "123456789" for digit in digits)
    return format(Decimal(f"-{digits}" if negative else digits), "f")


def gold_of_number(value: int | float) -> str:
    """A JSON number as an exact decimal string: ``18.0`` is ``"18"``, ``0.1`` is ``"0.1"`` (the shortest decimal that is this float).

    Raises:
        Refused: ``bad_gold`` for infinities and NaN.
    """
    if isinstance(value, int):
        return format(Decimal(value), "f")
    if not math.isfinite(value):
        raise Refused("bad_gold", f"{value} is not a number")
    text = format(Decimal(repr(value)), "f").removesuffix(".0")
    return "0" if text == "-0" else text


def gold_as_json_number(gold: str) -> float:
    """`gold` as the float that train-llm-from-scratch writes into its ``rl_prompts*.jsonl``.

    Raises:
        Refused: ``bad_gold`` where `gold` is not a number, or where a reader of the written float would get another number.
    """
    number = float(plain_number(gold))
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(gold):
        raise Refused("bad_gold", f"{gold} is not kept by a JSON float, which would say {number!r}")
    return number
