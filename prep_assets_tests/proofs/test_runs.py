"""Rows of agents' runs: each way in which what is stored is not what the calls of the source give, and each corruption of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from prep_assets.proofs.groups import RunRow, Runs, Spoken, calls_of_steps, calls_of_trace, check_runs, rows_of_calls
from prep_assets.proofs.mutations import RUN_MUTATIONS
from prep_assets.proofs.verdict import Verdict, Worst


def spoken(given: Sequence[int], wrote: Sequence[int], agent: str = "", run: int = 0, trained: Sequence[int] | None = None) -> Spoken:
    return Spoken(run, agent, given, wrote, trained or [1] * len(wrote), [-0.5] * len(wrote))


def row(turn: int, ids: Sequence[int], mask: Sequence[int], run: int = 0) -> RunRow:
    return RunRow(run, turn, list(ids), list(mask), [-0.5 * each for each in mask])


FIRST, SECOND, OTHER = spoken([1], [5]), spoken([1, 5, 2], [6]), spoken([1, 5, 3], [7])
CALLS = [FIRST, SECOND, OTHER, spoken([1], [8], run=1)]
ROWS = [row(0, [1, 5, 2, 6], [0, 1, 0, 1]), row(2, [1, 5, 3, 7], [0, 0, 0, 1]), row(0, [1, 8], [0, 1], 1)]
RIGHT = Runs("a", ROWS, CALLS)


@pytest.mark.parametrize(
    ("calls", "rows"),
    [
        (CALLS, ROWS),
        ([FIRST, spoken([1, 5, 2], [6], "helper")], [row(0, [1, 5], [0, 1]), row(1, [1, 5, 2, 6], [0, 0, 0, 1])]),
        ([FIRST, spoken([1, 5, 2], [6], run=1)], [row(0, [1, 5], [0, 1]), row(0, [1, 5, 2, 6], [0, 0, 0, 1], 1)]),
        ([FIRST, spoken([9], [4]), spoken([1, 5], [6])], [row(0, [1, 5, 6], [0, 1, 1]), row(1, [9, 4], [0, 1])]),
        ([FIRST, spoken([1], [5, 2]), SECOND], [row(0, [1, 5], [0, 1]), row(1, [1, 5, 2, 6], [0, 1, 1, 1])]),
        ([FIRST, FIRST, SECOND], [row(0, [1, 5], [0, 1]), row(1, [1, 5, 2, 6], [0, 1, 0, 1])]),
        ([spoken([1], [5], trained=[0]), SECOND], [row(0, [1, 5, 2, 6], [0, 0, 0, 1])]),
        ([spoken([1], [5], trained=[0]), OTHER, SECOND], [row(0, [1, 5, 3, 7], [0, 0, 0, 1]), row(2, [1, 5, 2, 6], [0, 0, 0, 1])]),
        ([spoken([4], [5], trained=[0]), FIRST], [row(1, [1, 5], [0, 1])]),
        ([], []),
    ],
)
def test_rows_of_calls(calls: list[Spoken], rows: list[RunRow]) -> None:
    found = rows_of_calls(calls)
    assert [(each.run, each.turn, [*each.ids], [*each.mask]) for each in found] == [
        (each.run, each.turn, each.ids, each.mask) for each in rows
    ]


def test_what_was_looked_at() -> None:
    numbers = {"groups_checked": 2, "calls_checked": 8, "rows_checked": 6, "runs_checked": 4, "runs_split": 2}
    assert check_runs([RIGHT, RIGHT]) == Verdict(True, "8 calls of 4 runs are 6 rows, 2 runs are split", numbers)
    assert check_runs([replace(RIGHT, rows=[replace(each, logprobs=[]) for each in ROWS])]).passed, "a store without log-probabilities"
    assert check_runs([]).summary == "no group is of runs of agents"


@pytest.mark.parametrize(
    ("at", "stored", "says"),
    [
        (0, [], "2 rows are stored, its calls are 3"),
        (1, [replace(ROWS[1], turn=1)], "row 1 is of run 0 from call 1 on, by its calls of run 0 from call 2 on"),
        (2, [replace(ROWS[2], run=0)], "row 2 is of run 0 from call 0 on, by its calls of run 1 from call 0 on"),
        (0, [row(0, [1, 5, 9, 6], [0, 1, 0, 1])], "row 0: 4 ids differ from the 4 that its calls were given and wrote"),
        (0, [row(0, [1, 5, 2, 6], [0, 1, 1, 1])], "row 0: token 2 is trained, by its calls it is not to be"),
        (1, [row(2, [1, 5, 3, 7], [0, 1, 0, 1])], "row 1: token 1 is trained, by its calls it is not to be"),
        (0, [row(0, [1, 5, 2, 6], [0, 0, 0, 1])], "row 0: token 1 is not trained, by its calls it is to be"),
        (0, [replace(ROWS[0], logprobs=[0.0, -0.5, 0.0, -0.25])], "row 0: log-probabilities differ from those of its calls"),
    ],
)
def test_what_is_stored_is_not_what_calls_give(at: int, stored: list[RunRow], says: str) -> None:
    verdict = check_runs([RIGHT, replace(RIGHT, id="b", rows=[*ROWS[:at], *stored, *ROWS[at + 1 :]]), RIGHT])
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"b: {says}", Worst("b", says))
    assert verdict.numbers["groups_checked"] == 2


CORRUPTED: dict[str, tuple[int, list[RunRow]]] = {
    "rows joined although the prompt differs": (2, [row(0, [1, 5, 2, 6, 7], [0, 1, 0, 1, 1])]),
    "a row split although the prompt goes on with it": (1, [row(0, [1, 5], [0, 1]), replace(ROWS[0], turn=1, mask=[0, 0, 0, 1])]),
    "the prompt of a later call trained": (1, [replace(ROWS[0], mask=[0, 1, 1, 1])]),
    "a row of another run": (1, [replace(ROWS[0], run=1)]),
}


@pytest.mark.parametrize("mutation", RUN_MUTATIONS, ids=lambda each: each.name)
def test_corruptions(mutation: Any) -> None:
    [changed] = mutation.change([RIGHT], 0)
    count, rows = CORRUPTED.get(mutation.name, (0, []))
    wanted = [*rows, *ROWS[count:]] if rows else [ROWS[0], replace(ROWS[1], mask=[0, 1, 0, 1]), ROWS[2]]
    assert [(each.run, each.turn, [*each.ids], [*each.mask]) for each in changed.rows] == [
        (each.run, each.turn, each.ids, each.mask) for each in wanted
    ]
    assert not check_runs([changed]).passed
    alone = Runs("a", [ROWS[2]], [CALLS[3]])
    assert (mutation.change([alone], 0) is None) == (mutation.name != "a row of another run")


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
