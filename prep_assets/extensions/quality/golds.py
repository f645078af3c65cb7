"""Gold answers that can be worked out again: calculator notes, and a prompt's gold beside the answer of its own text."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from prep_assets.extensions.quality.steps import ANSWER, Examples, Finding, Step, by_example, quality_step
from prep_assets.samples import Prompt, Sample, document

_NOTE = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
FINAL = r"(?m)^####(?!#)[ \t]*(?=[-+$€£¥]?\d\S*[ \t\r]*$|.*\s*\Z)(\S.*?)\s*$"
"""A final answer: a number, or the last line. Other lines that begin so are headings of Markdown."""
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")
_PLAIN = re.compile(
    r"\$?(?P<sign>[-+−]?)\s*\$?(?P<number>(?:\d{1,3}(?:(?:,|\\,|_)\d{3})+|\d+)?(?:\.\d+)?)(?:\s*/\s*(?P<below>[1-9]\d*))?\s*%?\.?"
)
_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST, TOLERANCE = 200, Fraction(1, 100)
"""Most characters of a note, and of an answer that is more than text; how far a rounded result may be from the exact one, of its own size."""


def value_of(expression: str) -> Fraction | None:
    """The exact value of a sum of numbers with + - * / and brackets; a percent sign divides by 100. `None` if it is anything else."""
    text = re.sub(r"(?<=\d) *x *(?=\d)", "*", expression.strip().translate(str.maketrans("×·÷−–", "**/--")))
    text = re.sub(r"(\d[\d,]*(?:\.\d*)?|\.\d+) *%", r"(\1/100)", text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text).replace("$", "")
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", text)  # Python has no decimals that begin with 0
    if len(text) > LONGEST:
        return None
    try:
        return Fraction(text) if text.isdecimal() else _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
    raise ValueError("not arithmetic")


def is_result(exact: Fraction, written: Fraction, digits: str) -> bool:
    """Whether a written number is a value as somebody rounds it: to the digits that it has, or by a hundredth at most if it is no whole number."""
    decimals = len(digits.partition(".")[2].rstrip("%")) if "." in digits else 0
    off = max(Fraction(1, 2 * 10**decimals), TOLERANCE * abs(exact)) if exact.denominator != 1 else 0
    return abs(exact - written) <= off


def wrong_notes(text: str) -> Iterator[str]:
    """The calculator notes, ``<<3*4=12>>``, whose result is wrong; notes that are no arithmetic are passed over."""
    for expression, result in _NOTE.findall(text):
        exact, written = value_of(expression), value_of(result)
        if exact is not None and written is not None and not is_result(exact, written, result.strip()):
            yield f"<<{expression}={result}>> is {_shown(exact)}"


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.6g}"


def plain(answer: str) -> Fraction | str:
    """A final answer as a number, where it is one or a fraction, or as text without case, ``$``, and spaces at its ends. Nothing else is computed, and
    commas are taken away between groups of three digits only."""
    found = _PLAIN.fullmatch(answer.strip())
    if found is None or not found["number"] or len(answer) > LONGEST:
        return " ".join(answer.strip().strip("$").rstrip(".。").casefold().split())
    number = Fraction(re.sub(r"[^\d.]", "", found["number"])) / int(found["below"] or 1)
    return -number if found["sign"] in ("-", "−") else number


def _concluded(text: str) -> set[Fraction]:
    """The numbers that the last line of a text ends with: the results of its notes, or all of its numbers."""
    line = text.rstrip().rpartition("\n")[2]
    notes = _NOTE.findall(line)
    written = [result for _, result in notes] if notes else [number.rstrip(",") for number in _NUMBER.findall(line)]
    return {value for value in map(value_of, written) if value is not None}


@quality_step(
    "gold_answers",
    source="GSM8K's calculator notes and final answers (Cobbe et al., 2021)",
    corrupted=((document("He buys 3*4=<<3*4=13>>13 apples.\n#### 13"),), "wrong_calculation"),
    takes=(Sample, Prompt),
    version=3,
)
def gold_answers() -> Step:
    """Examples with a calculator note whose result is wrong, or with a final answer, after ``####``, that is not what the line before it comes to, or
    that is not the gold. Of rows that the schema `gsm8k` reads, the solution in the source is judged."""

    def finding(block: Examples, at: int) -> Finding | None:
        golds = [text for role, text in block.parts[at] if role == ANSWER]
        for text in (*(text for role, text in block.parts[at] if role != ANSWER), *block.solutions[at : at + 1]):
            if (wrong := next(wrong_notes(text), None)) is not None:
                return "wrong_calculation", wrong
            if not (finals := [*re.finditer(FINAL, text)]):
                continue
            final = plain(finals[-1][1])
            if golds and final not in map(plain, golds):
                return "answer_differs", "the text does not end with the gold"
            if isinstance(final, Fraction) and (numbers := _concluded(text[: finals[-1].start()])) and final not in numbers:
                results = ", ".join(map(_shown, sorted(numbers)))
                return "answer_differs", f"the text ends with {_shown(final)}, the line before comes to {results}"
        return None

    return by_example(finding)
