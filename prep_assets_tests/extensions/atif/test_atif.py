"""Trajectories in ATIF: chats and groups of them, traces that have lost a turn, and messages that are the same behind them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import CheckFailed, ConfigError, Refused
from prep_assets.extensions.atif.check import LOSSES
from prep_assets.extensions.atif.export import steps_of
from prep_assets.extensions.atif.proofs.rules import calls_of_trajectory
from prep_assets.extensions.lines.write import written
from prep_assets.extensions.rl import groups
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import assets_of, run_check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Group, Sample
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.version_folders import Published
from prep_assets_tests.corpus.agents import encoded
from prep_assets_tests.corpus.sessions import WEATHER, Line, asking, called, helper, sampled, step, trajectory
from prep_assets_tests.graph.workspaces import TOKENIZER, build, checks_of, failing, make, refusals, workspace_in
from prep_assets_tests.stored import StoredGroups


def read(row: Line, schema: str = "atif", **options: Any) -> Any:
    account = Account()
    example = apply(Reader(convert_with(schema, options), account), row)
    assert not account.unknown, account.unknown
    return example


def says(sample: Sample) -> list[tuple[str, str, float | None]]:
    return [(turn.role, "|".join(part.text for part in turn.regions), turn.regions[-1].loss_weight) for turn in sample.turns]


def test_a_trajectory_as_a_chat() -> None:
    sample = read(called(3))
    assert says(sample) == [
        ("user", "How warm is it in Oslo, trip 3?", None),
        (
            "assistant",
            'I ask for both.|{"name":"weather","arguments":{"city":"Oslo"},"id":"c0"}|{"name":"weather","arguments":{"city":"Rome"},"id":"c1"}',
            None,
        ),
        ("tool", "3", None),
        ("tool", "20", None),
        ("assistant", "It is 3 degrees.", 0.0),
        ("user", "And tomorrow?", None),
        ("assistant", "Warm, as on day 3.", None),
        ("user", "The user smiles.", None),
        ("assistant", "Good.", 0.0),
        ("assistant", "Good bye.", None),
    ]
    assert sample.tools == (WEATHER,)


def test_sub_agents_are_chats_of_their_own() -> None:
    row = {**called(), "subagent_trajectories": [helper(), helper("writer", "sub-2", 2)]}
    assert says(read(row)) == says(read(called()))
    expected = [("system", "Answer briefly.", None), ("user", "List folder 2.", None), ("assistant", "It is empty.", None)]
    assert says(read(row, agent="writer")) == says(read(row, agent="sub-2")) == expected
    for agent, reason in (("nobody", "no_trained_trace"), ("explorer", "several_agents")):
        twice = {**row, "subagent_trajectories": [*row["subagent_trajectories"], helper("explorer", "sub-3")]}
        assert refused(twice, agent=agent) == reason


def refused(row: Line, schema: str = "atif", **options: Any) -> str:
    with pytest.raises(Refused) as error:
        apply(convert_with(schema, options), row)
    return error.value.reason


def changed(at: int, **fields: Any) -> Line:
    row = trajectory()
    row["steps"][at] |= fields
    return row


def less(row: Line, at: int, *, numbered: bool = True) -> Line:
    """A trajectory without a step; `numbered`: as if it had never been there."""
    row = copy.deepcopy(row)
    del row["steps"][at]
    for number, each in enumerate(row["steps"], 1):
        each["step_id"] = number if numbered else each["step_id"]
    return row


@pytest.mark.parametrize("minor", range(9))
def test_each_version_is_read(minor: int) -> None:
    assert says(read(trajectory(schema_version=f"ATIF-v1.{minor}"))) == says(read(trajectory()))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (trajectory(schema_version="ATIF-v1.9"), "unknown_version"),
        (trajectory(schema_version="1.4"), "unknown_version"),
        (changed(1, message=""), "lost_turn"),
        (less(trajectory(), 1), "lost_turn"),
        (less(trajectory(), 3, numbered=False), "lost_turn"),
        (less(trajectory(), 3), "lost_turn"),
        (changed(1, source="human"), "unknown_role"),
        (trajectory(steps=[]), "no_assistant_turn"),
        (changed(2, is_copied_context="yes"), "wrong_type"),
        (changed(2, metrics=[1]), "wrong_type"),
        (changed(2, extra={"is_sidechain": True}), "sidechains"),
        (changed(2, message=""), "empty_answer"),
        (changed(2, tool_calls=[{"tool_call_id": "c", "function_name": "ls", "arguments": {}}]), "unanswered_tool_call"),
        (changed(2, observation={"results": [{"source_call_id": "c", "content": "x"}]}), "role_order"),
    ],
)
def test_what_is_no_trajectory(row: Line, reason: str) -> None:
    assert refused(row) == reason


def scored(at: int, **fields: Any) -> Line:
    row = trajectory()
    row["steps"][at]["metrics"] |= fields
    return row


@pytest.mark.parametrize(
    ("row", "options", "reason"),
    [
        (scored(2, prompt_token_ids=None), {}, "missing_field"),
        (scored(2, logprobs=[-1.0]), {}, "length_mismatch"),
        (scored(2, completion_token_ids=[]), {}, "length_mismatch"),
        (scored(2, logprobs=None), {}, "missing_field"),
        (trajectory(extra={}), {}, "missing_field"),
        (scored(2, logprobs=[0.5] * len(trajectory()["steps"][2]["metrics"]["logprobs"])), {}, "positive_logprob"),
        (trajectory(), {"runs_key": "trials"}, "missing_field"),
    ],
)
def test_what_is_no_group(row: Line, options: dict[str, Any], reason: str) -> None:
    assert refused(row, "atif_group", **options) == reason


def test_trials_are_runs_and_sub_agents_rows_of_theirs() -> None:
    inner = {**trajectory(1), "subagent_trajectories": [helper()]}
    row = {"trials": [inner, trajectory(1, extra={"reward": -1.0})]}
    group = read(row, "atif_group", runs_key="trials")
    assert isinstance(group, Group) and group.sampled is not None
    assert group.rewards == (0.5, -1.0) and group.sampled.runs == ((0, 0), (1, 0)) and group.sampled.whole
    group = read(row, "atif_group", runs_key="trials", subagents="train", logprobs_key=None)
    assert group.sampled.runs == ((0, 0), (0, 2), (1, 0)) and group.sampled.logprobs is None
    assert [(call.run, call.agent) for call in calls_of_trajectory(row, {"runs_key": "trials", "subagents": "train"})] == [
        *[(0, "")] * 2,
        (0, "sub-1"),
        *[(1, "")] * 2,
    ]


# In the graph.


def stored(folder: Path, rows: list[Line], schema: str = "atif_group", **options: Any) -> Any:
    (folder / "traces").mkdir(parents=True)
    for number, row in enumerate(rows):
        (folder / "traces" / f"{number:03}.json").write_text(json.dumps(row))
    domain = {"files": [str(folder / "traces")], "schema": schema, "options": options}
    family, more = (
        ("rl", {})
        if schema == "atif_group"
        else ("sft", {"template": "qwen3", "exports": {"traces": {"from": "sft_tokens", "to": "atif"}}})
    )
    workspace = workspace_in(folder, {family: {"tokenizer": TOKENIZER, "domains": {"traces": domain}, **more}})
    return workspace, build(workspace, "rl_groups_by_domain" if family == "rl" else "sft_tokens", "traces")


def test_ids_are_stored_as_sampled_and_traces_that_lost_a_turn_are_named(tmp_path: Path) -> None:
    """marin#6191: of 175 public traces 170 had lost the first turn of the user. Of 30 here ten have lost the first, ten the second, and two a part of it."""
    rows = [trajectory(number) for number in range(30)]
    for number in range(10):
        if number % 2:
            rows[number] = less(rows[number], 1)
        else:
            rows[number]["steps"][1]["message"] = " "
        rows[10 + number] = less(rows[10 + number], 3)
    rows[20]["steps"][1]["message"], rows[21]["steps"][3]["message"] = "How many files are in", "hidden ones as well."
    rows[22]["steps"][3]["message"] = "Count all of them."
    rows[23] = {**rows[23], "subagent_trajectories": [helper()]}
    workspace, published = stored(tmp_path, rows, subagents="train")
    reasons = {refusal.id: refusal.reason for refusal in refusals(published)}
    assert reasons == {
        **{f"{number:03}.json:1": "lost_turn" for number in range(20)},
        **{f"{number:03}.json:1": "lossy_trace" for number in (20, 21)},
        "022.json:1": "ids_differ_from_text",
    }
    assert failing(workspace, published) == []
    store, row = StoredGroups(published.directory), rows[23]
    metrics = [row["steps"][at]["metrics"] for at in (2, 4)]
    assert store.conversation(0, store.responses_of(0)[0])[0].tolist() == [
        *metrics[1]["prompt_token_ids"],
        *metrics[1]["completion_token_ids"],
    ]
    assert store.rewards.record(0, "turns").tolist() == [0, 2] and store.rewards.record(0, "rewards").tolist() == [1.0, 1.0]
    trials = [trial for trial in selftest(workspace, published) if trial.check == "lossless_trace"]
    assert {trial.mutation for trial in trials if trial.mutation and trial.tried == trial.caught > 0} == {each.name for each in LOSSES}


LOST: dict[str, Callable[[Line], Line]] = {
    "a part of a question": lambda row: {
        **row,
        "steps": [*row["steps"][:3], {**row["steps"][3], "message": "Count hidden ones"}, row["steps"][4]],
    },
    "the system prompt": lambda row: less(row, 0),
}


@pytest.mark.parametrize("what", LOST)
def test_the_check_finds_what_the_build_lets_through(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "require_whole", lambda group, renders, vocabulary: None)
    with pytest.raises(CheckFailed, match="lossless_trace"):
        stored(tmp_path, [trajectory(1), LOST[what](trajectory(2))])


def test_words_of_answers_and_tools_are_no_lost_turn(tmp_path: Path) -> None:
    """What an answer repeats of a question, text that looks like a header, and empty blocks of reasoning in the ids."""
    rows, said = [], (("user", "user"), ("Say yes.", "yes"), ("<think> is a tag", "It is <think>."), ("assistant system user", "No."))
    for number, (question, answer) in enumerate(said):
        prompt = asking(("user", question))
        metrics, _ = sampled([*prompt, *encoded("<think>\n\n</think>\n\n")] if number == 1 else prompt, answer)
        rows.append(trajectory(number, steps=[step(1, "user", question), step(2, "agent", answer, metrics=metrics)]))
    workspace, published = stored(tmp_path, rows)
    assert refusals(published) == [] and failing(workspace, published) == []


# Messages → ATIF → messages.

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
)


@st.composite
def chats(draw: st.DrawFn) -> list[Line]:
    """Messages as TRL has them."""
    messages: list[Line] = [{"role": "system", "content": draw(words)}] * draw(st.integers(0, 1))
    for at in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(words)})
        names = draw(st.lists(words, max_size=3))
        calls = [
            {
                "type": "function",
                "id": f"c{at}{number}",
                "function": {"name": name, "arguments": draw(st.dictionaries(words, values, max_size=2))},
            }
            for number, name in enumerate(names)
        ]
        if calls:
            messages.append(
                {"role": "assistant", "content": draw(words | st.just("")), "reasoning_content": draw(words), "tool_calls": calls}
            )
            messages += [{"role": "tool", "content": draw(words | st.just("")), "tool_call_id": call["id"]} for call in calls]
        answer = {"role": "assistant", "content": draw(words), **({"loss_weight": 0.0} if draw(st.booleans()) else {})}
        messages.append(answer)
    return messages


@given(chats())
def test_messages_are_the_same_behind_a_trajectory(messages: list[Line]) -> None:
    steps = [{"step_id": number, **each} for number, each in enumerate(steps_of(messages), 1)]
    row = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": steps}
    sample = read(json.loads(json.dumps(row)))
    assert written(sample.turns, "messages", {}, "test") == messages
    atif = pytest.importorskip("atif", reason="the models of ATIF, of the extra test, validate a trajectory")
    atif.Trajectory.model_validate(row)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "4"},
        {"role": "user", "content": "Hi.", "name": "ann"},
        {"role": "assistant", "content": "Hi.", "loss_weight": 0.5},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi.", "loss_weight": 0.0}]},
        {"role": "critic", "content": "Hm."},
    ],
)
def test_what_steps_have_no_place_for(message: Line) -> None:
    with pytest.raises(ConfigError, match="no place for"):
        steps_of([{"role": "user", "content": "Hi."}, message])


def _faults(workspace: Workspace, export: Published) -> list[str]:
    checks = checks_of(export.manifest.asset, workspace)
    return [check.name for check in checks if not run_check(check, workspace, export).passed]


def test_an_export_is_what_the_models_of_atif_and_our_own_schema_read(tmp_path: Path) -> None:
    workspace, published = stored(tmp_path, [called(number) for number in range(3)], "atif")
    assert failing(workspace, published) == []
    export = make(workspace, next(asset for name, asset in assets_of(workspace).items() if "traces" in name), "traces")
    assert _faults(workspace, export) == []
    atif = pytest.importorskip("atif", reason="the models of ATIF, of the extra test, validate a trajectory")
    for number, path in enumerate(sorted(export.directory.rglob("0*.json"))):
        found = atif.Trajectory.model_validate_json(path.read_text("utf-8"))
        assert found.agent.tool_definitions == [WEATHER] and [each.source for each in found.steps].count("agent") == 5
        again = read(json.loads(path.read_text("utf-8")))
        assert [(turn.role, turn.text) for turn in again.turns] == [(turn.role, turn.text) for turn in read(called(number)).turns]
    spoils: list[Callable[[Line], Any]] = [
        lambda row: row["steps"].pop(0),
        lambda row: row["steps"][1].update(message="I do not."),
        lambda row: row["steps"][1]["observation"]["results"].reverse(),
        lambda row: row["steps"][2].pop("is_copied_context"),
        lambda row: row["agent"].pop("tool_definitions"),
        lambda row: row["steps"][1]["tool_calls"][0]["arguments"].update(city="Bergen"),
    ]
    path = min(export.directory.rglob("0*.json"))
    whole = path.read_text("utf-8")
    for spoil in spoils:
        spoil(row := json.loads(whole))
        path.write_text(json.dumps(row), "utf-8")
        assert _faults(workspace, export) == ["file_hashes", "readable"], row
