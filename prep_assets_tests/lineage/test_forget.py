"""A forgotten record is in no current store, by index and by text, and never comes back; what did not hold it keeps its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prep_assets.assets.graph import assets_of
from prep_assets.assets.workspace import Workspace
from prep_assets.config.tombstones import FILE, payload_digest, read_tombstones
from prep_assets.engine import build
from prep_assets.errors import ConfigError
from prep_assets.lineage.forget import forget, needles_of, records_with
from prep_assets.lineage.where import where
from prep_assets_tests.assets.workspaces import domain, jsonl, verdicts
from prep_assets_tests.lineage.conftest import Command, built_in
from prep_assets_tests.lineage.test_diff import chat
from prep_assets_tests.lineage.test_impact import small

SECRET = chat("Who lives at 12 Garden Street?", "Ada Byron lives there.")


@pytest.fixture(scope="session")
def _secret(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("forget")
    configured = small(folder / "data")
    plain = [chat("Who is it?", "It is nobody."), SECRET, chat("And then?", "Nothing more."), SECRET]
    configured["sft"]["domains"]["one"] = domain(jsonl(folder / "data" / "one.jsonl", plain), "messages")
    return built_in(folder, configured)


@pytest.fixture
def workspace(_secret: Workspace, tmp_path: Path) -> Workspace:
    root = _secret.configs.parent
    shutil.copytree(root, tmp_path / "w", symlinks=True)
    for path in (tmp_path / "w" / "configs").iterdir():
        path.write_text(path.read_text("utf-8").replace(str(root / "data"), str(tmp_path / "w" / "data")), "utf-8")
    return Workspace(tmp_path / "w" / "configs", tmp_path / "w" / "stores")


def folders(workspace: Workspace) -> dict[str, tuple[Path, int]]:
    """The current folder of each store, and its inode."""
    every = [(asset.name, each) for asset in assets_of(workspace).values() for each in asset.partitions(workspace)]
    found = {workspace.place(*store).label: workspace.place(*store).current() for store in every}
    return {label: (store.directory, store.directory.stat().st_ino) for label, store in found.items() if store}


def text_of(workspace: Workspace) -> str:
    """Everything that current stores and their quarantines say in plain bytes."""
    current = [directory for directory, _ in folders(workspace).values()]
    beside = [path for directory in current for path in directory.parent.glob(f"{directory.name}.quarantine.jsonl")]
    paths = [*(path for directory in current for path in directory.rglob("*") if path.is_file()), *beside]
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in paths)


def decoded(workspace: Workspace, name: str) -> str:
    from prep_assets.config.models import Sft
    from prep_assets.stores.packed import open_packed

    published = workspace.published(name)
    assert published is not None
    table = open_packed(published.directory, "sft_packed")
    return workspace.vocabulary(workspace.family(Sft)).decode([int(token) for row in table.tokens for token in row])


def test_only_what_held_it_is_built_again(workspace: Workspace) -> None:
    before = folders(workspace)
    assert "Ada Byron" in decoded(workspace, "sft_packed")
    done = forget(workspace, ["one#1"], reason="asked by mail")
    after = folders(Workspace(workspace.configs, workspace.stores))
    assert {label for label in before if before[label] != after[label]} == {
        "sft_tokens[one]",
        "sft_packed",
        "sft_export_trl",
        "sft_export_tlfs",
    }
    assert set(done.held) >= {"sft_tokens[one]", "sft_packed", "sft_export_trl"}
    assert (done.left, done.searched) == ({}, len([label for label in before if label.startswith("sft") and label.count("[") == 0]) + 2)
    again = Workspace(workspace.configs, workspace.stores)
    assert "Ada Byron" not in decoded(again, "sft_packed")
    # the row and its duplicate are refused by name, and what they said is nowhere
    assert "Garden Street" not in text_of(again)
    assert [each.not_here[0].reason for row in (1, 3) for each in where(again, f"one#{row}")] == ["records/forgotten"] * 2
    published = again.published("sft_tokens", "one")
    assert published is not None
    assert published.manifest.counts["refused"] == {"records/forgotten": 2}
    assert all(verdict.passed for verdict in verdicts(again, published).values())


def test_the_tombstone_names_no_content(workspace: Workspace) -> None:
    forget(workspace, ["one#one.jsonl:1"], reason="asked by mail")
    [stone] = read_tombstones(workspace.configs)
    assert (stone.family, stone.domain, stone.record, stone.reason) == ("sft", "one", "one.jsonl:1", "asked by mail")
    assert stone.digest == payload_digest(dict(reversed(SECRET.items())))
    assert "Byron" not in (workspace.configs / FILE).read_text("utf-8")


def test_no_refresh_brings_it_back(workspace: Workspace) -> None:
    forget(workspace, ["one#1"])
    source = workspace.configs.parent / "data" / "one.jsonl"
    # fetched again: at another row, and with its keys in another order
    jsonl(source, [chat("New?", "New."), *[chat(f"{n}?", f"{n}.") for n in range(3)], dict(reversed(SECRET.items()))])
    again = Workspace(workspace.configs, workspace.stores)
    build(again, "sft_export_trl")
    [found] = where(again, "one#4")
    assert found.found == ()
    assert [gone.reason for gone in found.not_here] == ["records/forgotten"]
    assert "Byron" not in decoded(again, "sft_packed")


def test_old_versions_are_named_and_pruned(workspace: Workspace) -> None:
    done = forget(workspace, ["one#1"])
    labels = {each.label for each in done.old}
    assert labels == {"sft_tokens[one]", "sft_packed", "sft_export_trl", "sft_export_tlfs"}


def test_old_versions_are_deleted_where_that_is_asked_for(workspace: Workspace) -> None:
    held = {label: folder for label, (folder, _) in folders(workspace).items()}
    done = forget(workspace, ["one#1"], prune=True)
    assert done.old == ()
    assert set(done.removed) >= {str(held[label]) for label in ("sft_tokens[one]", "sft_packed", "sft_export_trl")}
    assert not any(Path(path).exists() for path in done.removed)


def test_a_draft_that_holds_it_is_named_and_deleted_where_that_is_asked_for(workspace: Workspace) -> None:
    """A pointer led to it, so that no `prune` deleted it."""
    build(workspace.overriding("sft", {"packing": {"row_len": 64}}), "sft_packed")
    place = workspace.place("sft_packed")
    draft = place.draft()
    assert draft is not None
    kept = str(draft.directory)
    del draft
    assert kept in {str(each.published.directory) for each in forget(workspace, ["one#1"]).old}
    done = forget(workspace, ["one#1"], prune=True)
    assert done.old == () and kept in done.removed
    assert place.draft() is None and not Path(kept).exists()


def test_the_same_text_elsewhere_is_found(workspace: Workspace) -> None:
    """Another row that says the same is no duplicate, since it has one more field; so it stays, and is named."""
    jsonl(workspace.configs.parent / "data" / "two.jsonl", [chat("Hi?", "Hi."), {**SECRET, "id": 7}])
    again = Workspace(workspace.configs, workspace.stores)
    build(again, "sft_export_trl")
    build(again, "sft_export_tlfs")
    done = forget(again, ["one#1"])
    assert set(done.left) == {"sft_packed"}
    assert done.left["sft_packed"] == ("two#two.jsonl:1",)


@pytest.mark.parametrize("record", ["docs#2", "pairs#2", "sums#2", "one#2"])
def test_every_family_forgets(workspace: Workspace, record: str) -> None:
    [before] = where(workspace, record)
    assert before.found
    needles = needles_of(workspace, before)
    holding = {(each.asset, each.partition) for each in before.found if "_export_" not in each.asset}
    for asset, partition in holding:  # the search that proves it gone finds it while it is there
        published = workspace.published(asset, partition)
        assert published is not None
        assert records_with(workspace, published, needles), asset
    done = forget(workspace, [record])
    assert done.left == {}
    [after] = where(Workspace(workspace.configs, workspace.stores), record)
    assert after.found == ()


def test_stores_without_tombstones_keep_their_keys(workspace: Workspace) -> None:
    from prep_assets.config.models import Sft

    family = workspace.family(Sft)
    forget(workspace, ["one#1"])
    after = Workspace(workspace.configs, workspace.stores).family(Sft)
    assert family.domains["two"].reading == after.domains["two"].reading
    assert family.domains["one"].reading != after.domains["one"].reading


def test_a_broken_tombstone_stops_everything(workspace: Workspace) -> None:
    (workspace.configs / FILE).write_text('{"family": "sft", "domain": "one"}\n', "utf-8")
    with pytest.raises(ConfigError, match=r"forgotten.jsonl, line 1: .*it keeps a row out of every store"):
        build(Workspace(workspace.configs, workspace.stores), "sft_packed")


def test_the_command(workspace: Workspace, run: Command) -> None:
    result = run(workspace, "forget", "one#1", "--reason", "asked", "--json")
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    assert said["tombstones"][0]["reason"] == "asked"
    assert said["left"] == {}
    shown = run(workspace, "forget", "one#1", "--prune")
    assert "every one of them has a tombstone already" in shown.output
    assert "no trace is left" in shown.output
    assert "deleted" in shown.output
    assert run(workspace, "forget", "one#99").exit_code == 1
