"""Two versions of a store: what is in both, in one, and changed, against a count of the source rows themselves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from prep_assets.engine.execute import build
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.changes.changes import STALE, Difference, Effect, diff, impact
from prep_assets.extensions.explain.where import records as records_of
from prep_assets.graph.graph import EVERY, asset_named, assets_of, upstream_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import build_key
from prep_assets.stores.table import open_stream
from prep_assets_tests.explain.conftest import Command, entry
from prep_assets_tests.explain.made import chat, one, small
from prep_assets_tests.graph.workspaces import all_unchecked, domain, jsonl, minimal, tree, workspace_in

OLD = [chat(f"Question {number}?", f"Answer {number}.") for number in range(8)]
# one in front, one gone, one with another answer: the rows of all others move
NEW = [chat("A new one?", "Yes."), *OLD[:3], *OLD[4:6], chat("Question 6?", "Another answer."), OLD[7]]


def two_versions(folder: Path, asset: str = "sft_packed", **packing: Any) -> tuple[Workspace, Difference]:
    options = {"packing": {"strategy": "concat", "row_len": 40, "tail": "pad", **packing}}
    for rows in (OLD, NEW):
        folder.mkdir(exist_ok=True)
        workspace = all_unchecked(
            workspace_in(folder / "w", minimal("sft", {"own": domain(jsonl(folder / "own.jsonl", rows), "messages")}, **options))
        )
    return workspace, diff(workspace, asset, partition="own" if asset == "sft_tokens" else "")


@pytest.mark.parametrize("asset", ["sft_tokens", "sft_packed"])
def test_records_are_matched_by_what_they_hold(tmp_path: Path, asset: str) -> None:
    _, found = two_versions(tmp_path, asset)
    # `own.jsonl:7` is Question 6 in both, with another answer in the later one; the others are told apart by content alone
    assert (found.same, found.came, found.went, found.changed) == (6, 1, 1, 1)
    assert [each.key[2] for each in found.examples] == ["own.jsonl:7", "own.jsonl:1", "own.jsonl:4"]
    first = found.examples[0]
    assert first.before is not None
    assert first.after is not None
    assert not np.array_equal(first.before.ids, first.after.ids)
    assert found.examples[1].before is None
    assert found.examples[2].after is None


def test_records_in_pieces_are_put_together(tmp_path: Path) -> None:
    """Rows shorter than a record cut it; with epochs it is there several times, cut at other places."""
    workspace, found = two_versions(tmp_path, row_len=16, epochs={"own": 2})
    published = workspace.built("sft_packed")
    tokens = workspace.built("sft_tokens", "own")
    store = open_stream(tokens.directory, "train")
    whole = [store.record(number, "tokens").tolist() for number in range(len(store))]
    held = [each.ids.tolist() for each in records_of(workspace, published)]
    cut = open_stream(published.directory, "sft_packed").pieces.fields["start"]
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
    assert after.trained_tokens < before.trained_tokens
    assert found.changed == before.records
    said = json.loads(run(mine, "diff", "sft_tokens", "draft", "-p", "own", "--json").stdout)
    assert said["records"] == {"same": 0, "in": 0, "out": 0, "changed": before.records}
    shown = run(mine, "diff", "sft_tokens", "draft", "-p", "own", "-n", 1)
    assert "made otherwise: train_on_eos" in shown.output
    assert "⟦" in shown.output


@pytest.mark.parametrize(
    "asset",
    [
        name
        for name, asset in EVERY.items()
        if asset.streams and asset.family in ("pretrain", "preference", "rl") and name != "arithmetic_prompts"
    ],
)
def test_every_store_can_be_read_for_comparison(made: Workspace, asset: str) -> None:
    published = made.published(asset, asset_named(asset, made).partitions(made)[0])
    assert published is not None
    held = list(records_of(made, published))
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
    published = made.built("sft_export_trl")
    with pytest.raises(ConfigError, match="compare sft_packed, which it is made from"):
        list(records_of(made, published))


# -- what `impact` says of a change is what a build then does; and it writes nothing -----------------------------------------------------


Edit = tuple[str, str, Any]
"""Family, dotted key, and its new value; `None` takes the key away."""
DELETE = object()


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("impact")
    return all_unchecked(workspace_in(folder, small(folder / "data")))


EDITS: list[tuple[Edit, set[str]]] = [
    (("sft", "template", "plain"), {"sft_template", "sft_tokens[one]", "sft_tokens[two]", "sft_tokens[three]", "sft_packed"}),
    (("sft", "template", "chatml"), {"sft_template"}),
    (("sft", "packing.row_len", 64), {"sft_packed"}),
    (("sft", "packing.weights", {"one": 2.0, "two": 1.0, "three": 1.0}), {"sft_packed"}),
    (("sft", "output.storage_format", "bin"), {"sft_packed"}),
    (("sft", "train_on_eos", "none"), {"sft_tokens[one]", "sft_tokens[two]", "sft_tokens[three]", "sft_packed"}),
    (("sft", "train_thinking", False), set()),
    (("sft", "preprocessing.max_seq_len", 18), set()),
    (("sft", "preprocessing.deduplicate", False), set()),
    (("sft", "domains.one.max_items", 3), {"sft_tokens[one]", "sft_packed", "sft_export_trl"}),
    (("sft", "domains.two", DELETE), {"sft_packed"}),
    (("sft", "exports.tlfs.options", {"name": "mine"}), {"sft_export_tlfs"}),
    (("sft", "exports.more", entry("sft_tokens", "hf_arrow", layout="open_instruct")), {"sft_export_more[one]"}),
    (("sft", "test_fraction", 0.3), set()),
    (("sft", "expand", "turns"), set()),
    (("pretrain", "output.storage_format", "bin"), {"pretrain_tokens[docs]"}),
    (("pretrain", "preprocessing.min_chars", 5), set()),
    (("preference", "shuffle", False), {"preferences", "preference_tokens"}),
    (("preference", "form", "messages"), {"preferences"}),
    (("preference", "template", "plain"), {"preference_tokens"}),
    (("rl", "arithmetic.n", 6), {"arithmetic_prompts", "rl_tokens"}),
    (("rl", "domains.sums.max_items", 2), {"rl_prompts", "rl_tokens"}),
]
"""Edits, and stores that they certainly change."""


def edit(workspace: Workspace, folder: Path, change: Edit) -> Path:
    """A folder of configurations with one key changed."""
    shutil.copytree(workspace.configs, folder)
    family, key, value = change
    path = folder / f"{family}.yaml"
    loaded: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    at, *rest = key.split(".")
    inner = loaded
    while rest:
        inner, (at, *rest) = inner.setdefault(at, {}), rest
    if value is DELETE:
        del inner[at]
    else:
        inner[at] = value
    path.write_text(yaml.safe_dump(loaded, sort_keys=False), "utf-8")
    return folder


def rebuild(workspace: Workspace) -> tuple[set[str], set[str], set[str]]:
    """Build what is out of date, as a build does; stores built again, those of them with other content, and those that could not be."""
    again, changed, failed = set(), set(), set()
    for asset in assets_of(workspace).values():
        for partition in asset.partitions(workspace):
            label = workspace.place(asset.name, partition).label
            before = workspace.published(asset.name, partition)
            if any(workspace.place(above.name, key).label in failed for above, key in upstream_of(workspace, asset, partition)):
                failed.add(label)  # the engine does not build what is made from one that failed
                continue
            try:
                if before is not None and before.manifest.config_key == build_key(asset.recipe(workspace, partition)):
                    continue
                after = asset.build(workspace, partition).propose()
            except PrepAssetsError:
                failed.add(label)
                continue
            workspace.place(asset.name, partition).accept(after, {})
            again.add(label)
            if before is None or before.manifest.content_hash != after.manifest.content_hash:
                changed.add(label)
    return again, changed, failed


def by_label(effects: list[Effect], *outcomes: str) -> set[str]:
    return {each.label for each in effects if each.outcome in outcomes}


SOAKED = {
    *("sft.packing.weights", "sft.train_thinking", "sft.preprocessing.deduplicate", "sft.exports.more", "sft.expand", "sft.test_fraction"),
    *("pretrain.preprocessing.min_chars", "preference.shuffle", "rl.arithmetic.n"),
}
"""Edits of a kind that another shows."""


@pytest.mark.parametrize(
    ("change", "certain"),
    [
        pytest.param(edit, certain, id=name, marks=pytest.mark.soak if name in SOAKED else ())
        for edit, certain in EDITS
        for name in (f"{edit[0]}.{edit[1]}",)
    ],
)
def test_what_is_predicted_is_what_a_rebuild_changes(little: Workspace, tmp_path: Path, change: Edit, certain: set[str]) -> None:
    configs = edit(little, tmp_path / "configs", change)
    before = tree(little.stores)
    effects = list(impact(little, Workspace(configs, little.stores)))
    assert tree(little.stores) == before
    shutil.copytree(little.stores, tmp_path / "stores", symlinks=True)
    again, changed, failed = rebuild(Workspace(configs, tmp_path / "stores"))
    assert by_label(effects, *STALE) == again | failed
    assert by_label(effects, "changed", "new") == changed
    assert by_label(effects, "fails", "blocked") == failed
    assert certain <= by_label(effects, "changed", "new", "fails", "blocked") | by_label(effects, "equal")
    assert again | failed | by_label(effects, "removed")


def changing(workspace: Workspace, family: str, options: Mapping[str, Any], **how: Any) -> list[Effect]:
    return list(impact(workspace, workspace.overriding(family, options), **how))


def test_records_tokens_and_refusals_are_counted(little: Workspace) -> None:
    effects = changing(little, "sft", {"preprocessing": {"max_seq_len": 18}}, examples=3)
    found = one(effects, "sft_tokens[one]")
    assert found.difference is not None
    before, after = found.difference.amounts["one"]
    assert before.records - after.records == found.difference.went == len(found.refused) > 0
    assert {each.reason for each in found.refused} == {"too_long"}
    assert len(found.difference.examples) == min(3, found.difference.went)
    back = changing(little, "sft", {"preprocessing": {"deduplicate": False}})
    assert one(back, "sft_tokens[three]").accepted == 1


def test_a_change_that_cannot_be_built_says_so(little: Workspace, run: Command) -> None:
    effects = changing(little, "sft", {"preprocessing": {"max_seq_len": 2}})
    assert one(effects, "sft_tokens[one]").outcome == "fails"
    assert "too_long" in one(effects, "sft_tokens[one]").why
    assert one(effects, "sft_packed").outcome == "blocked"
    said = run(little, "impact", "--set", "sft.preprocessing.max_seq_len=2")
    assert said.exit_code == 1 and "not built" in said.stdout, (
        said.output
    )  # the table had no style for it, and the command ended with a KeyError


def test_held_out_texts_of_another_family_are_upstream(tmp_path: Path) -> None:
    own, bench = (domain(jsonl(tmp_path / f"{name}.jsonl", OLD[:count]), "messages") for name, count in (("own", 8), ("bench", 2)))
    families = {**minimal("sft", {"own": own}, packing={"row_len": 40}), "eval": {"domains": {"bench": bench}, "policy": "report"}}
    workspace = workspace_in(tmp_path / "w", families)
    build(workspace, "sft_packed")
    effects = changing(Workspace(workspace.configs, workspace.stores), "sft", {"packing": {"row_len": 50}})
    assert one(effects, "sft_packed").outcome == "changed"
    labels = [each.label for each in effects]
    assert labels.index("eval_passages") < labels.index("sft_leaks[own]") < labels.index("sft_tokens[own]") < labels.index("sft_packed")
    assert len(labels) == len(set(labels))


def test_long_domains_are_tried_on_a_sample(little: Workspace) -> None:
    effects = changing(little, "sft", {"train_on_eos": "none"}, sample=2, long=0)
    found = one(effects, "sft_tokens[one]")
    assert (found.outcome, found.sample) == ("changed", 2)
    assert found.difference is not None
    assert found.difference.amounts["one"][0].records == 2
    assert one(effects, "sft_packed").outcome == "waits"
    # where the sample stays the same, what is made from it does
    effects = changing(little, "sft", {"train_thinking": True, "train_turns": "last"}, sample=2, long=0)
    assert one(effects, "sft_tokens[one]").outcome == "equal"
    assert one(effects, "sft_packed").outcome == "same"


def test_the_command(little: Workspace, run: Command) -> None:
    result = run(little, "impact", "--set", "sft.packing.row_len=64", "--set", "rl.arithmetic.n=5", "-n", 1)
    assert result.exit_code == 0, result.output
    for words in ("sft_packed", "arithmetic_prompts", "packing.row_len", "nothing was written", "domains left alone: docs, one"):
        assert words in result.output
    said = json.loads(run(little, "impact", "--set", "sft.packing.row_len=64", "--json").stdout)
    assert {each["asset"] for each in said if each["outcome"] == "changed"} >= {"sft_packed", "sft_export_trl"}
    assert run(little, "impact", "--set", "sft.preprocessing.max_seq_len=2").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "what changes?"),
        (("--set", "stf.template=chatml"), "did you mean 'sft'"),
        (("--set", "sft.tmplate=chatml"), "did you mean 'template'"),
        (("--configs", "/nowhere"), "there is no such folder"),
        (("--set", "sft.seed=1", "--full", "--sample", 3), "give one of them"),
    ],
)
def test_mistakes_are_named(little: Workspace, run: Command, words: tuple[object, ...], said: str) -> None:
    result = run(little, "impact", *words)
    assert result.exit_code == 1
    assert said in result.output
