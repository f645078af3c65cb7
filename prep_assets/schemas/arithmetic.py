"""``arithmetic``: the generated curriculum that lets a weak policy earn its first rewards."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.samples import USER, Prompt, turn
from prep_assets.schemas.fields import text_of
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rl_prompt import rl_prompt

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Level:
    """Which questions a level asks: the operators it draws from, and how many of them stand in one question (1 or 2)."""

    operators: str
    steps: int = 1

    def questions(self, largest: int) -> int:
        """How many different questions there are with operands 0 … `largest`."""
        return math.prod([largest + 1] * (self.steps + 1) + [len(self.operators)] * self.steps)

    def question(self, index: int, largest: int) -> tuple[str, int]:
        """The question with number `index` and its answer."""
        operands, operators = [], []
        for _ in range(self.steps + 1):
            index, operand = divmod(index, largest + 1)
            operands.append(operand)
        for _ in range(self.steps):
            index, operator = divmod(index, len(self.operators))
            operators.append(self.operators[operator])
        value = _apply(operands[0], operators[0], operands[1])
        text = f"{operands[0]} {operators[0]} {operands[1]}"
        if self.steps == 2:
            value, text = _apply(value, operators[1], operands[2]), f"({text}) {operators[1]} {operands[2]}"
        return f"What is {text}?", value


LEVELS = {"add": Level("+"), "add_sub": Level("+-"), SEED: Level("+-*"), "mul": Level("*"), "two_step": Level("+-*", steps=2)}


def arithmetic_rows(
    n: int = 5000, largest: int = 20, seed: int = 0, levels: Sequence[str] = (SEED,), unique: bool = False
) -> Iterator[dict[str, str]]:
    """`n` questions, level after level in the order given, each level with its equal share (the first ones with the remainder).

    Args:
        n: number of rows.
        largest: largest operand; the smallest is 0.
        seed: each level draws from a generator of its own, seeded by this and the level's name.
        levels: names out of ``add``, ``add_sub``, ``seed``, ``mul``, ``two_step``. The level ``seed`` (one of ``+ - *``) alone, with the
            defaults, gives the rows of train-llm-from-scratch's ``arithmetic_prompts.jsonl`` in its order.
        unique: never ask the same question twice, in whatever level.

    Yields:
        ``{"prompt": "What is 12 + 13?", "gold": "25", "level": "seed"}``; `gold` is an exact decimal string.

    Raises:
        ConfigError: an unknown level, a negative number, or with `unique` more rows asked for than questions exist.
    """
    for level in levels:
        if level not in LEVELS:
            raise ConfigError(f"no arithmetic level {level!r}{nearest(level, LEVELS) or '.'} Known: {', '.join(LEVELS)}")
    if n < 0 or largest < 0 or not levels or len(set(levels)) != len(levels):
        raise ConfigError(
            f"n = {n} and largest = {largest} must not be negative; levels = {list(levels)} must be one or more different names"
        )
    taken: set[str] = set()
    for position, name in enumerate(levels):
        share = n // len(levels) + (position < n % len(levels))
        draw = _unique_questions(name, share, largest, seed, taken) if unique else _questions(name, share, largest, seed)
        for question, value in draw:
            taken.add(question)
            yield {"prompt": question, "gold": str(value), "level": name}


def _questions(name: str, n: int, largest: int, seed: int) -> Iterator[tuple[str, int]]:
    level = LEVELS[name]
    if name != SEED:
        draw = random.Random(f"{seed}:{name}")
        yield from (level.question(draw.randrange(level.questions(largest)), largest) for _ in range(n))
        return
    # the published file comes from exactly these calls in exactly this order
    draw = random.Random(seed)
    for _ in range(n):
        a, b, operator = draw.randint(0, largest), draw.randint(0, largest), draw.choice(level.operators)
        yield f"What is {a} {operator} {b}?", _apply(a, operator, b)


def _unique_questions(name: str, n: int, largest: int, seed: int, taken: set[str]) -> list[tuple[str, int]]:
    level, total = LEVELS[name], LEVELS[name].questions(largest)
    # as many spare draws as questions were asked before, for each of those may come up again
    sample = random.Random(f"{seed}:{name}").sample(range(total), min(total, n + len(taken)))
    fresh = [drawn for index in sample if (drawn := level.question(index, largest))[0] not in taken]
    if len(fresh) < n:
        raise ConfigError(
            f"{n} unique questions of level {name!r} asked for, {len(fresh)} exist with operands 0 to {largest} "
            f"that no earlier level asks ({total} in all). Ask for fewer, raise largest, or set unique to false"
        )
    return fresh[:n]


def _apply(a: int, operator: str, b: int) -> int:
    return a + b if operator == "+" else a - b if operator == "-" else a * b


_QUESTION = re.compile(r"What is (?:(\d{1,18}) ([+*-]) (\d{1,18})|\((\d{1,18}) ([+*-]) (\d{1,18})\) ([+*-]) (\d{1,18}))\?", re.ASCII)


@schema("arithmetic", gives=Prompt, example={"prompt": "What is 12 + 13?", "gold": "25", "level": "seed"})
def arithmetic(*, prompt_key: str = "prompt", gold_key: str = "gold") -> Convert:
    """A generated question as an RL prompt. The gold is worked out again: a row that says otherwise is refused (``wrong_gold``).

    Options:
        prompt_key: field with the question.
        gold_key: field with the answer, a decimal string or a JSON number.
    """
    read = rl_prompt(prompt_key=prompt_key, gold_key=gold_key)

    def convert(row: Mapping[str, Any]) -> Prompt:
        question = text_of(row, prompt_key)
        match = _QUESTION.fullmatch(question.strip())
        if match is None:
            raise Refused("not_arithmetic", f"{question[:60]!r} is not 'What is a + b?' or 'What is (a + b) * c?'")
        prompt = read(row)
        if Decimal(prompt.gold) != (answer := _answer(match)):
            raise Refused("wrong_gold", f"{question!r} is {answer}, {gold_key!r} says {prompt.gold}")
        return Prompt((turn(USER, question.strip()),), prompt.gold)

    return convert


def _answer(match: re.Match[str]) -> int:
    if match[1]:
        return _apply(int(match[1]), match[2], int(match[3]))
    return _apply(_apply(int(match[4]), match[5], int(match[6])), match[7], int(match[8]))
