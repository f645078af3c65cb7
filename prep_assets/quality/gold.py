"""Gold answers, parsed a second time by code that shares nothing with the first parser, and compared."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from prep_assets.quality.verdict import Verdict, Worst

_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def check_golds(rows: Iterable[tuple[str, str, object, Fraction | None]]) -> Verdict:
    """Compare each gold with a second reading of its source.

    Args:
        rows: record id, prompt, gold as written, and the value that `second_reading` (or `worked_out`) finds; `None` where it finds none.
    """
    checked = agreed = 0
    worst: Worst | None = None
    for identity, prompt, gold, second in rows:
        checked += 1
        first = _exactly(gold)
        if second is not None and first == second:
            agreed += 1
        elif worst is None:
            worst = Worst(identity, f"gold is {gold!r}, a second reading gives {second}; prompt: {prompt[-80:]!r}")
    numbers = {"golds_checked": checked, "golds_agreed": agreed}
    if worst is None:
        return Verdict(True, f"{agreed:,} of {checked:,} golds agree with a second reading", numbers)
    return Verdict(False, f"{checked - agreed:,} of {checked:,} golds do not agree; first {worst.where}: {worst.note}", numbers, worst)


def second_reading(answer: str) -> Fraction | None:
    """The number that follows ``####`` in an answer, read character by character; `None` where there is none, or where several differ."""
    marked = [piece.strip().split("\n")[0] for piece in answer.split("####")[1:]]
    kept = {"".join(char for char in line if char not in "$, \t\r\u00a0").replace("\u2212", "-").rstrip(".") for line in marked}
    return _fraction(kept.pop()) if len(kept) == 1 else None


def worked_out(question: str) -> Fraction | None:
    """The value of the arithmetic in ``What is (12 + 3) * 4?``, worked out exactly; `None` where it is no such question."""
    expression = question.strip().removeprefix("What is ").removesuffix("?")
    if len(expression) != len(question.strip()) - len("What is ?"):
        return None
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: Any) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"no arithmetic: {ast.dump(node)}")


def _exactly(gold: object) -> Fraction | None:
    """A written gold as an exact number: a JSON float by its shortest decimal."""
    return _fraction(repr(gold) if isinstance(gold, float) else str(gold))


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
