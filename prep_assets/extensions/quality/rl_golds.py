"""Answers beside the gold of the same prompt in the family rl, compared as mathematics."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.quality.golds import FINAL, LONGEST, plain
from prep_assets.extensions.quality.steps import Examples, Judged, Step, quality_step
from prep_assets.extensions.quality.units import HAN
from prep_assets.limits import limited
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Prompt, Sample, turn

REASON = "answer_is_not_the_gold"
_FINALS = (r"(?is)<answer>(.*?)</answer>", FINAL, r"\\(?:boxed|fbox)\s*\{((?:[^{}]++|\{(?1)\})*+)\}")


def final_answer(text: str) -> str | None:
    """The last answer of a text in ``<answer>…</answer>``, after ``####``, or in LaTeX's ``\\boxed{…}``, the first of these forms that it has."""
    import regex  # which knows brackets in brackets

    found = next(filter(None, (regex.findall(form, text) for form in _FINALS)), None)
    return str(found[-1]).strip() if found else None


@lru_cache(1 << 12)
def equal_answers(gold: str, answer: str) -> bool:
    """Whether two answers are equal: as numbers, as text, or as math-verify judges them in ``\\boxed{}``, as verl calls it. It takes no mixed numbers and
    amounts, and compares no units; it is given them without, where units are equal or one answer has none.

    Raises:
        PrepAssetsError: the comparison takes too long.
    """
    if max(len(gold), len(answer)) > LONGEST:
        return plain(gold) == plain(answer)
    (expected, unit), (found, other) = _amount(gold), _amount(answer)
    if unit and other and unit != other and not ({unit, other} == {"¥", "元"} and re.search("[¥￥]", gold + answer)):  # the sign of both
        return False
    if plain(expected) == plain(found):
        return not (unit + other).startswith("_") or unit == other
    if {unit, other} == {"%", ""}:
        below, whole = (expected, found) if unit else (found, expected)
        return isinstance(share := plain(below), Fraction) and share / 100 == plain(whole)
    if unit != other or any(_TEXT.fullmatch(text) for text in (expected, found)):
        return False
    return bool(in_time(f"rl_golds: comparing {gold!r} with {answer!r}", boxed_equal, expected, found))


def in_time(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call what rows may keep busy for ever.

    Raises:
        PrepAssetsError: it takes too long; the message begins with `what`.
    """
    return limited(lambda said, _: PrepAssetsError(f"{what} {said}. Leave the row out by `where`"), function, *args)


_TEXT = re.compile(r"\d+(?:[-/]\d+){2,}|\d+-\d+|\d+(?:[:']\d+)+|\d+(?:\.\d+){2,}|[\d.]+(?: [\d.]+)+|0[box][\da-f]+", re.IGNORECASE)
"""A range, a date, a time, a ratio, feet and inches, a version, numbers side by side, or one of another base as in programs, which are no arithmetic."""
_SIGNS = {
    "−": "-", "–": "-", "⁄": "/", "²": "^2", "³": "^3", "°": "\\circ", "∞": "\\infty ", "π": "\\pi ", "×": "\\times ",
    "·": "\\cdot ", "\\varnothing": "\\emptyset", "{,}": ",", "\\$": "$", "\\%": "%", "~": " ", "’": "'", " to ": "-", "℃": "\\circ C", "℉": "\\circ F",
}  # fmt: skip
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {"百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_SAME = {"$": "usd dollar", "€": "eur euro", "£": "gbp pound", "¥": "jpy yen", "₹": "inr rupee rs", "元": "yuan rmb cny 人民币"}
_SAME |= {"¢": "cent", "%": "pct percent", "degree": "circ", "km/h": "kph", "mi/h": "mph"}
_UNITS = {word: unit for unit, words in _SAME.items() for word in words.split()}
_NAMES = {"met(?:er|re)": "m", "gram": "g", "lit(?:er|re)": "l", "sec(?:ond)?": "s", "minute": "min", "h(?:ou)?r": "h"}
_NAMES |= {"inch(?:e(?=s))?": "in", "f(?:oo|ee)t": "ft", "mile": "mi", "circc(?:elsius)?": "circc", "circf(?:ahrenheit)?": "circf"}
_SHORT = "am pm mm cm dm km mg kg ml cl dl min hr sec ft yd lb oz mi mph kph hz khz mhz kw kwh kb mb gb tb kj kcal cal mol pa kpa"
"""Units that stand right behind a number; other letters there are variables."""
_AMOUNT = re.compile(
    r"(?P<number>[-+]?(?:\d[\d.,/:]*|\.\d+)(?:e[-+]?\d{1,3})?)(?P<base>_\{?\d+\}?)?"
    rf"(?P<scale>(?: ?(?:{'|'.join(_SCALES)})s?(?!(?<=千)[克米瓦]))*)"
    rf"(?P<unit> ?(?:[$€£¥₹元%¢]|\\circ ?[cfk]?)| ?(?:{'|'.join(_SHORT.split())})s?\b\S*| ?[{HAN}]+"
    r"|(?: (?![xyzabinkte]$)[^\W\d_][^\d\\=+<>]*(?:\^\{?\d\}?)?)+)?",
    re.IGNORECASE,
)
_WRITTEN = re.compile(r"(?<!\\)\\[,;:! ]|\\(?:(?:text|math)(?:rm|bf|it)?|mbox|boldsymbol|bm)\{\s*([^{}]*?)\s*\}")
"""Spaces of LaTeX, and words and numbers in another font."""
_POWER = re.compile(r"^([-+]?[\d.,]+) ?\\(?:times|cdot) ?10\^\{?([-+]?\d{1,3})\}?( [^\W\d_].*)?$")
_MIXED = re.compile(r"^([-+]?)(\d*)(?: and)? ?(?:\\[dt]?frac\{|(?<=[\dd] ))(\d+)(?:\}\{|/)([1-9]\d*)\}?(?= [^\W\d_]{2}| [mgls]\b| ?%|$)")
_CHOICE = re.compile(r"^(?:(?:option|choice):? )?\(?([A-Z])\)?:?$", re.IGNORECASE)
_THOUSANDS = re.compile(
    r"(?<![\d.,])(\d{1,3}(?:(?:[' ]\d{3})+|(?:\.\d{3}){2,}|(?:\.\d{3})+(?=,\d))|(?<=₹)[\d,]+,\d{3})(?:[.,](\d+))?(?![\d.,])"
)
"""A number with the separators of France, Switzerland, of rupees, or of Germany where nothing else can be meant: `1.234` may be a bit more than one."""


def _amount(answer: str) -> tuple[str, str]:
    """An answer in a form that math-verify reads, and its unit, currency or base: ``€12`` is ``12`` and ``€``, ``3 1/2`` is ``7/2``."""
    text = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", answer.strip("* \n"))
    text = re.sub(r"\^\{\\circ\}|\^\\circ|\\degree", "°", text[1:-1] if re.fullmatch(r"\$[^$]*\$", text) else text)
    text = re.sub(r"√(\d*)", r"\\sqrt{\1}", text)
    for sign, same in _SIGNS.items():
        text = text.replace(sign, same)
    text = re.sub(_WRITTEN, r" \1 ", unicodedata.normalize("NFKC", text)).replace("⁄", "/")
    text = re.sub(r"(?i)^(?:\\approx|≈|=|(?:the )?(?:final )?answer(?: is|:))", "", re.sub(r"(?<=\d)\s*([-:])\s*(?=\d)", r"\1", text))
    text = " ".join(text.split()).rstrip(".。").replace(" ^", "^")
    text = re.sub(r"\^(-\d+)", r"^{\1}", text)
    text = re.sub(r"(?<=\.)(\d*)\\(?:overline|bar)\{(\d+)\}", lambda at: f"{at[1]}{at[2] * 20}"[:20], text)
    text = _THOUSANDS.sub(lambda at: re.sub(r"\D", "", at[1]) + (f".{at[2]}" if at[2] else ""), text)
    text = _MIXED.sub(lambda at: f"{at[1]}{int(at[2] or 0) * int(at[4]) + int(at[3])}/{at[4]}", text)
    if found := re.fullmatch(r"([-+]?)(?:(?:US)? ?([$€£¥₹])|([A-Z]{3})) ?(\d.*)", text):
        text = f"{found[1]}{found[4]} {found[2] or found[3]}"
    if (amount := _AMOUNT.fullmatch(_POWER.sub(r"\1e\2\3", text)) or _AMOUNT.fullmatch(text)) is None:
        return _CHOICE.sub(r"\1", text), ""
    number, unit = amount["number"], _unit((amount["unit"] or "").casefold())
    scale = prod(_SCALES[word] for word in re.findall("|".join(_SCALES), amount["scale"].casefold()))
    if "e" in number.casefold() or scale > 1:
        with suppress(InvalidOperation):
            number = f"{Decimal(number.replace(',', '')) * scale:f}"
    return number, f"_{amount['base'].strip('_{}')}" if amount["base"] else unit


def _unit(words: str) -> str:
    """A unit in its short form: ``square meters`` is ``m^2``."""
    words = " ".join(re.sub(r"[\\{}.]", "", words).split()).removeprefix("us ").replace(" per ", "/")
    words = re.sub(r"\b([kcmd])(?:ilo|enti|illi|eci)(?=met|lit|gram|sec)", r"\1", re.sub(r"circ |degrees (?=[cf])", "circ", words))
    for name, short in _NAMES.items():
        words = re.sub(rf"\b([kcmd]?){name}s?\b", rf"\1{short}", words)
    words = re.sub(r"^(sq|square|cubic) (.*)", lambda at: f"{at[2]}^{3 if at[1] == 'cubic' else 2}", words)
    words = re.sub(r"(?<=\w\w)s(?=$|\^)", "", words)  # but no ms, and no m/s
    return _UNITS.get(words, words)


def boxed_equal(gold: str, answer: str) -> bool:
    """Whether math-verify takes an answer for a gold, both in ``\\boxed{}`` and parsed as verl's reward function does (verl/utils/reward_score/math_verify)."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig

    latex, any_form = (LatexExtractionConfig(),), (ExprExtractionConfig(), LatexExtractionConfig())
    return verifies((f"\\boxed{{{gold}}}", latex), (f"\\boxed{{{answer}}}", any_form))


def bare_rewarded(gold: str) -> bool:
    """Whether TRL's `accuracy_reward` rewards a gold as it stands for itself: in ``\\boxed{}``, or where it is a whole solution."""
    from math_verify.parser import LatexExtractionConfig, NormalizationConfig

    latex = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
    )
    return any(verifies((gold,), (answer, (latex,), "first_match", "first_match")) for answer in (f"\\boxed{{{gold.strip('$')}}}", gold))


def verifies(gold: tuple[Any, ...], answer: tuple[Any, ...]) -> bool:
    """Whether math-verify takes an answer for a gold, each with its forms of extraction, if any, without its own limits of time."""
    import logging

    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    expected, found = (parse(*each, parsing_timeout=None) for each in (gold, answer))
    return bool(expected) and bool(verify(expected, found, timeout_seconds=None))


def same_prompt(text: str) -> str:
    """What two texts have in common that ask the same: all but case and white space."""
    return " ".join(text.casefold().split())


class RlGolds(Step):
    """Compares the answer to each user turn with the gold of that turn."""

    def __init__(self) -> None:
        self._golds: dict[str, str] = {}

    def learn(self, prompts: Sequence[Prompt]) -> None:
        """See `Step`."""
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
                if gold and (final := final_answer(answer)) is not None and not equal_answers(gold, final):
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
    golds=True,
    version=8,
)
def rl_golds() -> Step:
    """Examples whose final answer is not the gold that the family rl has for the same prompt, compared as mathematics."""
    return RlGolds()
