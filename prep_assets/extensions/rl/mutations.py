"""Corruptions of prompts with golds, and of scored groups, that their checks must catch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from prep_assets.array_types import Array
from prep_assets.extensions.lines.mutations import LOST, field, half_as_long, longer, of_next_line, row_lost
from prep_assets.extensions.lines.proofs import Line, check_lines
from prep_assets.extensions.rl.proofs.golds import Gold, check_golds, check_prompts
from prep_assets.extensions.rl.proofs.groups import Rollout, RunRow, Runs, Stepwise, check_rewards, check_runs, check_sampled, check_steps
from prep_assets.proofs.mutations import Change, Mutation, mutate_alone, mutate_field
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


# Scored groups: rewards, steps, sampled ids, rows of runs.


def _rewards(change: Callable[[Array], Array]) -> Change:
    """Mutate the rewards of a group."""
    return mutate_alone(mutate_field("rewards", change))


NAN, INFINITY = np.float32("nan"), np.float32("inf")


REWARD_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a reward that is no number", "rewards", _rewards(lambda rewards: np.append(rewards[:-1], NAN))),
    Mutation("an infinite reward", "rewards", _rewards(lambda rewards: np.append(INFINITY, rewards[1:]))),
    Mutation("a reward lost", "rewards", _rewards(lambda rewards: rewards[:-1])),
    # as where an empty response was dropped, and its reward was not
    Mutation("rewards of a group shifted", "rewards", _rewards(lambda rewards: np.roll(rewards, 1))),
    Mutation("rewards cut to whole numbers", "rewards", _rewards(np.trunc)),
    Mutation("rewards negated", "rewards", _rewards(lambda rewards: -rewards)),
    Mutation(
        "a response of another group",
        "rewards",
        mutate_alone(lambda group: replace(group, rewards=np.append(group.rewards, group.rewards[-1]), responses=group.responses + 1)),
    ),
)
"""Corruptions of rewards; the check `rewards` must catch each."""


def _mutate_first_response(key: str, value: Callable[[Sequence[Any]], list[Any]]) -> Change:
    """Mutate one array of the first response, if it has it."""

    def changed(group: Rollout) -> Rollout | None:
        stored = group.responses[0]
        if key not in stored or (mutated := value(stored[key])) == list(stored[key]):
            return None
        return replace(group, responses=({**stored, key: mutated}, *group.responses[1:]))

    return mutate_alone(changed)


def _without_logprobs(group: Rollout) -> Rollout | None:
    if group.source.logprobs is None:
        return None
    return replace(group, responses=tuple({key: response[key] for key in response if key != "logprobs"} for response in group.responses))


def _mutate_row(change: Callable[[RunRow, Runs], Sequence[RunRow] | None]) -> Change:
    """Mutate the first row of runs that it changes; `change`: a row and its group → the rows in its place."""

    def changed(group: Runs) -> Runs | None:
        for at, row in enumerate(group.rows):
            if (rows := change(row, group)) is not None and [*rows] != [row]:
                return replace(group, rows=[*group.rows[:at], *rows, *group.rows[at + 1 :]])
        return None

    return mutate_alone(changed)


def _joined_rows(group: Runs) -> Runs | None:
    for at, (first, second) in enumerate(pairwise(group.rows)):
        if first.run == second.run:
            begin = second.mask.index(1)
            ends = (getattr(first, name) + getattr(second, name)[begin:] for name in ("ids", "mask", "logprobs"))
            return replace(group, rows=[*group.rows[:at], RunRow(first.run, first.turn, *ends), *group.rows[at + 2 :]])
    return None


def _split_row(row: RunRow, _: Runs) -> Sequence[RunRow] | None:
    ends = [at + 1 for at, pair in enumerate(pairwise(row.mask)) if pair == (1, 0)]
    if not ends or not any(row.mask[(cut := ends[0]) :]):
        return None
    first = RunRow(row.run, row.turn, row.ids[:cut], row.mask[:cut], row.logprobs[:cut])
    return [first, replace(row, turn=row.turn + 1, mask=[0] * cut + [*row.mask[cut:]])]


def _later_prompt_trained(row: RunRow, _: Runs) -> Sequence[RunRow]:
    first = row.mask.index(1)
    return [replace(row, mask=[*row.mask[:first], *[1] * (len(row.mask) - first)])]


def _trained_again(row: RunRow, group: Runs) -> Sequence[RunRow] | None:
    """Train what a row shares with an earlier one of its run, which trains it."""
    for other in group.rows[: group.rows.index(row)]:
        apart = (at for at, pair in enumerate(zip(other.ids, row.ids, strict=False)) if pair[0] != pair[1])
        shared = other.mask[: next(apart, min(len(other.ids), len(row.ids)))]
        if other.run == row.run and any(shared):
            return [replace(row, mask=[*shared, *row.mask[len(shared) :]])]
    return None


def _one_token_early(response: Stepwise) -> Stepwise | None:
    places = None if response.places is None else ([place - 1 for place in response.places[0]], response.places[1])
    return replace(response, texts=[text[:-1] for text in response.texts], places=places)


STEP_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("ends of steps before their last characters", "step_rewards", mutate_alone(_one_token_early)),
    Mutation("rewards of steps exchanged", "step_rewards", mutate_alone(mutate_field("rewards", lambda rewards: [*reversed(rewards)]))),
    Mutation(
        "the end of a step lost",
        "step_rewards",
        mutate_alone(lambda response: replace(response, texts=response.texts[:-1], rewards=response.rewards[:-1])),
    ),
    Mutation("a reward between steps", "step_rewards", mutate_alone(mutate_field("elsewhere", lambda _: 1))),
    Mutation(
        "rewards of steps negated",
        "step_rewards",
        mutate_alone(mutate_field("rewards", lambda rewards: [1.5 - reward for reward in rewards])),
    ),
)
"""Corruptions of rewards of steps; the check `step_rewards` must catch each."""


ROLLOUT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a sampled id replaced", "sampled_ids", _mutate_first_response("tokens", lambda ids: [*ids[:-1], ids[-1] + 1])),
    Mutation("a sampled id lost", "sampled_ids", _mutate_first_response("tokens", lambda ids: list(ids[1:]))),
    Mutation("a sampled token not trained", "sampled_ids", _mutate_first_response("loss_mask", lambda mask: [0, *mask[1:]])),
    Mutation("a token that was not sampled trained", "sampled_ids", _mutate_first_response("loss_mask", lambda mask: [1] * len(mask))),
    Mutation("the mask of what was sampled shifted", "sampled_ids", _mutate_first_response("loss_mask", lambda mask: [0, *mask[:-1]])),
    Mutation(
        "log-probabilities shifted by one token", "sampled_ids", _mutate_first_response("logprobs", lambda values: [*values[1:], values[0]])
    ),
    Mutation(
        "log-probabilities as probabilities",
        "sampled_ids",
        _mutate_first_response("logprobs", lambda values: [2.0**value for value in values]),
    ),
    Mutation("log-probabilities lost", "sampled_ids", mutate_alone(_without_logprobs)),
    Mutation("a response lost", "sampled_ids", mutate_alone(mutate_field("responses", lambda responses: responses[:-1]))),
    Mutation("responses in another order", "sampled_ids", mutate_alone(mutate_field("responses", lambda responses: responses[::-1]))),
    Mutation(
        "another prompt than was sampled from",
        "sampled_ids",
        mutate_alone(mutate_field("prompt", lambda prompt, source: None if source.prompt is None else [*prompt, 0], "source")),
    ),
)
"""Corruptions of sampled ids; the check `sampled_ids` must catch each."""


RUN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("rows joined although the prompt differs", "runs", mutate_alone(_joined_rows)),
    Mutation("a row split although the prompt goes on with it", "runs", _mutate_row(_split_row)),
    Mutation("the prompt of a later call trained", "runs", _mutate_row(_later_prompt_trained)),
    Mutation("what rows share trained in both", "runs", _mutate_row(_trained_again)),
    Mutation("a row of another run", "runs", _mutate_row(lambda row, _: [replace(row, run=row.run + 1)])),
)
"""Corruptions of rows of runs; the check `runs` must catch each."""


GROUP_CORRUPTIONS: Mapping[str, tuple[tuple[Mutation, ...], Callable[[Any], Verdict]]] = {
    "rewards": (REWARD_MUTATIONS, check_rewards),
    "step_rewards": (STEP_MUTATIONS, check_steps),
    "sampled_ids": (ROLLOUT_MUTATIONS, check_sampled),
    "runs": (RUN_MUTATIONS, check_runs),
}
"""By check: what it must catch, and how it judges."""
