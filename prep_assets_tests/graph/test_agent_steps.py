"""Runs of agents as lists of calls: which calls are one row, what is trained of it, and what the store, its proof and Tinker's own code make of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.extensions.rl.mutations import ROLLOUT_MUTATIONS, RUN_MUTATIONS
from prep_assets.extensions.rl.proofs.groups import RunRow, Runs, calls_of_steps, calls_of_trace, check_runs, rows_of_calls
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.extensions.training.collate import PadGroups
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Group
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.version_folders import Published
from prep_assets.training import DatasetFactory
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.corpus.agents import call, messages, of_rllm, of_verifiers, run, trace, whole
from prep_assets_tests.extensions.exports.readers import needs, reader, stand_in
from prep_assets_tests.graph.workspaces import TOKENIZER, build, build_all, domain, jsonl, refusals, workspace_in
from prep_assets_tests.stored import StoredGroups

ROWS = [{"id": number, "runs": [run(number, 1.0), run(number, -0.5)]} for number in range(5)]
ONE = {"id": 9, "runs": [{"trajectory": run(9, 0.0)["trajectory"][:1], "reward": 0.25}]}
OPTIONS = {"runs_key": "runs", "agent_key": "extras.agent"}


def built(folder: Path, rows: list[dict[str, Any]], ignore: Sequence[str] = (), **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(exist_ok=True)
    runs = domain(jsonl(folder / "runs.jsonl", rows), "agent_steps", options=options, ignore=list(ignore))
    exports = {name: {"from": "rl_groups", "to": name} for name in ("hf_arrow", "hf_parquet")}
    family = {"tokenizer": TOKENIZER, "domains": {"runs": runs}, "output": {"storage_format": "bin"}, "exports": exports}
    workspace = workspace_in(folder, {"rl": family})
    return workspace, build(workspace, "rl_groups_by_domain", "runs")


def test_a_run_is_split_where_a_prompt_does_not_go_on(tmp_path: Path) -> None:
    workspace, published = built(tmp_path, [*ROWS, ONE], **OPTIONS)
    assert refusals(published) == []
    counts = published.manifest.counts
    assert (counts["runs"], counts["runs_split"], counts["responses"]) == (11, 10, 31)
    store = StoredGroups(published.directory)
    for group, row in enumerate(ROWS):
        assert store.rewards.record(group, "rewards").tolist() == [1.0] * 3 + [-0.5] * 3
        assert store.rewards.record(group, "runs").tolist() == [0] * 3 + [1] * 3
        assert store.rewards.record(group, "turns").tolist() == [0, 1, 3] * 2
        for record, (steps, calls) in zip(
            store.responses_of(group), [(each["trajectory"], at) for each in row["runs"] for at in ([0, 2], [1], [3])], strict=True
        ):
            ids, mask = store.conversation(group, record)
            assert ids.tolist() == whole(steps[calls[-1]])
            assert ids[mask == 1].tolist() == [token for at in calls for token in steps[at]["tokens"]["completion_ids"]]
            logprobs = store.responses.record(record, "logprobs")
            assert logprobs[store.responses.record(record, "loss_mask") == 1].tolist() == [
                each for at in calls for each in steps[at]["tokens"]["completion_logprobs"]
            ]
    trials = [trial for trial in selftest(workspace, published) if trial.check in ("runs", "sampled_ids")]
    assert [trial for trial in trials if trial.tried != trial.caught] == []
    assert {trial.mutation for trial in trials if trial.caught} >= {each.name for each in (*RUN_MUTATIONS, *ROLLOUT_MUTATIONS)} - {
        "what rows share trained in both"
    }
    build_all(workspace)
    items = DatasetFactory.load("grpo", workspace.stores / "rl_groups")
    batch = PadGroups()([items[0], items[5]])
    assert batch["runs"].tolist() == [[0, 0, 0, 1, 1, 1], [0, -1, -1, -1, -1, -1]]


def test_whose_calls_are_read(tmp_path: Path) -> None:
    _, main = built(tmp_path / "main", ROWS, **OPTIONS, agents=[""])
    _, helper = built(tmp_path / "helper", ROWS, **OPTIONS, agents=["helper"])
    assert [each.manifest.counts["responses"] for each in (main, helper)] == [20, 10]
    assert [each.manifest.counts["runs_split"] for each in (main, helper)] == [10, 0]


def test_rewards_of_calls_stand_where_their_answers_end(tmp_path: Path) -> None:
    row = run(1, 1.0)
    judged = {**row, "trajectory": [{**each, "score": at / 4} for at, each in enumerate(row["trajectory"])]}
    _, published = built(tmp_path, [judged], turn_rewards_key="score", agent_key="extras.agent")
    store = StoredGroups(published.directory)
    rewards = [store.responses.record(at, "step_rewards")[store.responses.record(at, "step_ends") == 1].tolist() for at in range(3)]
    assert rewards == [[0.0, 0.5], [0.25], [0.75]]


def test_rows_of_the_recipe(tmp_path: Path) -> None:
    """Of verifiers and rLLM, as their authors describe them; the trajectories of a judge are not read."""
    recipe = yaml.safe_load((ROOT / "configs" / "recipes" / "runs" / "rl.yaml").read_text("utf-8"))["domains"]
    calls = [{key: each[key] for key in ("prompt", "completion", "tokens")} for each in run(1, 0.0)["trajectory"]]
    rollout = {
        "trajectory": [*map(of_verifiers, calls)],
        "reward": 1.0,
        "is_completed": True,
        "metrics": {"a": 1.0},
        "prompt": messages("a"),
    }
    solved = {"uid": "a", "name": "solver", "task": {"q": 1}, "steps": [*map(of_rllm, calls)], "reward": 1.0, "info": {}}
    episode = {
        "id": "a",
        "is_correct": True,
        "trajectories": [{**solved, "name": "judge", "reward": None}, solved, {**solved, "reward": 0.0}],
    }
    for name, row in (("rollouts", {"example_id": 3, "rollouts": [rollout, {**rollout, "reward": 0.0}]}), ("episodes", episode)):
        _, published = built(tmp_path / name, [row], recipe[name]["ignore"], **recipe[name]["options"])
        assert refusals(published) == []
        rewards = StoredGroups(published.directory).rewards
        assert rewards.record(0, "rewards").tolist() == [1.0] * 3 + [0.0] * 3
        assert rewards.record(0, "runs").tolist() == [0] * 3 + [1] * 3
    with pytest.raises(Refused, match="several_agents"):
        apply(convert_with("agent_steps", {**recipe["episodes"]["options"], "agents": None}), episode)


def changed(step: int, **tokens: Any) -> dict[str, Any]:
    steps = run(1, 1.0)["trajectory"]
    return {
        "trajectory": [{**each, "tokens": {**each["tokens"], **(tokens if at == step else {})}} for at, each in enumerate(steps)],
        "reward": 1,
    }


FIRST = run(1, 1.0)["trajectory"][0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (changed(0, completion_ids=[]), "empty_answer"),
        (changed(1, prompt_ids=[]), "empty_answer"),
        (changed(1, completion_mask=[1]), "length_mismatch"),
        (changed(1, completion_mask=[2]), "bad_mask"),
        (changed(1, completion_logprobs=[-1.0]), "length_mismatch"),
        (changed(1, completion_logprobs=None), "missing_field"),
        (changed(1, prompt_ids=[7, 8]), "several_prompts"),
        ({"trajectory": [], "reward": 1}, "no_assistant_turn"),
        ({"trajectory": [{**FIRST, "completion": []}], "reward": 1}, "empty_answer"),
        ({"trajectory": [FIRST, {**call([], "So.", whole(FIRST)), "prompt": messages("So?")}], "reward": 1}, "messages_differ"),
        ({"trajectory": [FIRST]}, "missing_field"),
    ],
)
def test_what_is_no_run(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        apply(convert_with("agent_steps"), row)
    assert refused.value.reason == reason


Step = tuple[list[int], list[int]]


@st.composite
def steps(draw: st.DrawFn) -> list[list[Step]]:
    """Runs whose calls mostly go on with an earlier call of any branch, or with a part of one."""
    runs = list[list[Step]]()
    for _ in range(draw(st.integers(1, 2))):
        made = list[Step]()
        for _ in range(draw(st.integers(1, 7))):
            before = draw(st.sampled_from([[1], *[[*asked, *wrote] for asked, wrote in made]]))
            cut = draw(st.integers(1, len(before))) if draw(st.integers(0, 4)) == 0 else len(before)
            asked = [*before[:cut], *draw(st.lists(st.integers(2, 4), max_size=2))]
            made.append((asked, draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))))
        runs.append(made)
    return runs


def row_of(runs: list[list[Step]]) -> dict[str, Any]:
    def made(asked: list[int], wrote: list[int], number: int) -> dict[str, Any]:
        tokens = {
            "prompt_ids": asked,
            "completion_ids": wrote,
            "completion_mask": [1] * len(wrote),
            "completion_logprobs": [-0.5] * len(wrote),
        }
        return {"prompt": messages("a") * (2 * number + 1), "completion": messages("?", str(number))[1:], "tokens": tokens}

    return {"runs": [{"trajectory": [made(*step, number) for number, step in enumerate(run)], "reward": at} for at, run in enumerate(runs)]}


def rows_of(group: Group) -> list[RunRow]:
    sampled = group.sampled
    assert sampled is not None and sampled.masks is not None and sampled.logprobs is not None and sampled.prompt is not None
    given, blank = list(sampled.prompt), len(sampled.prompt)
    columns = zip(sampled.runs, sampled.responses, sampled.masks, sampled.logprobs, strict=True)
    return [RunRow(*of, [*given, *ids], [0] * blank + [*mask], [0.0] * blank + [*scores]) for of, ids, mask, scores in columns]


def obvious(runs: list[list[Step]]) -> list[RunRow]:
    """Rows as texts of letters, which grow; a call looks for the longest that its prompt begins with."""
    rows = list[list[Any]]()
    for number, calls in enumerate(runs):
        for turn, (asked, wrote) in enumerate(calls):
            prompt, said = ("".join(map(str, each)) for each in (asked, wrote))
            fitting = sorted((len(row[2]), row[4], at) for at, row in enumerate(rows) if row[0] == number and prompt.startswith(row[2]))
            if not fitting:
                rows.append([number, turn, "", "", turn])
            row = rows[fitting[-1][2] if fitting else -1]
            row[3] += "0" * (len(prompt) - len(row[2])) + "1" * len(said)
            row[2], row[4] = prompt + said, turn
    return [RunRow(run, turn, [*map(int, ids)], [*map(int, mask)], [-0.5 * int(each) for each in mask]) for run, turn, ids, mask, _ in rows]


@given(steps())
def test_rows_are_those_of_an_obvious_reading_and_of_the_proof(runs: list[list[Step]]) -> None:
    row = row_of(runs)
    group = apply(convert_with("agent_steps", {"runs_key": "runs"}), row)
    assert isinstance(group, Group)
    rows, calls = rows_of(group), calls_of_steps(row, {"runs_key": "runs"})
    assert rows == obvious(runs) == rows_of_calls(calls)
    assert check_runs([Runs("a", rows, calls)]).passed
    assert sum(sum(each.mask) for each in rows) == sum(len(wrote) for made in runs for _, wrote in made), (
        "each sampled token is trained once"
    )
    assert group.rewards == tuple(float(each.run) for each in rows)


def test_branches_of_a_graph_are_rows_of_calls() -> None:
    row = trace(1)
    group = apply(convert_with("verifiers_trace"), row)
    assert isinstance(group, Group)
    assert rows_of(group) == rows_of_calls(calls_of_trace(row, {})) and [each.turn for each in rows_of(group)] == [0, 2, 3]


@pytest.mark.readers
@given(made=st.lists(st.tuples(st.booleans(), *[st.lists(st.integers(2, 9), min_size=1, max_size=3)] * 2), min_size=1, max_size=6))
def test_tinker_makes_the_same_rows(made: list[tuple[bool, list[int], list[int]]]) -> None:
    """`trajectory_to_data` of its cookbook, on runs of one agent: a call goes on with the one before, or begins otherwise."""
    needs("tinker_cookbook")
    stand_in("blobfile")  # it opens files in clouds
    processing, types, tinker = reader("tinker_cookbook.rl.data_processing"), reader("tinker_cookbook.rl.types"), reader("tinker")
    calls, before = list[Step](), list[int]()
    for number, (goes_on, asked, wrote) in enumerate(made):
        before = [*(before or [1] if goes_on else [1, 100 + number]), *asked, *wrote]
        calls.append((before[: len(before) - len(wrote)], wrote))
    row = {**row_of([calls])["runs"][0], "reward": 0.5}
    group = apply(convert_with("agent_steps"), row)
    assert isinstance(group, Group)
    taken = [
        types.Transition(
            ob=tinker.ModelInput.from_ints(asked),
            ac=types.TokensWithLogprobs(tokens=wrote, maybe_logprobs=[-0.5] * len(wrote)),
            reward=0.0,
            episode_done=False,
        )
        for asked, wrote in calls
    ]
    data = processing.trajectory_to_data(types.Trajectory(transitions=taken, final_ob=tinker.ModelInput.from_ints([1])), 0.5)
    rows = rows_of(group)
    assert len(data) == len(rows)
    for datum, ours, reward in zip(data, rows, group.rewards, strict=True):
        inputs = {name: np.array(values.data) for name, values in datum.loss_fn_inputs.items()}
        assert [*datum.model_input.to_ints(), inputs["target_tokens"][-1]] == ours.ids
        assert inputs["target_tokens"].tolist() == ours.ids[1:] and inputs["mask"].tolist() == ours.mask[1:]
        assert inputs["logprobs"].tolist() == ours.logprobs[1:] and (inputs["advantages"] == reward * inputs["mask"]).all()
