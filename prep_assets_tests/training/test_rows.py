"""Preference pairs and RL prompts as data sets, beside what train-llm-from-scratch's iterators give."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from prep_assets.errors import StoreError
from prep_assets.extensions.rl.config import Rl
from prep_assets.pipeline.workspace import Workspace
from prep_assets.training import PadPrompts, PromptDataset, RowDataset
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

PAIRS = [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(6)]
QUESTIONS = [{"prompt": "What is " + "one and " * n + "one?", "gold": str(n + 1)} for n in range(5)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("rows")
    families = {
        **minimal("preference", {"a": domain(jsonl(folder / "pairs.jsonl", PAIRS), "preference")}, test_fraction=0.0),
        **minimal("rl", {"a": domain(jsonl(folder / "rl.jsonl", QUESTIONS), "rl_prompt")}, test_fraction=0.0, arithmetic={"n": 3}),
    }
    made = workspace_in(folder / "here", families)
    for asset, partition in (
        ("preference_raw", "a"),
        ("preferences", ""),
        ("rl_raw", "a"),
        ("rl_prompts", ""),
        ("arithmetic_prompts", ""),
        ("rl_tokens", ""),
    ):
        build(made, asset, partition)
    return made


def test_pairs(workspace: Workspace) -> None:
    dataset = RowDataset(workspace.stores / "preferences")
    published = workspace.built("preferences")
    lines = (published.directory / "preferences.jsonl").read_text("utf-8").splitlines()
    assert [dataset[i] for i in range(len(dataset))] == list(map(json.loads, lines))
    assert dataset[-1] == json.loads(lines[-1])
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def test_prompts_have_the_ids_and_the_gold_of_their_row(workspace: Workspace) -> None:
    dataset = PromptDataset(workspace.stores / "rl_tokens", workspace.stores / "rl_prompts")
    assert len(dataset) == len(QUESTIONS)
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    for item in (dataset[i] for i in range(len(dataset))):
        shown = vocabulary.backend.decode(item["input_ids"].tolist(), skip_special_tokens=False)
        assert item["prompt"] in shown and float(item["prompt"].count("one")) == item["gold"]
    assert {dataset[i]["prompt"] for i in range(len(dataset))} == {row["prompt"] for row in QUESTIONS}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_padded_on_the_left(workspace: Workspace, workers: int) -> None:
    dataset = PromptDataset(workspace.stores / "rl_tokens", workspace.stores / "rl_prompts")
    loader = DataLoader(dataset, batch_size=len(dataset), collate_fn=PadPrompts(pad_id=7), num_workers=workers)
    (batch,) = loader
    for i, (row, mask) in enumerate(zip(batch["input_ids"], batch["attention_mask"], strict=True)):
        ids = dataset[i]["input_ids"]
        assert row[-len(ids) :].equal(ids) and row[: -len(ids)].eq(7).all()
        assert mask.tolist() == [0] * (len(row) - len(ids)) + [1] * len(ids)
        assert batch["gold"][i] == dataset[i]["gold"]
    assert batch["input_ids"].dtype == torch.int64


def test_a_field_that_only_some_rows_have() -> None:
    batch = PadPrompts()([{"input_ids": torch.tensor([1]), "gold": 1.0}, {"input_ids": torch.tensor([2, 3]), "level": "easy"}])
    assert batch["gold"] == [1.0, None] and batch["level"] == [None, "easy"]


def test_it_is_sent_to_another_process(workspace: Workspace) -> None:
    dataset = PromptDataset(workspace.stores / "rl_tokens", workspace.stores / "rl_prompts")
    assert pickle.loads(pickle.dumps(dataset))[2]["prompt"] == dataset[2]["prompt"]


def test_tokens_of_other_prompts_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    """Ids of one file beside the golds of another: every reward would be wrong."""
    other = workspace_in(tmp_path / "other", minimal("rl", {"a": domain(jsonl(tmp_path / "o.jsonl", QUESTIONS[::-1]), "rl_prompt")}))
    for asset, partition in (("rl_raw", "a"), ("rl_prompts", "")):
        build(other, asset, partition)
    with pytest.raises(StoreError, match=r"was not made from the prompts in .* Build rl_tokens again"):
        PromptDataset(workspace.stores / "rl_tokens", other.stores / "rl_prompts")


@pytest.mark.parametrize(
    ("name", "says"), [("preference", "no file of lines 'preference'; did you mean 'preferences'"), ("preferences_test", "has no row")]
)
def test_a_file_that_is_not_there_or_empty(workspace: Workspace, name: str, says: str) -> None:
    """An iterator over nothing would wait for ever; this one is not made."""
    with pytest.raises(StoreError, match=says):
        RowDataset(workspace.stores / "preferences", name)
