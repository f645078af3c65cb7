"""One domain's change builds the stores of that domain and what merges them; the files of all others stay, to the inode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from prep_assets.engine import build
from prep_assets.engine.execute import stores_of
from prep_assets.errors import ConfigError
from prep_assets.graph.graph import EVERY, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.lines import open_lines
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

ROWS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "pretrain": ("pretrain", "text", {"text": "Words number {}."}),
    "sft": ("sft", "alpaca", {"instruction": "Say {}.", "output": "It is {}."}),
    "preference": ("preference", "preference", {"prompt": "Which is {}?", "chosen": "This, {}.", "rejected": "None."}),
    "rl": ("rl", "rl_prompt", {"prompt": "What is {} + 0?", "gold": "{}"}),
    "groups": ("rl", "group", {"prompt": "What is {}?", "responses": ["{}", "No."], "rewards": [1, 0]}),
}


def rows(kind: str, first: int, count: int) -> list[Any]:
    return [json.loads(json.dumps(ROWS[kind][2]).replace("{}", str(first + number))) for number in range(count)]


def made(folder: Path, kind: str) -> Workspace:
    family, schema, _ = ROWS[kind]
    files = {name: jsonl(folder / f"{name}.jsonl", rows(kind, 100 * at, 12)) for at, name in enumerate("abc")}
    options: dict[str, Any] = {"arithmetic": {"n": 5}} if family == "rl" else {"packing": {"row_len": 64}} if family == "sft" else {}
    return workspace_in(folder, minimal(family, {name: domain(file, schema) for name, file in files.items()}, **options))


def inodes(workspace: Workspace) -> dict[str, dict[tuple[str, str], set[int]]]:
    """Of each store that is current, by partition: the inodes of its files."""
    found: dict[str, dict[tuple[str, str], set[int]]] = {}
    for asset in assets_of(workspace).values():
        for partition in asset.partitions(workspace):
            store = workspace.published(asset.name, partition)
            assert store is not None
            files = {path.stat().st_ino for path in store.directory.rglob("*") if path.is_file()}
            found.setdefault(partition, {})[asset.name, partition] = files
    return found


def reads_files(name: str) -> bool:
    """Whether an asset is made from source files, through whatever others."""
    return name.endswith("_raw") or any(map(reads_files, EVERY[name].upstream))


@pytest.mark.parametrize("kind", ROWS)
def test_other_domains_stay_as_they_are(tmp_path: Path, kind: str) -> None:
    workspace, every = made(tmp_path, kind), list(assets_of(made(tmp_path, kind)))
    build(workspace, *every)
    before = inodes(workspace)
    jsonl(tmp_path / "b.jsonl", rows(kind, 100, 13))
    build(Workspace(workspace.configs, workspace.stores), *every)
    after = inodes(workspace)
    assert [after[name] for name in ("a", "c")] == [before[name] for name in ("a", "c")]
    assert set(before["b"]) == set(after["b"]) and all(not before["b"][store] & after["b"][store] for store in before["b"])
    for (name, _), files in before.get("", {}).items():
        assert bool(files & after[""][name, ""]) == (name in UNTOUCHED.get(kind, ()) or not reads_files(name))


UNTOUCHED = {"groups": ("rl_prompts", "rl_tokens")}
"""Merged stores that none of these domains is in."""


def test_a_domain_of_a_merged_asset_is_its_store_by_domain(tmp_path: Path) -> None:
    workspace = made(tmp_path, "preference")
    [built] = build(workspace, "preferences", partition="b")
    assert (built.asset, built.partition) == ("preferences_by_domain", "b") and workspace.published("preferences") is None
    assert workspace.published("preferences_by_domain", "a") is None
    with pytest.raises(ConfigError, match=r"preferences has no partition 'd'\. There are: a, b, c"):
        stores_of(workspace, ["preferences"], "d")


RICH = {
    "prompt": [{"role": "user", "content": "Call it."}],
    "chosen": [{"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}],
    "rejected": [{"role": "assistant", "content": "No."}],
}


def test_strings_become_messages_where_another_domain_has_messages(tmp_path: Path) -> None:
    """As one domain of all rows gives them."""
    plain = rows("preference", 0, 6)
    files = {"a": plain, "b": [RICH]}
    options = {"test_fraction": 0.3, "template": "qwen3"}
    several = {name: domain(jsonl(tmp_path / f"{name}.jsonl", content), "preference") for name, content in files.items()}
    whole = {"ab": domain(jsonl(tmp_path / "ab.jsonl", [*plain, RICH]), "preference")}
    found = []
    for number, domains in enumerate((several, whole)):
        workspace = workspace_in(tmp_path / str(number), minimal("preference", domains, **options))
        [pairs, tokens] = build(workspace, "preferences", "preference_tokens")
        files_of = [(pairs.published.directory / f"{name}.jsonl").read_bytes() for name in ("preferences", "preferences_test")]
        found.append((files_of, [(tokens.published.directory / f"{side}.h5").read_bytes() for side in ("chosen", "rejected")]))
    assert found[0] == found[1]
    assert all(isinstance(row["prompt"], list) for row in open_lines(pairs.published.directory, "preferences"))


def test_what_no_message_can_say_beside_messages_stops(tmp_path: Path) -> None:
    text = domain(jsonl(tmp_path / "a.jsonl", rows("preference", 0, 3)), "preference", options={"template": False})
    rich = domain(jsonl(tmp_path / "b.jsonl", [RICH]), "preference")
    workspace = workspace_in(tmp_path, minimal("preference", {"a": text, "b": rich}))
    with pytest.raises(ConfigError, match="preferences: messages are in b, and prompts and completions that no message can say in a"):
        build(workspace, "preferences")
