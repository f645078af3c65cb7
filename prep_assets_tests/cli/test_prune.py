"""`prep-assets prune`: what is used stays, what is not goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rebuilt(workspace: Any, rows: int) -> Any:
    """`sft_packed` with other rows, published; the version before it is no longer used."""
    from prep_assets.pipelines.graph import ASSETS

    return ASSETS["sft_packed"].build(workspace.overriding("sft", {"packing": {"row_len": rows}}), "").publish()


def versions(workspace: Any) -> list[str]:
    return sorted(path.name for path in (workspace.place("sft_packed").directory / "versions").iterdir() if path.name != ".lock")


def test_old_versions_go_and_what_is_current_stays(mine: Any, run: Any) -> None:
    old = mine.published("sft_packed").directory
    (old.with_name(old.name + ".quarantine.jsonl")).write_text("{}\n")
    new = rebuilt(mine, 128)
    before = {path: path.read_bytes() for path in mine.stores.rglob("*") if path.is_file() and old.name not in path.as_posix()}
    dry = run("prune", "--dry-run")
    assert dry.exit_code == 0 and old.name in dry.stdout and "1 version, " in dry.stdout and "would be deleted" in dry.stdout
    assert old.is_dir()
    assert "1 version, " in run("prune").stdout
    assert versions(mine) == [new.directory.name]
    assert {path: path.read_bytes() for path in mine.stores.rglob("*") if path.is_file()} == before
    assert mine.published("sft_packed").manifest == new.manifest
    assert "0 versions" in run("prune").stdout


def test_a_candidate_stays(mine: Any, run: Any) -> None:
    current = mine.published("sft_packed").directory
    from prep_assets.pipelines.graph import ASSETS

    candidate = ASSETS["sft_packed"].build(mine.overriding("sft", {"packing": {"row_len": 128}}), "").propose()
    run("prune")
    assert versions(mine) == sorted([current.name, candidate.directory.name])
    shown = run("status").stdout
    assert "sft_packed" in shown and "a newer store is not published, for not every check has passed" in shown
    assert candidate.directory.name in shown


def test_only_what_is_asked_for(mine: Any, run: Any) -> None:
    rebuilt(mine, 128)
    assert "0 versions" in run("prune", "sft_raw", "--partition", "dolly").stdout
    assert len(versions(mine)) == 2
    assert run("prune", "--partition", "dolly").exit_code == 1


def test_what_is_pruned_is_built_again_when_it_is_asked_for(mine: Any, run: Any) -> None:
    first = mine.published("sft_packed")
    rebuilt(mine, 128)
    run("prune", "sft_packed")
    again = rebuilt(mine, 256)
    assert again.manifest.content_hash == first.manifest.content_hash
    assert json.loads(Path(again.directory / "manifest.json").read_text())["build_key"] == first.manifest.build_key
