"""Rewards of groups: each way in which they are not those of their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prep_assets.extensions.rl.proofs.groups import (
    Rollout,
    RunRow,
    Runs,
    Scores,
    Spoken,
    Stepwise,
    calls_of_steps,
    calls_of_trace,
    check_rewards,
    check_runs,
    check_sampled,
    check_steps,
)
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Sampled

# -- Rewards of groups: each way in which they are not those of their source --------------------------------------------------------------


def scores(rewards: list[float], source: list[float], responses: int | None = None, name: str = "a") -> Scores:
    return Scores(name, np.array(rewards, np.float32), len(rewards) if responses is None else responses, source)


def test_rewards_of_their_sources() -> None:
    groups = [scores([1, 0.1], [1, 0.1]), scores([2, 2, 2], [2, 2, 2]), scores([3], [3])]
    numbers = {"groups_checked": 3, "groups_failed": 0, "rewards_checked": 6, "groups_of_equal_rewards": 1}
    assert check_rewards(groups) == Verdict(True, "6 rewards of 3 groups are those of their sources; in 1 all are equal", numbers)
    thousands = check_rewards([scores([1, 1], [1, 1])] * 1000)
    assert thousands.summary == "2,000 rewards of 1,000 groups are those of their sources; in 1,000 all are equal"


# -- Ids that a model sampled: each way in which what is stored is not what was sampled ---------------------------------------------------

SOURCE = Sampled(((5, 6), (7,)), (1, 2), ((-0.5, -0.25), (-1.0,)))

MASKED = Sampled(SOURCE.responses, SOURCE.prompt, SOURCE.logprobs, ((1, 0), (1,)))


def response(tokens: list[int], logprobs: list[float] | None = None, mask: list[float] | None = None) -> Mapping[str, Any]:
    made: dict[str, Any] = {"tokens": tokens, "loss_mask": [1] * len(tokens) if mask is None else mask}
    return made if logprobs is None else made | {"logprobs": logprobs}


FIRST, SECOND = response([5, 6], [-0.5, -0.25]), response([7], [-1.0])
RIGHT = Rollout("a", (1, 2), (FIRST, SECOND), SOURCE)


def test_groups_as_they_were_sampled() -> None:
    numbers = {"groups_checked": 2, "responses_checked": 4, "tokens_checked": 6}
    assert check_sampled([RIGHT, RIGHT]) == Verdict(True, "6 ids of 4 responses are stored as they were sampled", numbers)
    many = Rollout("b", (1,), (response([5] * 2000),), Sampled(((5,) * 2000,)))
    assert check_sampled([many] * 1000).summary == "2,000,000 ids of 1,000 responses are stored as they were sampled"


def test_of_several_turns_the_mask_is_that_of_the_source() -> None:
    assert check_sampled([Rollout("a", (1, 2), (response([5, 6], [-0.5, -0.25], [1, 0]), SECOND), MASKED)]).passed


def test_no_group_was_sampled() -> None:
    numbers = {"groups_checked": 0, "responses_checked": 0, "tokens_checked": 0}
    assert check_sampled([]) == Verdict(True, "no group has sampled ids: texts were tokenized", numbers)


def test_a_prompt_of_the_template() -> None:
    assert check_sampled([Rollout("a", (9, 9), (FIRST, SECOND), Sampled(SOURCE.responses, None, SOURCE.logprobs))]).passed


# -- Rows of agents' runs: each way in which what is stored is not what the calls of the source give, and each corruption of them ---------


def spoken(given: Sequence[int], wrote: Sequence[int], agent: str = "", run: int = 0, trained: Sequence[int] | None = None) -> Spoken:
    return Spoken(run, agent, given, wrote, trained or [1] * len(wrote), [-0.5] * len(wrote))


def row(turn: int, ids: Sequence[int], mask: Sequence[int], run: int = 0) -> RunRow:
    return RunRow(run, turn, list(ids), list(mask), [-0.5 * each for each in mask])


RUN_FIRST, RUN_SECOND, OTHER = spoken([1], [5]), spoken([1, 5, 2], [6]), spoken([1, 5, 3], [7])
CALLS = [RUN_FIRST, RUN_SECOND, OTHER, spoken([1], [8], run=1)]
ROWS = [row(0, [1, 5, 2, 6], [0, 1, 0, 1]), row(2, [1, 5, 3, 7], [0, 0, 0, 1]), row(0, [1, 8], [0, 1], 1)]
RUN_RIGHT = Runs("a", ROWS, CALLS)


def test_what_was_looked_at() -> None:
    numbers = {"groups_checked": 2, "calls_checked": 8, "rows_checked": 6, "runs_checked": 4, "runs_split": 2}
    assert check_runs([RUN_RIGHT, RUN_RIGHT]) == Verdict(True, "8 calls of 4 runs are 6 rows, 2 runs are split", numbers)
    assert check_runs([replace(RUN_RIGHT, rows=[replace(each, logprobs=[]) for each in ROWS])]).passed, "a store without log-probabilities"
    assert check_runs([]).summary == "no group is of runs of agents"


def test_calls_as_the_source_has_them() -> None:
    step = {"ids": {"p": [1], "t": [5, 2]}, "who": {"name": "helper"}}
    keys = {"prompt_ids_key": "ids.p", "token_ids_key": "ids.t", "logprobs_key": None, "sampled_mask_key": None}
    (call,) = calls_of_steps({"trajectory": [step]}, keys)
    assert (call.agent, call.given, call.wrote, [*call.trained], [*call.logprobs]) == ("", [1], [5, 2], [1, 1], [])
    named = {**keys, "runs_key": "runs", "steps_key": "s", "agent_key": "who.name"}
    runs = {"runs": [{"s": [step]}, {"s": [{**step, "who": None}, step, {**step, "who": {"name": True}}]}]}
    assert [(each.run, each.agent) for each in calls_of_steps(runs, named)] == [(0, "helper"), (1, ""), (1, "helper"), (1, "true")]
    assert [each.run for each in calls_of_steps(runs, {**named, "agents": ["helper"]})] == [0, 1]
    whose = {"runs": [{"s": [step], "who": {"name": name}} for name in ("judge", "helper", "helper")]}
    whose["runs"][1]["s"] = [{**step, "who": None}]
    assert [(each.run, each.agent) for each in calls_of_steps(whose, {**named, "agents": ["helper"]})] == [(0, "helper"), (1, "helper")]


def test_calls_of_a_graph() -> None:
    def node(parent: int | None, ids: list[int], sampled: int) -> dict[str, Any]:
        return {"parent": parent, "token_ids": ids, "mask": [False] * (len(ids) - sampled) + [True] * sampled, "logprobs": [-0.5] * sampled}

    nodes = [node(None, [1, 9], 0), node(0, [3, 5], 1), node(0, [3, 6], 1), node(1, [4], 0)]
    found = [([*each.given], [*each.wrote], [*each.logprobs]) for each in calls_of_trace({"nodes": nodes}, {})]
    assert found == [([1, 9, 3], [5], [-0.5]), ([1, 9, 3], [6], [-0.5])]
    assert [each.wrote for each in calls_of_trace({"nodes": nodes}, {"branches": "last"})] == [[5]]
    traces = [{"nodes": nodes, "agent": {"name": name, "trainable": name != "c"}, "errors": [1] * (name == "d")} for name in "abcda"]
    assert {each.run for each in calls_of_trace({"traces": traces}, {})} == {0, 1, 2}
    assert {each.run for each in calls_of_trace({"traces": traces}, {"agent": "a"})} == {0, 1}
    assert {each.run for each in calls_of_trace({"traces": [{"nodes": nodes}]}, {"agent": "agent"})} == {0}


# -- Rewards of steps: each way in which what is stored is not where, or what, the source says --------------------------------------------

STEPS = (("One.\n", 1.0), ("Two.\n", 0.0), ("Three.", -0.5))
STEP_RIGHT = Stepwise("a", ("One.\n", "One.\nTwo.\n", "One.\nTwo.\nThree."), (1.0, 0.0, -0.5), 0, STEPS)


def test_rewards_where_steps_end() -> None:
    numbers = {"responses_checked": 2, "steps_checked": 6}
    assert check_steps([STEP_RIGHT, STEP_RIGHT]) == Verdict(True, "6 rewards of 2 responses stand where their steps end", numbers)
    none = {"responses_checked": 0, "steps_checked": 0}
    assert check_steps([]) == Verdict(True, "no response is judged step by step", none)


def test_what_a_template_writes_before_all_steps_and_the_space_that_it_takes_away() -> None:
    headed = replace(STEP_RIGHT, texts=tuple(f"<think>\n\n</think>\n\n{text}" for text in STEP_RIGHT.texts))
    trimmed = replace(STEP_RIGHT, texts=("One.", "One.\nTwo.", "One.\nTwo.\nThree."))
    assert check_steps([headed, trimmed]).passed
    assert check_steps([replace(trimmed, follows=("\nTwo", "\nThree", "")), replace(STEP_RIGHT, follows=("Two", " Three", ""))]).passed


def test_of_answers_the_places_are_compared_and_not_the_texts() -> None:
    answers = replace(STEP_RIGHT, texts=("", "", ""), places=((3, 9, 12), (3, 9, 12)))
    assert check_steps([answers]).passed
    moved = check_steps([replace(answers, places=((3, 8, 12), (3, 9, 12)))])
    assert moved.summary == "a: answers end at the tokens [3, 8, 12], by the source's mask at [3, 9, 12]"
    assert not check_steps([replace(answers, rewards=(1.0, 0.5, -0.5))]).passed
