"""Gold answers, read a second time by code that shares nothing with the first reader, and compared."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from prep_assets.proofs.verdict import Verdict, Worst

_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Converted:
    """A gold that no second reading finds in its row: a schema of somebody's own worked it out, and said the same when it was asked again."""


CONVERTED = Converted()


def check_golds(rows: Iterable[tuple[str, str, object, Fraction | Converted | None]]) -> Verdict:
    """Compare each gold with a second reading of its source.

    Args:
        rows: record id, prompt, gold as written, and the value that `second_reading` (or `worked_out`) finds; `None` where it differs or is missing.
            `CONVERTED` golds are counted apart.
    """
    checked = agreed = converted = 0
    worst: Worst | None = None
    for identity, prompt, gold, second in rows:
        checked += 1
        first = _exactly(gold)
        if isinstance(second, Converted):
            converted += 1
        elif second is not None and first == second:
            agreed += 1
        elif worst is None:
            worst = Worst(identity, f"gold is {gold!r}, a second reading gives {second}; prompt: {prompt[-80:]!r}")
    numbers = {"golds_checked": checked, "golds_agreed": agreed}
    if converted:
        numbers["golds_converted_again"] = converted
    if worst is None:
        apart = f"; {converted:,} are their schema's own and were only converted again" if converted else ""
        return Verdict(True, f"{agreed:,} of {checked:,} golds agree with a second reading{apart}", numbers)
    return Verdict(
        False, f"{checked - agreed - converted:,} of {checked:,} golds do not agree; first {worst.where}: {worst.note}", numbers, worst
    )


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


def stands_in(gold: object, row: object) -> bool:
    """Whether some value of a row is the gold: the same text, or the same number, however its digits are grouped."""
    if isinstance(row, Mapping):
        return any(stands_in(gold, inner) for inner in row.values())
    if isinstance(row, list | tuple):
        return any(stands_in(gold, inner) for inner in row)
    if row is None or isinstance(row, bool):
        return False
    if str(row).strip() == str(gold).strip():
        return True
    number = _fraction(str(row).strip().replace(",", ""))
    return number is not None and number == _fraction(str(gold))


def as_number(text: object) -> Fraction | None:
    """A gold that another verifier than ``number`` has as text."""
    return _fraction(str(text))


def _value(node: Any) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"no arithmetic: {ast.dump(node)}")


def _exactly(gold: object) -> Fraction | None:
    """A written gold as an exact number: a JSON float by its shortest decimal. Text such as ``"18.0"`` is none: a verifier compares numbers."""
    return _fraction(repr(gold)) if type(gold) in (int, float) else gold if isinstance(gold, Fraction) else None


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
