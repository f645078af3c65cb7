"""Gold answers, compared with a second reading that shares no code with the first."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from prep_assets.extensions.lines.proofs import Rows, about, contradicted
from prep_assets.proofs.second_reading import Seen
from prep_assets.proofs.verdict import Numbers, Rule, Verdict, Worst, shown, some_fail

_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Converted:
    """A gold that no second reading can find: the user's own schema computed it, and gave the same value again."""


CONVERTED = Converted()


@dataclass(frozen=True, slots=True)
class Gold:
    """A stored gold.

    Attributes:
        id: of its record.
        prompt: its prompt.
        stored: as it is stored.
        second: the value of `second_reading` or `worked_out`; `None` where it is missing. `CONVERTED` golds are counted separately.
    """

    id: str
    prompt: str
    stored: object
    second: Fraction | Converted | None


def _gold_fault(gold: Gold, numbers: Counter[str]) -> str | None:
    numbers["golds_checked"] += 1
    if isinstance(gold.second, Converted):
        numbers["golds_converted_again"] += 1
    elif gold.second is None or _exactly(gold.stored) != gold.second:
        return f"gold is {gold.stored!r}, a second reading gives {gold.second}; prompt: {gold.prompt[-80:]!r}"
    else:
        numbers["golds_agreed"] += 1
    return None


def _golds_hold(numbers: Numbers) -> str:
    converted = numbers.get("golds_converted_again")
    note = f"; {converted:,} are their schema's own and were only converted again" if converted else ""
    return f"{numbers['golds_agreed']:,} of {numbers['golds_checked']:,} golds agree with a second reading{note}"


check_golds = Rule(_gold_fault, ("golds_checked", "golds_agreed"), _golds_hold, ("", "golds do not agree"))


def second_reading(answer: str) -> Fraction | None:
    """Return the number after ``####`` in an answer, read character by character; `None` for none, or for several that differ."""
    marked = [piece.strip().split("\n")[0] for piece in answer.split("####")[1:]]
    cleaned = {"".join(char for char in line if char not in "$, \t\r\u00a0").replace("\u2212", "-").rstrip(".") for line in marked}
    return _fraction(cleaned.pop()) if len(cleaned) == 1 else None


def worked_out(question: str) -> Fraction | None:
    """Return the exact value of the arithmetic in ``What is (12 + 3) * 4?``; `None` for any other text."""
    expression = question.strip().removeprefix("What is ").removesuffix("?")
    if len(expression) != len(question.strip()) - len("What is ?"):
        return None
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def stands_in(gold: object, row: object) -> bool:
    """Whether a value in a row is the gold: the same text, or the same number, commas aside."""
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


def is_told(arguments: str, row: object) -> bool:
    """Whether what a verifier is told stands in a row: as a value, as a text with it, or, where it is an object, field by field."""
    told, values = json.loads(arguments), set(_values(row))
    fields = told.values() if isinstance(told, dict) else ()
    return _sorted(told) in values or (bool(fields) and all(_sorted(value) in values for value in fields))


_sorted = json.JSONEncoder(sort_keys=True, default=str).encode


def _values(value: object) -> Iterator[str]:
    """Yield the values of an object as JSON, and those of objects in it; each text also as what it says in JSON or in Python's notation."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield _sorted(inner)
            yield from _values(inner)
    elif isinstance(value, str):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                yield _sorted(read(value))


def as_number(text: object) -> Fraction | None:
    """Return the number of a gold that is stored as text, for verifiers other than ``number``."""
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
    """Return a stored gold as an exact number: a JSON float by its shortest decimal. Text such as ``"18.0"`` is none: a verifier compares numbers."""
    return _fraction(repr(gold)) if type(gold) in (int, float) else gold if isinstance(gold, Fraction) else None


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


# Prompts with two golds.


def check_prompts(train: Rows, test: Rows) -> Verdict:
    """Check that no prompt of a domain has two golds."""
    known, checked, failed, worst = Seen(), 0, 0, None
    for name, rows in {"train": train, "test": test}.items():
        for number, row in enumerate(rows, 1):
            checked += 1
            if contradicted(claim(row), known):
                failed, worst = (
                    failed + 1,
                    worst or Worst(f"{name} line {number:,}", f"the same prompt has another gold as well: {shown(row)}"),
                )
    if worst is not None:
        return some_fail(failed, checked, "prompts have two golds", worst, {"prompts_checked": checked, "prompts_failed": failed})
    return Verdict(True, f"each of {checked:,} prompts has one gold", {"prompts_checked": checked, "prompts_failed": 0})


def claim(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a prompt is, and its gold; `None` where it has none. Golds that are plain numbers or fractions are equal by value, others without case and
    white space."""
    if (gold := row.get("gold", "")) == "":
        return None
    prompt, words = about(row, "gold", "gold_text"), "".join(str(gold).casefold().split())
    number = re.fullmatch(r"([+-]?(?:[0-9]{1,3}(?:,[0-9]{3}){1,99}|[0-9]{1,400}))(?:\.([0-9]{1,400})|/([0-9]{1,400}))?", words)
    if number is None or (number[3] and not int(number[3])):
        return prompt, words
    return prompt, str(Fraction(int(number[1].replace(",", "") + (number[2] or "")), 10 ** len(number[2] or "") * int(number[3] or 1)))
