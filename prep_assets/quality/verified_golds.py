"""Golds that their own verifier rejects: no answer to such a prompt ever earns a reward."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from prep_assets.errors import PrepAssetsError
from prep_assets.limits import limited
from prep_assets.quality.steps import Examples, Finding, Judged, Step, by_block, quality_step
from prep_assets.samples import USER, Prompt, turn
from prep_assets.schemas.registry import own_function
from prep_assets.schemas.rewards import JUDGED, NUMBER

REJECTED, UNKNOWN = "gold_rejected", "unknown_verifier"
MATH, NONE = "math", "none"
_Verify = Callable[[str, str], Any]


def passes_math(answer: str, gold: str) -> bool:
    """Whether math-verify takes an answer for a gold, each parsed as trainers parse them."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    with limited(lambda said, _: PrepAssetsError(f"verified_golds: comparing {gold!r} {said}. Leave the row out by `where`")):
        expected, found = (parse(text, parsing_timeout=None) for text in (gold, answer))
        return bool(expected) and bool(verify(expected, found, timeout_seconds=None))


def _finding(prompt: Prompt, verifiers: Mapping[str, _Verify | None]) -> Finding | None:
    if prompt.verifier not in verifiers:
        return UNKNOWN, f"no verifier of this name is configured; there are {', '.join(sorted(verifiers))}"
    verify = verifiers[prompt.verifier]
    if verify is None:
        return None
    if not any(verify(answer, prompt.gold) for answer in (f"The answer is \\boxed{{{prompt.gold}}}.", prompt.gold)):
        return REJECTED, f"the verifier {prompt.verifier} gives its own gold of {len(prompt.gold)} characters no reward"
    return None


@quality_step(
    "verified_golds",
    source="our own; math-verify as TRL, open-r1 and verl judge answers",
    corrupted=((Prompt((turn(USER, "What is a half?"),), "a half, of course", MATH),), REJECTED),
    takes=(Prompt,),
    libraries=("math-verify",),
)
def verified_golds(*, verifiers: Mapping[str, str] | None = None) -> Step:
    """Prompts whose gold its own verifier rejects, or whose verifier has a name that nobody knows.

    Args:
        verifiers: name of a verifier in the rows → `math` (math-verify), `none` (not tried), or ``module:function`` of an answer and a gold, which
            returns true or a reward above 0. Beside them `math` is known; `number` and `model` are not tried, as schemas read the golds of the one and
            the other has none.
    """
    functions: dict[str, _Verify | None] = {MATH: passes_math, NUMBER: None, JUDGED: None}
    for name, how in (verifiers or {}).items():
        functions[name] = passes_math if how == MATH else None if how == NONE else own_function("quality step 'verified_golds'", how)
    finding = partial(_finding, verifiers=functions)

    def judge(examples: Examples) -> Judged:
        prompts = enumerate(examples.examples)
        return Judged(
            {number: found for number, prompt in prompts if isinstance(prompt, Prompt) and (found := finding(prompt)) is not None}
        )

    return by_block(judge)
