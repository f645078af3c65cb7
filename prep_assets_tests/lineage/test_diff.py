"""Two versions of a store: what is in both, in one, and changed, against a count of the source rows themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.assets.graph import asset_named, with_parts
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.lineage.contents import contents
from prep_assets.lineage.difference import Difference, diff
from prep_assets.stores.packed import open_packed
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.assets.workspaces import domain, jsonl, minimal
from prep_assets_tests.lineage.conftest import Command, built_in


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


OLD = [chat(f"Question {number}?", f"Answer {number}.") for number in range(8)]
# one in front, one gone, one with another answer: the rows of all others move
NEW = [chat("A new one?", "Yes."), *OLD[:3], *OLD[4:6], chat("Question 6?", "Another answer."), OLD[7]]


def two_versions(folder: Path, asset: str = "sft_packed", **packing: Any) -> tuple[Workspace, Difference]:
    options = {"packing": {"strategy": "concat", "row_len": 40, "tail": "pad", **packing}}
    for rows in (OLD, NEW):
        folder.mkdir(exist_ok=True)
        workspace = built_in(folder / "w", minimal("sft", {"own": domain(jsonl(folder / "own.jsonl", rows), "messages")}, **options))
    return workspace, diff(workspace, asset, partition="own" if asset == "sft_tokens" else "")


@pytest.mark.parametrize("asset", ["sft_tokens", "sft_packed"])
def test_records_are_matched_by_what_they_hold(tmp_path: Path, asset: str) -> None:
    _, found = two_versions(tmp_path, asset)
    # `own.jsonl:6` is Question 6 in both, with another answer in the later one; the others are told apart by content alone
    assert (found.same, found.came, found.went, found.changed) == (6, 1, 1, 1)
    assert [each.key[2] for each in found.examples] == ["own.jsonl:6", "own.jsonl:0", "own.jsonl:3"]
    first = found.examples[0]
    assert first.before is not None
    assert first.after is not None
    assert not np.array_equal(first.before.ids, first.after.ids)
    assert found.examples[1].before is None
    assert found.examples[2].after is None


def test_amounts_are_those_of_the_stores(tmp_path: Path) -> None:
    workspace, found = two_versions(tmp_path, "sft_tokens")
    before, after = found.amounts["own"]
    for amount, published in ((before, found.before), (after, found.after)):
        counts = published.manifest.counts
        assert (amount.records, amount.tokens, amount.trained) == (counts["kept"], counts["tokens"], counts["trained_tokens"])
    assert workspace.published("sft_tokens", "own") == found.after


def test_records_in_pieces_are_put_together(tmp_path: Path) -> None:
    """Rows shorter than a record cut it; with epochs it is there several times, cut at other places."""
    workspace, found = two_versions(tmp_path, row_len=16, epochs={"own": 2})
    published = workspace.published("sft_packed")
    assert published is not None
    tokens = workspace.published("sft_tokens", "own")
    assert tokens is not None
    store = open_tokens(tokens.directory, "train")
    whole = [store.record(number, "tokens").tolist() for number in range(len(store))]
    held = [each.ids.tolist() for each in contents(workspace, published)]
    cut = open_packed(published.directory, "sft_packed").documents["start"]
    assert (np.asarray(cut) > 0).any()
    left_out = published.manifest.counts["tokens_left_out"] + published.manifest.counts["tokens_in_untrained_rows"]
    assert sum(map(len, held)) == 2 * sum(map(len, whole)) - left_out
    assert all(sum(each == one for each in held) <= 2 for one in whole)
    assert sum(each in whole for each in held) >= 2 * len(whole) - 4
    assert found.amounts["own"][1].tokens == published.manifest.counts["tokens"]


def test_a_draft_is_what_would_come(mine: Workspace, run: Command) -> None:
    asset = run(mine, "build", "sft_tokens", "-p", "own", "--set", "train_on_eos=none")
    assert asset.exit_code == 0, asset.output
    found = diff(Workspace(mine.configs, mine.stores), "sft_tokens", "draft", partition="own")
    before, after = found.amounts["own"]
    assert found.recipe == ("train_on_eos",)
    assert after.trained < before.trained
    assert found.changed == before.records
    said = json.loads(run(mine, "diff", "sft_tokens", "draft", "-p", "own", "--json").stdout)
    assert said["records"] == {"same": 0, "in": 0, "out": 0, "changed": before.records}
    shown = run(mine, "diff", "sft_tokens", "draft", "-p", "own", "-n", 1)
    assert "made otherwise: train_on_eos" in shown.output
    assert "⟦" in shown.output


@pytest.mark.parametrize(
    "asset",
    ["pretrain_tokens", *with_parts("preferences", "preference_tokens", "rl_prompts", "rl_tokens", "rl_groups"), "arithmetic_tokens"],
)
def test_every_store_can_be_read_for_comparison(made: Workspace, asset: str) -> None:
    published = made.published(asset, asset_named(asset, made).partitions(made)[0])
    assert published is not None
    held = list(contents(made, published))
    counts = published.manifest.counts
    assert len(held) == (2 * counts["kept"] if asset.startswith("preference_tokens") else counts["kept"])
    if "tokens" in counts:
        assert sum(len(each.ids) for each in held) == counts["tokens"]
    assert len({(each.stream, each.domain, each.id) for each in held}) == len(held)


def test_what_cannot_be_compared_is_said(made: Workspace) -> None:
    with pytest.raises(ConfigError, match="has one version only"):
        diff(made, "sft_packed")
    with pytest.raises(ConfigError, match="sft_packed has no draft"):
        diff(made, "sft_packed", "draft")
    with pytest.raises(ConfigError, match="no version 'ffffnothing'"):
        diff(made, "sft_packed", "ffffnothing")
    published = made.published("sft_export_trl")
    assert published is not None
    with pytest.raises(ConfigError, match="compare sft_packed, which it is made from"):
        list(contents(made, published))
