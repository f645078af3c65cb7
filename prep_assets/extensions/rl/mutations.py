"""Corruptions of prompts with golds that their checks must catch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from prep_assets.extensions.rl.proofs.golds import Gold, check_golds, check_prompts
from prep_assets.proofs.mutations import LOST, Change, Mutation, field, half_as_long, longer, of_next_line, row_lost
from prep_assets.proofs.rows import Line, check_lines
from prep_assets.proofs.verdict import Verdict

MATCH, GOLD, SANITY = "source_match", "gold_answers", "prompt_sanity"


def _gold(change: Callable[[float], Any]) -> Change:
    """Mutate a gold that is a number."""
    return field("gold", lambda gold: change(gold) if isinstance(gold, float) else gold)


def _one_less(told: str) -> str:
    """What a verifier is told, without its last test, constraint or criterion."""
    value = json.loads(told)
    return json.dumps(value[:-1] if isinstance(value, list) else dict(list(value.items())[:-1]))


PROMPT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a prompt altered", MATCH, field("prompt", longer)),
    Mutation("prompts shifted against golds", MATCH, of_next_line("prompt")),
    Mutation("golds shifted against prompts", MATCH, of_next_line("gold")),
    Mutation("a prompt truncated", MATCH, field("prompt", half_as_long)),
    Mutation("a prompt invented", MATCH, row_lost),
    Mutation("a gold as a whole number", MATCH, _gold(lambda gold: int(gold) if gold.is_integer() else gold)),
    Mutation("a gold as text", GOLD, _gold(str)),
    Mutation("a gold off by one", GOLD, _gold(lambda gold: gold + 1)),
    Mutation("a gold of the other sign", GOLD, _gold(lambda gold: -gold)),
    Mutation("a gold tenfold", GOLD, _gold(lambda gold: gold * 10)),
    Mutation("a gold with other digits", MATCH, field("gold_text", lambda digits: f"{digits}0")),
    Mutation("a gold without its digits", MATCH, field("gold_text", lambda _: LOST)),
    Mutation("a gold that is no number", GOLD, _gold(lambda gold: float("nan"))),
    Mutation("what the next verifier is told", MATCH, of_next_line("arguments")),
    Mutation("a verifier that is not told its last test", MATCH, field("arguments", _one_less)),
    Mutation("a verifier that is told nothing", MATCH, field("arguments", lambda _: LOST)),
)
"""Corruptions of RL prompts and of generated questions."""


def _second_gold(lines: Sequence[Line], at: int) -> list[Line] | None:
    """Make the next line the same prompt with another gold."""
    gold, after = lines[at].stored["gold"], (at + 1) % len(lines)
    second = replace(lines[after], stored={**lines[at].stored, "gold": gold + 1 if isinstance(gold, float) else f"{gold}!"})
    return None if after == at or gold == "" else [*lines[:after], second, *lines[after + 1 :]]


TWO_GOLDS: tuple[Mutation, ...] = (Mutation("a prompt with two golds", SANITY, _second_gold),)
"""A corruption of RL prompts alone."""


def _golds_agree(lines: Iterable[Line]) -> Verdict:
    """Compare golds that are numbers with those of their rows."""
    found = [line for line in lines if "verifier" not in line.stored]
    return check_golds(Gold(line.id, "", line.stored.get("gold"), _gold_of_row(line)) for line in found)


def _gold_of_row(line: Line) -> Fraction | None:
    gold = (line.made or {}).get("gold")
    return Fraction(repr(gold)) if isinstance(gold, float) else None


JUDGES: dict[str, Callable[[Any], Verdict]] = {
    MATCH: check_lines,
    GOLD: _golds_agree,
    SANITY: lambda lines: check_prompts([line.stored for line in lines], []),
}
"""How each check judges corrupted lines."""
