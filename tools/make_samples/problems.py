"""Grade-school word problems in the form of GSM8K (github.com/openai/grade-school-math).

An answer is one step a line, with calculator notes ``<<3*4=12>>12`` in it, and ends in ``#### N``.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from fractions import Fraction

from make_samples.problem_templates import NAMES, PLACES, PROBLEMS, THINGS, Problem

ROUNDS = 5
RUN = 13
TRIES = 2000


def gsm8k() -> Iterator[dict[str, str]]:
    """`ROUNDS` rows ``{question, answer}`` of each template; every note and result is exact.

    No two rows share `RUN` words in a row, so that a row that is held out for a test is not found in training by its n-grams.
    """
    rng = random.Random(8)
    seen: set[tuple[str, ...]] = set()
    for _ in range(ROUNDS):
        for problem in rng.sample(PROBLEMS, len(PROBLEMS)):
            row = _fresh(problem, rng, seen)
            seen |= _runs(row)
            yield row


def _fresh(problem: Problem, rng: random.Random, seen: set[tuple[str, ...]]) -> dict[str, str]:
    for _ in range(TRIES):
        row = _row(problem, rng)
        if row is not None and seen.isdisjoint(_runs(row)):
            return row
    raise ValueError(f"{TRIES} draws gave no new row of the template {problem.question!r}: widen its ranges or break up its fixed words")


def _runs(row: dict[str, str]) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", " ".join(row.values()).lower())
    return {tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}


def _row(problem: Problem, rng: random.Random) -> dict[str, str] | None:
    """One row with numbers drawn from the template's ranges, or `None` where a result breaks the template's limits."""
    first, second = rng.sample(NAMES, 2)
    values = {"A": first, "B": second, "things": rng.choice(THINGS), "place": rng.choice(PLACES)}
    values |= {name: str(rng.choice(span)) for name, span in problem.ranges.items()}
    steps, result = [], Fraction(0)
    for number, step in enumerate(problem.steps, start=1):
        expression, result = _note(step.format_map(values))
        if result < problem.least or (10**problem.decimals * result).denominator != 1:
            return None
        values[f"r{number}"] = plain(result)
        steps.append(step.format_map(values).replace(f"<<{expression}>>", f"<<{expression}={plain(result)}>>{plain(result)}"))
    final = separated(result) if rng.randrange(3) else plain(result)
    return {"question": problem.question.format_map(values), "answer": "\n".join([*steps, f"#### {final}"])}


def _note(step: str) -> tuple[str, Fraction]:
    """The expression of the step's one ``<<expression>>`` and its value."""
    (expression,) = re.findall(r"<<(.+?)>>", step)
    return expression, _value(ast.parse(expression, mode="eval").body, expression)


def _value(node: ast.expr, source: str) -> Fraction:
    """The exact value of decimal numbers joined by ``+ - * /``: never a float, so 0.1 is a tenth."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return _value(left, source) + _value(right, source)
        case ast.BinOp(left, ast.Sub(), right):
            return _value(left, source) - _value(right, source)
        case ast.BinOp(left, ast.Mult(), right):
            return _value(left, source) * _value(right, source)
        case ast.BinOp(left, ast.Div(), right):
            return _value(left, source) / _value(right, source)
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, source)
        case ast.Constant():
            return Fraction(source[node.col_offset : node.end_col_offset])
    raise ValueError(f"{source!r} is not arithmetic at column {node.col_offset}")


def separated(value: Fraction) -> str:
    """`value`, a whole number of hundredths, with commas between thousands: ``1,200``, ``-12.5``."""
    whole, cents = divmod(abs(int(value * 100)), 100)
    decimals = f".{cents:02}".rstrip("0") if cents else ""
    return f"{'-' if value < 0 else ''}{whole:,}{decimals}"


def plain(value: Fraction) -> str:
    """`value`, a whole number of hundredths, without separators: ``1200``, ``-12.5``."""
    return separated(value).replace(",", "")
