"""What `impact` says of a change is what a build then does; and it writes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.assets.graph import assets_of, upstream_of
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import PrepAssetsError
from prep_assets.lineage.impact import STALE, Effect, impact
from prep_assets.stores.manifest import build_key
from prep_assets_tests.assets.workspaces import domain, jsonl, minimal, tree
from prep_assets_tests.lineage.conftest import Command, built_in, entry
from prep_assets_tests.lineage.test_diff import chat

Edit = tuple[str, str, Any]
"""Family, dotted key, and its new value; `None` takes the key away."""
DELETE = object()


def rows(name: str, count: int) -> list[dict[str, Any]]:
    return [chat(f"{name} {number}?" * (1 + number % 3), f"It is {number}.") for number in range(count)]


def small(folder: Path) -> dict[str, dict[str, Any]]:
    """All four families, with a handful of records each."""
    folder.mkdir(parents=True)
    one, two = (domain(jsonl(folder / f"{name}.jsonl", rows(name, 6)), "messages") for name in ("one", "two"))
    thought = {**chat("Why?", "Because."), "id": 1}
    thought["messages"][1]["reasoning_content"] = "Let me see."
    three = domain(jsonl(folder / "three.jsonl", [thought, chat("Yes?", "Yes."), chat("Yes?", "Yes.")]), "messages")
    pair = [{"prompt": f"P {number}?", "chosen": f"Good {number}.", "rejected": "Bad."} for number in range(6)]
    sums = [{"question": f"{number} + 1?", "answer": f"#### {number + 1}"} for number in range(6)]
    return {
        **minimal("pretrain", {"docs": domain(jsonl(folder / "docs.jsonl", [{"text": f"A text, number {n}."} for n in range(6)]), "text")}),
        **minimal(
            "sft",
            {"one": one, "two": two, "three": three},
            packing={"row_len": 32},
            exports={"trl": entry("sft_packed", "hf_arrow", layout="trl"), "tlfs": entry("sft_packed", "tlfs")},
        ),
        **minimal("preference", {"pairs": domain(jsonl(folder / "pairs.jsonl", pair), "preference")}),
        **minimal("rl", {"sums": domain(jsonl(folder / "sums.jsonl", sums), "gsm8k")}, arithmetic={"n": 4}),
    }


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("impact")
    return built_in(folder, small(folder / "data"))


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


@pytest.mark.parametrize(("change", "certain"), EDITS, ids=[f"{family}.{key}" for (family, key, _), _ in EDITS])
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


def one(effects: list[Effect], label: str) -> Effect:
    return next(each for each in effects if each.label == label)


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


def test_a_change_that_cannot_be_built_says_so(little: Workspace) -> None:
    effects = changing(little, "sft", {"preprocessing": {"max_seq_len": 2}})
    assert one(effects, "sft_tokens[one]").outcome == "fails"
    assert "too_long" in one(effects, "sft_tokens[one]").why
    assert one(effects, "sft_packed").outcome == "blocked"


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
