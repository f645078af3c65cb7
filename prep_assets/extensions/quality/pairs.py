"""What is wrong with the answers of a preference pair, or leans to one side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Annotated

from pydantic import Field

from prep_assets.extensions.quality.steps import CHOSEN, REJECTED, Examples, Finding, Judged, Step, by_block, quality_step
from prep_assets.samples import TEXT, Pair, Turn, turn

_REFUSAL = re.compile(
    r"^\W*(?:(?:hello|hi|hey|oh|no)\W+)*"
    r"(?:(?:(?:i am (?:very |really |so )?)?(?:sorry|afraid)|(?:my )?apologies|unfortunately|as an ai|i apologi[sz]e)\b.{0,80}?)?"
    r"\b(?:i|we) (?:(?:can|ca|wo) ?not(?! (?:believe|wait|recommend|stress|thank|think|imagine|lie|help but)\b)|am (?:not able|unable)(?! to see)|refuse"
    r"|will not be able|do not feel comfortable|must decline)\b",
    re.IGNORECASE | re.DOTALL,
)
"""How English refusals begin, in the first 200 characters of an answer behind its reasoning, with ``'m`` and ``n't`` written out."""
_OPENING, _COMPARED = 200, 2000


def is_refusal(answer: str) -> bool:
    """Whether an answer begins as refusals do: an apology or none, then that one cannot."""
    opening = re.sub(r"(?s)^\s*<think>.*?</think>", "", answer)[:_OPENING].replace("’", "'")
    return _REFUSAL.search(opening.replace("'m", " am").replace("n't", " not")) is not None


def _said(answer: Sequence[Turn]) -> str:
    """What the last turn of an answer says, without what it thinks and calls."""
    return "".join(region.text for last in answer[-1:] for region in last.regions if region.kind == TEXT)


@quality_step(
    "pair_answers",
    source="our own, for the faults that DPO's users report: equal answers, refusals preferred to answers, length that decides",
    corrupted=(
        (Pair((turn("user", "Name a river."),), (turn("assistant", "I'm sorry, but I cannot help."),), (turn("assistant", "The Nile."),)),),
        "chosen_refuses",
    ),
    takes=(Pair,),
    version=3,
)
def pair_answers(
    *, likeness: Annotated[float, Field(ge=0, le=1)] = 0.95, longest_ratio: Annotated[float, Field(ge=1, le=1e6)] | None = None
) -> Step:
    """Pairs whose answers are nearly equal, whose chosen answer refuses where the rejected one does not, or whose lengths differ too much.

    Args:
        likeness: share of common characters in order (difflib's ratio, of the first 2,000) from which two answers are nearly equal.
        longest_ratio: how many times as long as the other one answer may be; null: any.
    """

    def finding(pair: Pair, chosen: str, rejected: str) -> Finding | None:
        if is_refusal(_said(pair.chosen)) and not is_refusal(_said(pair.rejected)):
            return "chosen_refuses", "the chosen answer begins as refusals do, the rejected one does not"
        matcher = SequenceMatcher(None, chosen[:_COMPARED], rejected[:_COMPARED], autojunk=False)
        if matcher.real_quick_ratio() >= likeness and matcher.quick_ratio() >= likeness and (ratio := matcher.ratio()) >= likeness:
            return "answers_alike", f"{ratio:.0%} of the characters are common, likeness is {likeness:.0%}"
        short, long = sorted((len(chosen), len(rejected)))
        if longest_ratio is not None and long > longest_ratio * short:
            return "lengths_differ", f"{len(chosen):,} and {len(rejected):,} characters, longest_ratio is {longest_ratio}"
        return None

    def judge(examples: Examples) -> Judged:
        found, longer = dict[int, Finding](), list[int]()
        for number, (pair, parts) in enumerate(zip(examples.examples, examples.parts, strict=True)):
            chosen, rejected = ("".join(text for role, text in parts if role == side) for side in (CHOSEN, REJECTED))
            longer.append(len(chosen) - len(rejected))
            if isinstance(pair, Pair) and (wrong := finding(pair, chosen, rejected)):
                found[number] = wrong
        return Judged(found, {"longer": longer})

    return by_block(judge)
