"""The curriculum of arithmetic, drawn as its page says."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

_SIGNS: Mapping[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_LEVELS: Mapping[str, Sequence[str]] = {"add": ("+",), "add_sub": ("+-",), "seed": ("+-*",), "mul": ("*",), "two_step": ("+-*", "+-*")}
"""Level → the operators that the first and the second sign of a question are drawn from."""


def questions(n: int, largest: int, seed: int, levels: Sequence[str], *, unique: bool) -> Iterator[tuple[str, int, str]]:
    """Yield each question with its answer and its level. Questions have numbers, as the digits of a number with another base at each place: operands,
    the first one least, then operators."""
    asked: set[str] = set()
    for place, level in enumerate(levels):
        count, signs = len(range(place, n, len(levels))), _LEVELS[level]
        places = [range(largest + 1)] * (len(signs) + 1) + [*signs]
        total, draw = math.prod(map(len, places)), random.Random(f"{seed}:{level}")
        if unique:
            found = (_question(number, places) for number in draw.sample(range(total), min(total, count + len(asked))))
            drawn: Iterable[tuple[str, int]] = [question for question in found if question[0] not in asked][:count]
            asked.update(text for text, _ in drawn)
        elif level == "seed":  # of train-llm-from-scratch
            draw = random.Random(seed)
            drawn = (_asked([draw.randint(0, largest), draw.randint(0, largest)], draw.choice(signs[0])) for _ in range(count))
        else:
            drawn = (_question(draw.randrange(total), places) for _ in range(count))
        yield from ((text, value, level) for text, value in drawn)


def _question(number: int, places: Sequence[Sequence[Any]]) -> tuple[str, int]:
    digits = []
    for choices in places:
        digits.append(choices[number % len(choices)])
        number //= len(choices)
    operands = len(digits) // 2 + 1
    return _asked(digits[:operands], "".join(digits[operands:]))


def _asked(operands: Sequence[int], signs: str) -> tuple[str, int]:
    text, value = str(operands[0]), operands[0]
    for at, (sign, operand) in enumerate(zip(signs, operands[1:], strict=True)):
        text, value = f"{f'({text})' if at else text} {sign} {operand}", _SIGNS[sign](value, operand)
    return f"What is {text}?", value
