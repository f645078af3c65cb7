"""Rewards of steps: from each published form to the token with which a step ends, proven, exported, and trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.rl.mutations import STEP_MUTATIONS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.schemas.registry import schemas
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, failing, jsonl, make, refusals, resealed, verdicts, workspace_in
from prep_assets_tests.stored import StoredGroups

BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
STEPS = [("First, 3 * 4 is 12.", 1.0), ("Then 2 + 12 is 14.", 0.0), ("So it is 14, and no more.", -1.0)]
ROW = {"prompt": "What is 2 + 3 * 4?", "completions": [text for text, _ in STEPS], "labels": [label for _, label in STEPS]}


def built(
    folder: Path, rows: list[dict[str, Any]], schema: str = "stepwise", template: str = "tokenizer", **options: Any
) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    domains = {"solutions": domain(jsonl(folder / "rows.jsonl", rows), schema)}
    family = {"tokenizer": TOKENIZER, "template": template, "domains": domains, "output": {"storage_format": "bin"}, **options}
    workspace = workspace_in(folder, {"rl": family})
    return workspace, build(workspace, "rl_groups_by_domain", "solutions")


def judged(published: Published, record: int = 0) -> list[tuple[str, float]]:
    """The text between the ends of steps of a response, and the reward at each end, by the `tokenizers` library."""
    responses = StoredGroups(published.directory).responses
    ids, ends, rewards = (responses.record(record, key) for key in ("tokens", "step_ends", "step_rewards"))
    places = np.flatnonzero(ends).tolist()
    starts = [0, *(place + 1 for place in places[:-1])]
    return [
        (BACKEND.decode(ids[start : place + 1].tolist(), skip_special_tokens=False), float(rewards[place]))
        for start, place in zip(starts, places, strict=True)
    ]


@pytest.mark.parametrize("template", ["tokenizer", "chatml", "qwen", "qwen3"])
def test_each_reward_stands_where_its_step_ends(tmp_path: Path, template: str) -> None:
    workspace, published = built(tmp_path, [ROW, {**ROW, "labels": [True, False, True]}], template=template)
    found = judged(published)
    assert [text.split("</think>")[-1].strip() for text, _ in found] == [text for text, _ in STEPS]
    assert [reward for _, reward in found] == [1.0, 0.0, -1.0]
    assert [reward for _, reward in judged(published, 1)] == [1.0, 0.0, 1.0]
    store = StoredGroups(published.directory)
    assert store.rewards.columns["rewards"].values[:].tolist() == [-1.0, 1.0], "that of the last step"
    rewards, ends = (np.asarray(store.responses.columns[key].values) for key in ("step_rewards", "step_ends"))
    assert not rewards[ends == 0].any() and ends.sum() == 6
    assert "6 rewards of 2 responses stand where their steps end" in verdicts(workspace, published)["step_rewards"].summary


@pytest.mark.parametrize("name", [name for name, each in schemas().items() if each.further == "steps"])
def test_the_published_forms(tmp_path: Path, name: str) -> None:
    example = schemas()[name].example
    _, published = built(tmp_path, [example], name)
    rewards = {"stepwise": [1.0, 0.0], "math_shepherd": [1.0, 0.0], "prm800k": [1.0, -1.0]}[name]
    found = judged(published)
    assert [reward for _, reward in found] == rewards
    assert found[0][0].strip().endswith("3 * 4 is 12.") and "15" in found[1][0]


def test_one_file_of_scored_responses_feeds_three_families(tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {n}?", "responses": ["no", f"It is {n}.", f"Maybe {n}"], "rewards": [-1.0, 2.0, 0.5]} for n in range(9)]
    rows += [{"prompt": "Equal?", "responses": ["a", "b"], "rewards": [1, 1]}]
    source = {"scored": domain(jsonl(tmp_path / "rows.jsonl", rows), "group")}
    base = {"tokenizer": TOKENIZER, "domains": source}
    families = {
        "sft": {**base, "mask": {"assistant": "train"}},
        "preference": {**base, "test_fraction": 0.0},
        "rl": {**base, "test_fraction": 0.0},
    }
    workspace = workspace_in(tmp_path, families)
    pairs = build(workspace, "preferences_by_domain", "scored")
    assert [each.reason for each in refusals(pairs)] == ["equal_rewards"]
    [line, *_] = (pairs.directory / "preferences.jsonl").read_text("utf-8").splitlines()
    assert {key: json.loads(line)[key] for key in ("chosen", "rejected")} == {"chosen": "It is 0.", "rejected": "no"}
    assert build(workspace, "sft_tokens", "scored").manifest.counts["kept"] == 10
    assert build(workspace, "rl_groups_by_domain", "scored").manifest.counts["responses"] == 29


PRM = schemas()["prm800k"].example


def steps_of(*changes: dict[str, Any]) -> dict[str, Any]:
    steps = [{**step, **change} for step, change in zip(PRM["label"]["steps"], changes, strict=True)]
    return {**PRM, "label": {**PRM["label"], "steps": steps}}


UNJUDGED: list[tuple[str, dict[str, Any], str]] = [
    ("stepwise", {**ROW, "labels": [1, 0]}, "schema/length_mismatch"),
    ("stepwise", {**ROW, "completions": [], "labels": []}, "schema/length_mismatch"),
    ("stepwise", {**ROW, "completions": ["a", " ", "b"]}, "schema/empty_answer"),
    ("stepwise", {**ROW, "labels": ["good", 0, 1]}, "schema/wrong_type"),
    ("math_shepherd", {"input": "Q Step 1: a", "label": "Q Step 1: a +"}, "schema/bad_steps"),
    ("math_shepherd", {"input": "Q Step 1: a ки", "label": "Q Step 1: b +"}, "schema/bad_steps"),
    ("math_shepherd", {"input": "Q Step 1: a ки", "label": "Q Step 1: a ки"}, "schema/bad_steps"),
    ("math_shepherd", {"input": "Q a ки", "label": "Q a +"}, "schema/bad_steps"),
    ("prm800k", steps_of({"chosen_completion": 3}, {}), "schema/length_mismatch"),
    ("prm800k", steps_of({"chosen_completion": None, "human_completion": {"text": "x", "rating": None}}, {}), "schema/unrated_step"),
    ("prm800k", steps_of({}, {"completions": [{"text": "x", "rating": None}]}), "schema/unrated_step"),
]


def test_completions_that_were_not_chosen_are_left_out(tmp_path: Path) -> None:
    """As most rows of PRM800K have them, and the answer of a person beside them."""
    others = [{"text": "3 * 4 is 12.", "rating": 1, "flagged": False}, {"text": "3 * 4 is 7.", "rating": -1, "flagged": False}]
    human = {"text": "Twelve.", "rating": None, "source": "human", "flagged": False, "corrected_rating": None}
    _, published = built(tmp_path, [steps_of({"completions": others, "human_completion": human}, {}), PRM], "prm800k")
    assert published.manifest.counts["kept"] == 2 and judged(published) == judged(published, 1)


@pytest.mark.parametrize(("schema", "good"), [("stepwise", ROW), ("math_shepherd", schemas()["math_shepherd"].example), ("prm800k", PRM)])
def test_what_cannot_be_judged_is_refused(tmp_path: Path, schema: str, good: dict[str, Any]) -> None:
    bad = [(row, reason) for of, row, reason in UNJUDGED if of == schema]
    _, published = built(tmp_path, [*(row for row, _ in bad), good], schema)
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == [reason for _, reason in bad]


def test_a_step_that_ends_inside_a_token_is_refused(tmp_path: Path) -> None:
    rows = [{**ROW, "completions": ["It is a -", "- - number", "14"]}, {**ROW, "completions": ["one two", "three", "four"]}]
    source = {**domain(jsonl(tmp_path / "rows.jsonl", rows), "stepwise"), "options": {"separator": "-"}}
    workspace = workspace_in(tmp_path, {"rl": {"tokenizer": TOKENIZER, "domains": {"solutions": source}}})
    assert [each.reason for each in refusals(build(workspace, "rl_groups_by_domain", "solutions"))] == ["mask_border_inside_token"]


def test_an_empty_separator_is_an_error() -> None:
    for name in ("stepwise", "prm800k"):
        with pytest.raises(ConfigError, match="separator is empty"):
            schemas()[name].factory(separator="")


@pytest.mark.parametrize("key", ["step_ends", "step_rewards"])
def test_what_was_moved_is_found(tmp_path: Path, key: str) -> None:
    workspace, published = built(tmp_path, [ROW, ROW])
    [file] = published.directory.rglob(f"{key}*.bin")
    values = np.fromfile(file, np.uint8 if key == "step_ends" else np.float32)
    np.roll(values, 1).tofile(file)
    assert "step_rewards" in failing(workspace, resealed(published))


def test_every_corruption_is_caught(tmp_path: Path) -> None:
    workspace, published = built(tmp_path, [ROW] * 3)
    trials = [trial for trial in selftest(workspace, published) if trial.check == "step_rewards" and trial.mutation]
    assert {trial.mutation for trial in trials} == {mutation.name for mutation in STEP_MUTATIONS}
    assert [trial for trial in trials if not trial.caught or trial.tried != trial.caught] == []


def test_all_domains_have_steps_or_none(tmp_path: Path) -> None:
    rows = jsonl(tmp_path / "g.jsonl", [{"prompt": "Q", "responses": ["a"], "rewards": [1]}])
    domains = {"a": domain(jsonl(tmp_path / "rows.jsonl", [ROW]), "stepwise"), "b": domain(rows, "group")}
    with pytest.raises(ConfigError, match="domains b have no steps, others have"):
        build(workspace_in(tmp_path, {"rl": {"tokenizer": TOKENIZER, "domains": domains}}), "rl_groups")


def test_exports_carry_them_or_refuse(tmp_path: Path) -> None:
    exports = {name: {"from": "rl_groups", "to": name} for name in ("hf_arrow", "astrai")}
    workspace, _ = built(tmp_path, [ROW, {**ROW, "prompt": "Again?"}], exports=exports)
    build(workspace, "rl_groups")
    arrow, astrai = (next(each for name, each in assets_of(workspace).items() if name.endswith(form)) for form in ("hf_arrow", "astrai"))
    (file,) = make(workspace, arrow).directory.rglob("*.arrow")
    table = pa.ipc.open_stream(file.read_bytes()).read_all()
    assert [sum(ends) for [ends] in table["step_ends"].to_pylist()] == [3, 3]
    assert [reward for [rewards] in table["step_rewards"].to_pylist() for reward in rewards if reward] == [1.0, -1.0] * 2
    with pytest.raises(PrepAssetsError, match="no place for step_ends, step_rewards"):
        make(workspace, astrai)


def test_ten_steps_of_a_reward_model(tmp_path: Path) -> None:
    """A classifier of tokens in plain torch and transformers, on the export: its loss is over the ends of steps alone, and falls."""
    import torch
    import transformers

    workspace, _ = built(
        tmp_path,
        [{**ROW, "labels": [True, False, True]}, {**ROW, "labels": [True, True, False]}],
        exports={"t": {"from": "rl_groups", "to": "hf_arrow"}},
    )
    build(workspace, "rl_groups")
    [export] = [each for name, each in assets_of(workspace).items() if name.endswith("_t") or "export" in name]
    (file,) = make(workspace, export).directory.rglob("*.arrow")
    rows = pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 4096}
    model = transformers.LlamaForTokenClassification(transformers.LlamaConfig(**sizes, num_labels=2))
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), list[float]()
    for step in range(10):
        row = rows[step % 2]
        ids = torch.tensor([[*row["prompt_ids"], *row["responses"][0]]])
        judged_at = zip(row["step_ends"][0], row["step_rewards"][0], strict=True)
        labels = torch.tensor([[*[-100] * len(row["prompt_ids"]), *(int(reward) if end else -100 for end, reward in judged_at)]])
        assert (labels >= 0).sum() == 3
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-2:]) < np.mean(losses[:2])
