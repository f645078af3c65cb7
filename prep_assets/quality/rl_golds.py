"""Answers beside the gold of the same prompt in the family rl, compared as mathematics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from prep_assets.errors import PrepAssetsError
from prep_assets.limits import limited
from prep_assets.quality.golds import plain
from prep_assets.quality.steps import Examples, Judged, KnowsGolds, quality_step
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Prompt, Sample, turn

REASON = "answer_is_not_the_gold"
LONGEST = 200
"""Most characters of an answer that is compared as mathematics; a longer one is compared as text."""
_FINALS = (re.compile(r"<answer>(.*?)</answer>", re.DOTALL), re.compile(r"^####[ \t]*(\S.*?)\s*$", re.MULTILINE))
_BOXED = "\\boxed{"


def final_answer(text: str) -> str | None:
    """The last answer of a text in ``<answer>…</answer>``, after ``####``, or in LaTeX's ``\\boxed{…}``, the first of these forms that it has."""
    for form in _FINALS:
        if found := form.findall(text):
            return str(found[-1]).strip()
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    depth, begins = 1, start + len(_BOXED)
    for at in range(begins, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return text[begins:at].strip()
    return None


@lru_cache(1 << 12)
def equal_answers(gold: str, answer: str) -> bool:
    """Whether two answers are equal: as numbers, as text, or as math-verify judges them in ``\\boxed{}``, as verl calls it. It takes no mixed numbers and
    amounts, and compares no units; it is given them without, where units are equal or one answer has none.

    Raises:
        PrepAssetsError: the comparison takes too long.
    """
    if plain(gold) == plain(answer):
        return True
    if max(len(gold), len(answer)) > LONGEST:
        return False
    (expected, unit), (found, other) = _amount(gold), _amount(answer)
    if plain(expected) == plain(found) and (not unit or not other or unit == other) and not (unit + other).startswith("_"):
        return True
    if unit != other or any(_RANGE.fullmatch(text) for text in (expected, found)):
        return False
    with limited(lambda said, _: PrepAssetsError(f"rl_golds: comparing {gold!r} with {answer!r} {said}. Leave the row out by `where`")):
        return boxed_equal(expected, found)


_RANGE = re.compile(r"\d+(?:\s*[-–/]\s*\d+){2,}|\d+\s*[-–]\s*\d+")
"""A range or a date, which is no difference."""
_MIXED = re.compile(r"([-+]?)(\d+)\s+(\d+)/([1-9]\d*)")
_UNIT = re.compile(r"([-+]?[\d.,/]*\d)(?:(_\{?\d+\}?)|\s*\\?(?:text\{)?\s*([A-Za-z€£¥][A-Za-z€£¥ ]*?)\}?)")
_SIGNS = re.compile(r"(?:US)?\\?\$|([€£¥])")


def _amount(answer: str) -> tuple[str, str]:
    """An answer in a form that math-verify reads, and its unit, currency or base: ``€12`` is ``12`` and ``€``, ``3 1/2`` is ``7/2``."""
    text = answer.strip().strip("$").replace("\\,", "").removesuffix(".")
    if sign := _SIGNS.match(text):
        text = text[sign.end() :].strip() + (f" {sign[1]}" if sign[1] else "")
    unit = ""
    if found := _UNIT.fullmatch(text):
        text, unit = found[1], found[2] or found[3].casefold().removesuffix("s")
    if mixed := _MIXED.fullmatch(text):
        sign_of, whole, above, below = mixed.groups()
        text = f"{sign_of}{int(whole) * int(below) + int(above)}/{below}"
    return text, unit


def boxed_equal(gold: str, answer: str) -> bool:
    """Whether math-verify takes an answer for a gold, both in ``\\boxed{}`` and parsed as verl's reward function does (verl/utils/reward_score/math_verify)."""
    import logging

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    forms = ((gold, (LatexExtractionConfig(),)), (answer, (ExprExtractionConfig(), LatexExtractionConfig())))
    expected, found = (parse(f"\\boxed{{{text}}}", form, parsing_timeout=None) for text, form in forms)
    return bool(expected) and bool(verify(expected, found, timeout_seconds=None))


def same_prompt(text: str) -> str:
    """What two texts have in common that ask the same: all but case and white space."""
    return " ".join(text.casefold().split())


class RlGolds(KnowsGolds):
    """Compares the answer to each user turn with the gold of that turn."""

    def __init__(self) -> None:
        self._golds: dict[str, str] = {}

    def learn(self, prompts: Sequence[Prompt]) -> None:
        """See `KnowsGolds`."""
        for prompt in prompts:
            asked = [one.text for one in prompt.prompt if one.role in (USER, PROMPT)]
            if asked and prompt.gold:
                self._golds.setdefault(same_prompt(asked[-1]), prompt.gold)

    def judge(self, examples: Examples) -> Judged:
        """See `Step`."""
        found = {}
        for number, parts in enumerate(examples.parts):
            for question, answer in _answered(parts):
                gold = self._golds.get(same_prompt(question))
                final = None if gold is None else final_answer(answer)
                if gold is not None and final is not None and not equal_answers(gold, final):
                    found[number] = (REASON, "the final answer is not the gold that the family rl has for the same prompt")
        return Judged(found)


def _answered(parts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    question: str | None = None
    for role, text in parts:
        if role in (USER, PROMPT):
            question = text
        elif role in (ASSISTANT, COMPLETION) and question is not None:
            yield question, text


@quality_step(
    "rl_golds",
    source="math-verify, as open-r1 and lighteval judge answers",
    corrupted=(
        (Prompt((turn(USER, "What is 1/2 + 1/4?"),), "3/4"), Sample((turn(USER, "What is 1/2 + 1/4?"), turn(ASSISTANT, "#### 0.76")))),
        REASON,
    ),
    takes=(Sample,),
    libraries=("math-verify",),
    version=2,
)
def rl_golds() -> RlGolds:
    """Examples whose final answer is not the gold that the family rl has for the same prompt, compared as mathematics."""
    return RlGolds()
