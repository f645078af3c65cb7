"""Runs of agents as graphs of messages: branches that share a prompt are responses, with the ids that were sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.errors import Refused
from prep_assets.extensions.rl.mutations import ROLLOUT_MUTATIONS, RUN_MUTATIONS
from prep_assets.extensions.rl.proofs.groups import calls_of_trace
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Group
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.version_folders import Published
from prep_assets_tests.corpus.agents import BACKEND, asked, encoded, said, trace
from prep_assets_tests.extensions.exports.readers import verifiers
from prep_assets_tests.graph.workspaces import CONFIGS, TOKENIZER, build, domain, jsonl, refusals, workspace_in
from prep_assets_tests.stored import StoredGroups

IGNORED = [f"{place}{name}" for place in ("", "traces.") for name in ("version", "task", "agent", "is_completed")]


PATHS = ([0, 1, 2, 3], [0, 1, 2, 4], [0, 5])
TRAINED = ([1, 3], [4], [5])
"""The nodes that each branch trains: what branches share is trained in the first of them."""


def built(folder: Path, rows: list[dict[str, Any]], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(exist_ok=True)
    runs = domain(jsonl(folder / "traces.jsonl", rows), "verifiers_trace", ignore=IGNORED, options=options)
    workspace = workspace_in(folder, {"rl": {"tokenizer": TOKENIZER, "domains": {"runs": runs}, "output": {"storage_format": "bin"}}})
    return workspace, build(workspace, "rl_groups_by_domain", "runs")


def test_branches_of_one_prompt_are_responses(tmp_path: Path) -> None:
    rows = [trace(number) for number in range(6)]
    workspace, published = built(tmp_path, [*rows[:5], {"id": "e", "traces": [rows[5]]}])
    store = StoredGroups(published.directory)
    head = len(encoded("<|im_start|>assistant\n"))
    assert (published.manifest.counts["runs"], published.manifest.counts["runs_split"]) == (6, 6)
    for number, row in enumerate(rows):
        assert store.rewards.record(number, "turns").tolist() == [0, 2, 3]
        prompt = store.prompts.record(number, "tokens").tolist()
        assert prompt == row["nodes"][0]["token_ids"] + encoded("<|im_start|>assistant\n")
        assert store.rewards.record(number, "rewards").tolist() == [0.25] * 3
        for record, path, trained in zip(store.responses_of(number), PATHS, TRAINED, strict=True):
            nodes = [row["nodes"][at] for at in path[1:]]
            assert store.responses.record(record, "tokens").tolist() == [token for node in nodes for token in node["token_ids"]][head:]
            mask = [each and at in trained for at, node in zip(path[1:], nodes, strict=True) for each in node["mask"]]
            assert store.responses.record(record, "loss_mask").tolist() == [*map(int, mask)][head:]
            logprobs = store.responses.record(record, "logprobs")
            assert logprobs[store.responses.record(record, "loss_mask") == 1].tolist() == [
                each for at in trained for each in row["nodes"][at]["logprobs"]
            ]
    assert refusals(published) == []
    trials = [trial for trial in selftest(workspace, published) if trial.check in ("sampled_ids", "runs") and trial.mutation]
    assert {trial.mutation for trial in trials if trial.caught} == {mutation.name for mutation in (*ROLLOUT_MUTATIONS, *RUN_MUTATIONS)}
    assert [trial for trial in trials if trial.tried != trial.caught] == []


def rewritten(row: dict[str, Any]) -> dict[str, Any]:
    """The second turn was given other tokens for the first answer than were sampled, so it begins a branch of its own: its prompt has that answer."""
    nodes = [*row["nodes"][:2], asked(None, "What is 1?", ""), said(2, "I asked 1."), asked(3, "the tool says 4"), said(4, "It is 1.")]
    nodes[3] |= {"sampled": False, "mask": [False] * len(nodes[3]["mask"]), "logprobs": []}
    return {**row, "nodes": nodes}


def test_a_turn_that_did_not_go_on_with_the_tokens_before_it_is_a_row_of_its_own(tmp_path: Path) -> None:
    _, published = built(tmp_path, [rewritten(trace(1)), trace(2)])
    assert refusals(published) == []
    store, row = StoredGroups(published.directory), rewritten(trace(1))
    first, second = (store.conversation(0, at)[0].tolist() for at in store.responses_of(0))
    assert first == [token for node in row["nodes"][:2] for token in node["token_ids"]]
    assert second == [token for node in row["nodes"][2:] for token in node["token_ids"]]
    _, last = built(tmp_path / "last", [rewritten(trace(1)), trace(2)], branches="last")
    assert refusals(last) == []
    store, row = StoredGroups(last.directory), rewritten(trace(1))
    prompt = [token for node in row["nodes"][2:5] for token in node["token_ids"]] + encoded("<|im_start|>assistant\n")
    assert store.prompts.record(0, "tokens").tolist() == prompt
    assert BACKEND.decode(store.responses.record(0, "tokens").tolist()).strip() == "It is 1."
    assert [len(store.responses_of(number)) for number in range(2)] == [1, 1]


def changed(at: int, **fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {**row, "nodes": [{**node, **fields} if number == at else node for number, node in enumerate(row["nodes"])]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: {**row, "nodes": []}, "no_assistant_turn"),
        (changed(1, mask=[True]), "length_mismatch"),
        (changed(1, logprobs=[-0.5]), "length_mismatch"),
        (changed(1, mask=[2] * 9), "bad_mask"),
        (changed(1, sampled=False), "bad_mask"),
        (changed(0, sampled=True), "bad_mask"),
        (changed(2, parent=2), "bad_parent"),
        (changed(2, parent=5), "bad_parent"),
        (changed(2, parent=-1), "bad_parent"),
        (lambda row: {**row, "rewards": {}}, "no_reward"),
        (lambda row: {**row, "rewards": {"right": None}}, "missing_field"),
        (lambda row: {"traces": [row, {**row, "agent": {"name": "judge"}}]}, "several_agents"),
        (lambda row: {"traces": [{**row, "agent": {"trainable": False}}]}, "no_trained_trace"),
        (lambda row: {"traces": [{**row, "errors": [{"type": "Timeout"}]}]}, "no_trained_trace"),
        (lambda row: {"traces": []}, "no_trained_trace"),
        (changed(1, logprobs=[0.5] * len(said(0, "I ask 1.")["logprobs"])), "positive_logprob"),
    ],
)
def test_what_is_no_run(change: Any, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        apply(convert_with("verifiers_trace"), change(trace(1)))
    assert refused.value.reason == reason


def test_traces_of_one_agent_are_runs_of_a_group() -> None:
    judge = trace(3, agent={"name": "judge", "trainable": False})
    row = {"traces": [trace(1), judge, trace(1, rewards={"right": {"score": 0.0}}), trace(1, agent={"name": "helper"})]}
    group = apply(convert_with("verifiers_trace", {"agent": "agent"}), row)
    assert isinstance(group, Group) and group.sampled is not None
    assert group.rewards == (0.25,) * 3 + (0.0,) * 3 and group.sampled.runs == ((0, 0), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3))
    assert [call.run for call in calls_of_trace(row, {"agent": "agent"})] == [0] * 4 + [1] * 4


def test_ids_of_another_message_are_refused(tmp_path: Path) -> None:
    row = trace(1)
    row["nodes"][3]["message"] = {**row["nodes"][3]["message"], "content": "It is not."}
    _, published = built(tmp_path, [row, trace(2)])
    assert [each.reason for each in refusals(published)] == ["ids_differ_from_text"]


def compacted(number: int, *, resumed: bool) -> dict[str, Any]:
    """The third branch is an attempt to compact the history, from which the second went on or nothing did."""
    row = trace(number)
    row["nodes"][5]["semantic_parents"] = [{"node": 1, "type": "compaction_attempt"}]
    row["nodes"][4]["semantic_parents"] = [{"node": 5, "type": "compaction" if resumed else "subagent_return"}]
    return row


def test_a_compaction_that_nothing_went_on_from_is_not_trained(tmp_path: Path) -> None:
    _, published = built(tmp_path, [compacted(1, resumed=False), compacted(2, resumed=True)])
    assert refusals(published) == []
    store = StoredGroups(published.directory)
    assert [store.rewards.record(number, "turns").tolist() for number in range(2)] == [[0, 2], [0, 2, 3]]
    row = trace(1)
    row["nodes"] = [{**node, "semantic_parents": [{"node": 0, "type": "compaction_attempt"}]} for node in row["nodes"]]
    with pytest.raises(Refused, match="no_assistant_turn"):
        apply(convert_with("verifiers_trace"), row)


@pytest.mark.readers
def test_episodes_that_verifiers_writes_have_its_branches(tmp_path: Path) -> None:
    """``Trace.branches`` is what prime-rl trains on. The recipe reads the file."""
    files, episodes = verifiers("utils.trace_store"), verifiers("episode")
    rows = [trace(0), rewritten(trace(1)), compacted(2, resumed=False), compacted(3, resumed=True)]
    for number, row in enumerate(rows):
        task = {"type": "Question", "data": {"idx": number}}
        about = {"task": task, "agent": {"name": "solver", "config": {}}, "version": 1, "ok": True}
        judge = {**row, **about, "agent": {"name": "judge", "config": {}, "trainable": False}}
        episode = {"task": task, "ok": True, "group": {"id": f"g{number}"}, "traces": [judge, {**row, **about}]}
        files.write_episode(tmp_path, episodes.WireEpisode.model_validate(episode))
    recipe = yaml.safe_load((CONFIGS / "recipes" / "runs" / "rl.yaml").read_text())["domains"]["solver"]
    family = {"tokenizer": TOKENIZER, "domains": {"solver": {**recipe, "files": [str(tmp_path / files.TRACES_FILE)]}}}
    workspace = workspace_in(tmp_path, {"rl": {**family, "output": {"storage_format": "bin"}}})
    published = build(workspace, "rl_groups_by_domain", "solver")
    assert refusals(published) == []
    store, seen = StoredGroups(published.directory), 0
    form = episodes.Trace[episodes.WireTaskData, episodes.State, episodes.WireAgentConfig]
    for number, found in enumerate(files.read_episodes(tmp_path, form)):
        run, trained = found.traces[1], set[int]()
        assert store.rewards.record(number, "rewards").tolist() == [run.reward] * len(store.responses_of(number))
        branches, responses = [branch for branch in run.branches if branch.trainable], store.responses_of(number)
        assert len(branches) == len(responses)
        for branch, record in zip(branches, responses, strict=True):
            prompt = store.prompts.record(number, "tokens").tolist()
            assert branch.token_ids == prompt + store.responses.record(record, "tokens").tolist()
            once = [each and id(node) not in trained for node in branch.nodes for each in node.mask]
            trained |= {id(node) for node in branch.nodes}
            assert once == [False] * len(prompt) + [bool(each) for each in store.responses.record(record, "loss_mask")]
            logprobs = store.responses.record(record, "logprobs").tolist()
            assert [each * sampled for each, sampled in zip(branch.logprobs, once, strict=True)][len(prompt) :] == logprobs
            seen += sum(once)
    assert seen == published.manifest.counts["trained_tokens"]
