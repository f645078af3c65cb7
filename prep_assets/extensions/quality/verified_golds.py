"""Golds that their own verifier rejects: no answer to such a prompt ever earns a reward. What verifiers are told is proven as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from prep_assets.errors import ConfigError, PrepAssetsError, Refused
from prep_assets.extensions.quality.apart import call_apart, own
from prep_assets.extensions.quality.constraints import CONSTRAINTS, keeps
from prep_assets.extensions.quality.rl_golds import bare_rewarded, boxed_equal, in_time
from prep_assets.extensions.quality.steps import Examples, Finding, Step, by_example, quality_step
from prep_assets.extensions.quality.verified_code import TooSlow, failure
from prep_assets.extensions.rl.schemas import JUDGED, NUMBER
from prep_assets.extensions.rl.verifiers import BAD, CODE, IFEVAL, RUBRIC, code_tests, constraints, criteria
from prep_assets.samples import USER, Prompt, turn

REJECTED, UNKNOWN = "gold_rejected", "unknown_verifier"
MATH, BARE, NONE = "math", "math_bare", "none"
STEP = "quality step 'verified_golds'"


_Try = Callable[[Prompt, str], str]
"""A prompt and the id of its record → why its gold fails; ``""`` if it passes, or there is none to try."""


def _compared(passes: Callable[[str], bool], prompt: Prompt, where: str) -> str:
    """Whether a verifier that compares takes a gold for itself."""
    return _no_reward(prompt, in_time(f"verified_golds: comparing {prompt.gold!r}", passes, prompt.gold))


def _own_verifier(path: str) -> _Try:
    """A user's function of an answer, a gold and, where there are some, arguments, called in a process apart."""
    call_apart(f"{STEP} {path!r}: its process", "", _loaded, path)

    def failing(prompt: Prompt, where: str) -> str:
        told = (json.loads(prompt.arguments),) if prompt.arguments else ()
        called = partial(call_apart, f"{STEP}: the process of the verifier {prompt.verifier}", where, _verified_by, path)
        answers = f"The answer is \\boxed{{{prompt.gold}}}.", prompt.gold  # as trainers see them
        return _no_reward(prompt, any(called(answer, prompt.gold, *told) for answer in answers))

    return failing


def _loaded(path: str) -> None:
    own(STEP, path)


def _verified_by(path: str, *args: Any) -> bool:
    return bool(own(STEP, path)(*args))


def _no_reward(prompt: Prompt, passes: bool) -> str:
    return "" if passes else f"the verifier {prompt.verifier} gives its own gold of {len(prompt.gold)} characters no reward"


def _passes_tests(seconds: float | None, prompt: Prompt, where: str) -> str:
    tests = code_tests(json.loads(prompt.arguments))
    if not prompt.gold:
        return ""
    if seconds is None:
        raise ConfigError(
            f"{STEP}: {where} has a program and its tests, and no code of rows is run unless code_seconds says for how long. It runs with the rights of "
            f"this user, in no sandbox. Set code_seconds: 10, or verifiers: {{{prompt.verifier}: none}}"
        )
    try:
        why = failure(prompt.gold, tests, seconds)
        return why and f"the gold does not pass its tests: {why}"
    except TooSlow:
        raise PrepAssetsError(
            f"{STEP}: the tests of {where} take more than {seconds:g} seconds. Raise code_seconds, or leave the row out by `where`"
        ) from None


def _keeps_constraints(prompt: Prompt, where: str) -> str:
    asked = constraints(json.loads(prompt.arguments))
    if unknown := sorted({each.name for each in asked} - set(CONSTRAINTS)):
        raise ConfigError(
            f"{STEP}: {where} has the constraint {unknown[0]!r}, which is not known here. Known: {', '.join(CONSTRAINTS)}. Name a function of your own "
            f"for it, verifiers: {{{prompt.verifier}: package.module:function}}, or none"
        )
    missed = in_time(f"{STEP}: a constraint of {where}", lambda: [each.name for each in asked if not keeps(prompt.gold, each)])
    return f"the gold does not keep {', '.join(missed)}" if missed and prompt.gold else ""


def _reads_rubric(prompt: Prompt, where: str) -> str:
    criteria(json.loads(prompt.arguments))
    return ""


@quality_step(
    "verified_golds",
    source="our own; math-verify as TRL and verl judge answers; IFEval's constraints",
    corrupted=((Prompt((turn(USER, "What is a half?"),), "a half, of course", BARE),), REJECTED),
    takes=(Prompt,),
    libraries=("math-verify",),
    version=3,
)
def verified_golds(*, verifiers: Mapping[str, str] | None = None, code_seconds: float | None = None) -> Step:
    """Prompts whose gold its own verifier rejects, whose verifier has a name that nobody knows, or is told what it cannot read.

    Args:
        verifiers: name of a verifier in the rows → `math` (math-verify as verl calls it, with the gold in ``\\boxed{}``), `math_bare` (as TRL
            does, with the gold as it stands), `code` (the gold passes its tests), `ifeval` (it keeps its constraints), `rubric`
            (criteria are read, no answer is graded), `none` (not tried), or ``module:function`` of an answer, a gold and, where the row has some, the
            arguments, which returns true or a reward above 0. Beside them the first five are known by these names; `number` and `model` are not tried, as
            schemas read the golds of the one and the other has none.
        code_seconds: how long the tests of one gold may take together; null, and no code is run.
    """
    if code_seconds is not None and not 0 < code_seconds < float("inf"):
        raise ConfigError(f"{STEP}, option 'code_seconds' = {code_seconds}: needs a number above 0")
    built_in: dict[str, _Try] = {
        MATH: partial(_compared, lambda gold: boxed_equal(gold, gold)),  # as verl does, which puts both into \boxed{}
        BARE: partial(_compared, bare_rewarded),
        CODE: partial(_passes_tests, code_seconds),
        IFEVAL: _keeps_constraints,
        RUBRIC: _reads_rubric,
    }
    told = [built_in[name] for name in (CODE, IFEVAL, RUBRIC)]
    functions: dict[str, _Try | None] = {**built_in, NUMBER: None, JUDGED: None}
    for name, how in (verifiers or {}).items():
        functions[name] = None if how == NONE else built_in.get(how) or _own_verifier(how)

    def finding(block: Examples, at: int) -> Finding | None:
        if not isinstance(prompt := block.examples[at], Prompt):
            return None
        if prompt.verifier not in functions:
            return UNKNOWN, f"no verifier of this name is configured; there are {', '.join(sorted(functions))}"
        failing = functions[prompt.verifier]
        if failing in told and not prompt.arguments:
            return BAD, f"the verifier {prompt.verifier} is told nothing: rl_prompt's option arguments_key names the field"
        try:
            why = failing and failing(prompt, block.ids[at])
        except Refused as refused:
            return refused.reason, f"what the verifier {prompt.verifier} is told: {refused.detail}"
        return (REJECTED, why) if why else None

    return by_example(finding)
