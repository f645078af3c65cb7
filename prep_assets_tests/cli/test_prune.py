"""`prep-assets prune`: what is used stays, what is not goes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from prep_assets_tests.assets.workspaces import make


def rebuilt(workspace: Any, rows: int) -> Any:
    """`sft_packed` with other rows, published; the version before it is no longer used."""
    from prep_assets.assets.graph import ASSETS

    return make(workspace.overriding("sft", {"packing": {"row_len": rows}}), ASSETS["sft_packed"], "")


def versions(workspace: Any) -> list[str]:
    return sorted(path.name for path in (workspace.place("sft_packed").directory / "versions").iterdir() if path.is_dir())


def test_old_versions_go_and_what_is_current_stays(mine: Any, run: Any) -> None:
    old = mine.published("sft_packed").directory
    (old.with_name(old.name + ".quarantine.jsonl")).write_text("{}\n")
    new = rebuilt(mine, 128)
    before = {path: path.read_bytes() for path in mine.stores.rglob("*") if path.is_file() and old.name not in path.as_posix()}
    # nobody is there to ask, so nothing goes
    asked = run("prune")
    assert asked.exit_code == 1 and "--yes" in asked.stderr and old.is_dir()
    dry = run("prune", "--dry-run")
    assert dry.exit_code == 0 and old.name in dry.stdout and "1 folder, " in dry.stdout and "would be deleted" in dry.stdout
    assert old.is_dir()
    assert "1 folder, " in run("prune", "--yes").stdout
    assert versions(mine) == [new.directory.name]
    assert {path: path.read_bytes() for path in mine.stores.rglob("*") if path.is_file()} == before
    assert mine.published("sft_packed").manifest == new.manifest
    assert "0 folders" in run("prune", "--yes").stdout


def test_a_candidate_stays(mine: Any, run: Any) -> None:
    current = mine.published("sft_packed").directory
    from prep_assets.assets.graph import ASSETS

    candidate = ASSETS["sft_packed"].build(mine.overriding("sft", {"packing": {"row_len": 128}}), "").propose()
    run("prune", "--yes")
    assert versions(mine) == sorted([current.name, candidate.directory.name])
    shown = run("status").stdout
    assert "sft_packed" in shown and "a newer store is not published, because its checks are not complete" in shown
    assert candidate.directory.name in shown


def test_only_what_is_asked_for(mine: Any, run: Any) -> None:
    rebuilt(mine, 128)
    assert "0 folders" in run("prune", "sft_raw", "--partition", "dolly").stdout
    assert len(versions(mine)) == 2
    assert run("prune", "--partition", "dolly").exit_code == 1


def test_what_is_pruned_is_built_again_when_it_is_asked_for(mine: Any, run: Any) -> None:
    first = mine.published("sft_packed")
    rebuilt(mine, 128)
    run("prune", "sft_packed", "--yes")
    again = rebuilt(mine, 256)
    assert again.manifest.content_hash == first.manifest.content_hash
    assert json.loads(Path(again.directory / "manifest.json").read_text())["build_key"] == first.manifest.build_key


def test_nothing_is_deleted_without_a_yes(mine: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It deleted eight versions at once, without a question."""
    rebuilt(mine, 128)
    monkeypatch.setattr("prep_assets.cli.prune.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    answers = iter([False, True])
    monkeypatch.setattr("typer.confirm", lambda question: next(answers))
    assert run("prune").exit_code == 1 and len(versions(mine)) == 2
    assert run("prune").exit_code == 0 and len(versions(mine)) == 1


def test_what_a_removed_domain_and_a_killed_build_left_is_named_and_goes(mine: Any, run: Any) -> None:
    """They were forgotten: neither `status` nor `prune` named them."""
    path = mine.configs / "sft.yaml"
    options = yaml.safe_load(path.read_text("utf-8"))
    del options["domains"]["chats"]
    path.write_text(yaml.safe_dump(options), "utf-8")
    half = mine.place("sft_tokens", "dolly").directory / "versions" / ".writing-abc"
    half.mkdir()
    (half / "half").write_bytes(bytes(1000))
    shown = run("status").stdout
    assert "sft_tokens[chats]: not in the configuration any more" in shown and "sft_raw[chats]: not" in shown
    assert "sft_tokens[dolly]: left by a build that was killed" in shown and "1.0 kB" in shown
    result = run("prune", "--yes")
    assert "deleted only with --removed: sft_raw[chats], sft_tokens[chats]" in result.stdout
    assert not half.exists() and mine.published("sft_tokens", "chats")
    assert run("prune", "--removed", "--yes").exit_code == 0
    assert not (mine.stores / "sft_tokens" / "chats").exists() and mine.published("sft_tokens", "dolly")


def test_with_a_broken_configuration_nothing_of_its_family_counts_as_removed(mine: Any, run: Any) -> None:
    (mine.configs / "sft.yaml").write_text("domains: {}", "utf-8")
    result = run("status")
    assert result.exit_code == 1
    assert "sft.yaml" in result.stdout and "any more" not in result.stdout
    assert "rl_tokens" in result.stdout
