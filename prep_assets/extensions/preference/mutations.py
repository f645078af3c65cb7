"""Corruptions of preference pairs, labelled answers and ranked lists that their checks must catch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from prep_assets.extensions.lines.mutations import LOST, blank, field, half_as_long, longer, of_next_line, row_lost, with_fields
from prep_assets.extensions.lines.proofs import Line, check_lines
from prep_assets.extensions.preference.proofs.pairs import Margin, check_pairs
from prep_assets.proofs.mutations import Change, Mutation, mutate_one
from prep_assets.proofs.verdict import Verdict

MATCH, SANITY, MARGINS = "source_match", "pair_sanity", "margins"


def _swapped(line: Line) -> Line | None:
    return with_fields(line, chosen=line.stored["rejected"], rejected=line.stored["chosen"]) if "chosen" in line.stored else None


def _all_swapped(lines: Sequence[Line], at: int) -> list[Line] | None:
    changed = [_swapped(line) or line for line in lines]
    return None if changed == list(lines) else changed


def _reweighed(value: Any, change: Callable[[float], Any]) -> Any:
    """Change or remove the loss weights in the parts of an answer."""
    if isinstance(value, list):
        return [_reweighed(inner, change) for inner in value]
    if not isinstance(value, dict):
        return value
    parts = {key: change(inner) if key == "loss_weight" else _reweighed(inner, change) for key, inner in value.items()}
    return {key: inner for key, inner in parts.items() if inner is not LOST}


def _of_list(line: Line, part: slice) -> Line | None:
    """A ranked line with these of its responses."""
    kept = {key: line.stored[key][part] for key in ("responses", "rewards") if key in line.stored}
    return with_fields(line, **kept) if kept and len(kept["rewards"]) > 1 else None


PAIR_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("one pair swapped", MATCH, mutate_one(_swapped)),
    Mutation("all pairs swapped", MATCH, _all_swapped),
    Mutation("prompts of the next pair", MATCH, of_next_line("prompt")),
    Mutation("a prompt altered", MATCH, field("prompt", longer)),
    Mutation("a better answer truncated", MATCH, field("chosen", half_as_long)),
    Mutation("a worse answer truncated", MATCH, field("rejected", half_as_long)),
    Mutation("a label inverted", MATCH, field("label", lambda label: not label)),
    Mutation("a pair invented", MATCH, row_lost),
    Mutation("loss weights of an answer lost", MATCH, field("chosen", lambda answer: _reweighed(answer, lambda weight: LOST))),
    Mutation("loss weights of an answer inverted", MATCH, field("chosen", lambda answer: _reweighed(answer, lambda weight: 1.0 - weight))),
    Mutation("an empty prompt", SANITY, field("prompt", blank)),
    Mutation("an empty answer", SANITY, field("chosen", blank)),
    Mutation(
        "both answers the same",
        SANITY,
        mutate_one(lambda line: with_fields(line, chosen=line.stored["rejected"]) if "chosen" in line.stored else None),
    ),
    Mutation("a worse answer lost", SANITY, field("rejected", lambda _: LOST)),
    Mutation("responses of a list exchanged", MATCH, field("responses", lambda answers: [answers[-1], *answers[1:-1], answers[0]])),
    Mutation("rewards of a list doubled", MATCH, field("rewards", lambda rewards: [2 * reward for reward in rewards])),
    Mutation("the best of a list lost", MATCH, mutate_one(lambda line: _of_list(line, slice(1, None)))),
    Mutation("a list from the worst on", SANITY, mutate_one(lambda line: _of_list(line, slice(None, None, -1)))),
    Mutation("a response of a list lost", SANITY, field("responses", lambda answers: answers[:-1])),
)
"""Corruptions of preference pairs and labelled answers."""


def _sane(lines: Iterable[Line]) -> Verdict:
    stored = [line.stored for line in lines]
    labelled, ranked = ([row for row in stored if key in row] for key in ("label", "responses"))
    return check_pairs([row for row in stored if not {"label", "responses"} & row.keys()], [], labelled, (), ranked)


JUDGES: dict[str, Callable[[Any], Verdict]] = {MATCH: check_lines, SANITY: _sane}
"""How each check judges corrupted lines."""


def _margin(change: Callable[[Margin, Margin], float | None]) -> Change:
    """Change the stored margin of a pair; `change`: the pair and the next one → its margin."""

    def changed(pairs: Sequence[Margin], at: int) -> list[Margin] | None:
        stored = change(pairs[at], pairs[(at + 1) % len(pairs)])
        return None if stored == pairs[at].stored else [replace(pairs[at], stored=stored)]

    return changed


MARGIN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a margin lost", MARGINS, _margin(lambda pair, after: None)),
    Mutation("a margin inverted", MARGINS, _margin(lambda pair, after: pair.stored and -pair.stored)),
    Mutation("a margin as a whole number", MARGINS, _margin(lambda pair, after: pair.stored and float(round(pair.stored)))),
    Mutation("the margin of another pair", MARGINS, _margin(lambda pair, after: after.stored)),
    Mutation("a margin where the source has none", MARGINS, _margin(lambda pair, after: 0.0 if pair.source is None else pair.stored)),
)
"""Corruptions of margins; the check `margins` must catch each."""
