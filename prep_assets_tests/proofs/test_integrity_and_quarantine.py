"""What happens to a store's files: every loss, change and addition is named; a store that cannot be read is a failed check, never a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.graph.graph import EVERY, run_check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.effort import SOAK, thinned
from prep_assets_tests.graph.workspaces import (
    all_unchecked,
    build,
    domain,
    failing,
    jsonl,
    judged,
    minimal,
    refusals,
    resealed,
    shipped,
    verdicts,
    with_groups,
    with_others,
    workspace_in,
)
from prep_assets_tests.proofs.conftest import spoilable
from prep_assets_tests.proofs.corruption import quarantine_file


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """All stores of all families, a few records each, because each file of each store is harmed in turn."""
    folder = tmp_path_factory.mktemp("small")
    families = judged(with_others(with_groups(shipped("bin"), folder), folder))
    for options in families.values():
        for each in options["domains"].values():
            each["max_items"] = 12
    families["rl"]["arithmetic"] = {"n": 12}
    return all_unchecked(workspace_in(folder, families))


@pytest.fixture
def asset() -> str:
    """What a test is about that names no other."""
    return "sft_packed"


@pytest.fixture
def few(small: Workspace, tmp_path: Path, asset: str) -> Workspace:
    """The small stores; those of the asset are a copy."""
    return spoilable(small, tmp_path, asset)


def store_of(workspace: Workspace, asset: str) -> Published:
    """The store of an asset; of several, the last."""
    published = workspace.published(asset, EVERY[asset].partitions(workspace)[-1])
    assert published is not None
    return published


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


HARM: dict[str, Callable[[Path], object]] = {
    "one bit flipped": flip,
    "cut short by a byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "one byte longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("asset", thinned(EVERY))
def test_harm_to_any_file_is_seen_and_named(few: Workspace, asset: str) -> None:
    """In `make test` each file in one way, in `make soak` in all."""
    published, ways = store_of(few, asset), list(HARM.values())
    for number, name in enumerate(published.manifest.files):
        path = published.directory / name
        whole = path.read_bytes()
        for harm in (ways if SOAK else [ways[number % len(ways)]]) if whole else ():
            harm(path)
            verdict = run_check(INTEGRITY, few, published)
            assert not verdict.passed and name in verdict.summary
            assert f"prep-assets build {asset}" in verdict.summary, "the remedy"
            path.write_bytes(whole)
    assert run_check(INTEGRITY, few, published).passed


@pytest.mark.parametrize("asset", thinned(EVERY, 6))
def test_a_foreign_file_is_seen_and_named(few: Workspace, asset: str) -> None:
    published = store_of(few, asset)
    (published.directory / "notes.txt").write_text("mine")
    verdict = verdicts(few, published)["file_hashes"]
    assert not verdict.passed and "notes.txt: not in the manifest" in verdict.summary


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.soak) for turn in range(1, len(HARM)))])
@pytest.mark.parametrize("asset", EVERY)
def test_no_harm_makes_a_check_crash(few: Workspace, asset: str, turn: int) -> None:
    """Even where the manifest says that the harmed file is right. Every sixth file is harmed, each in the next way; in `make soak` each in all."""
    published = store_of(few, asset)
    for number, name in list(enumerate(published.manifest.files))[:: 1 if SOAK else 6]:
        path = published.directory / name
        whole = path.read_bytes()
        if not whole:
            continue
        list(HARM.values())[(number + turn) % len(HARM)](path)
        published = resealed(published)
        for verdict in verdicts(few, published).values():
            assert verdict.passed or verdict.worst is not None
        (published.directory / name).write_bytes(whole)


def test_a_damaged_store_is_built_anew(few: Workspace) -> None:
    published = few.published("sft_packed")
    assert published is not None
    flip(published.directory / "sft_packed" / "shard_0000" / "sequence.bin")
    again = build(few, "sft_packed")
    assert not again.reused and again.manifest == published.manifest


@pytest.fixture
def refusing(tmp_path: Path) -> tuple[Workspace, Published]:
    """Tokens of a domain of which three records were refused, for two reasons."""
    rows = [{"text": "kept"}, {"text": " "}, {"body": 1}, {"text": "kept too"}, {"text": "\t"}]
    families = minimal("pretrain", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "text")})
    workspace = workspace_in(tmp_path / "here", families)
    build(workspace, "pretrain_raw", "a")
    published = build(workspace, "pretrain_tokens", "a")
    assert len(refusals(published)) == 3
    return workspace, published


def without_line(lines: list[str]) -> list[str]:
    return lines[1:]


def other_reason(lines: list[str]) -> list[str]:
    return [json.dumps({**json.loads(lines[0]), "reason": "other"}), *lines[1:]]


@pytest.mark.parametrize(
    "change", [without_line, other_reason, lambda lines: [*lines, lines[0]], lambda lines: [*lines[:-1], lines[-1][:20]]]
)
def test_a_quarantine_that_does_not_fit_the_counts(refusing: tuple[Workspace, Published], change: Callable[[list[str]], list[str]]) -> None:
    workspace, published = refusing
    path = quarantine_file(published)
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))
    assert failing(workspace, published) == ["file_hashes", "accounting", "selection"]
    assert failing(workspace, resealed(published)) == ["accounting", "selection"]


def test_a_quarantine_that_is_gone(refusing: tuple[Workspace, Published]) -> None:
    workspace, published = refusing
    quarantine_file(published).unlink()
    assert failing(workspace, published) == ["file_hashes", "accounting", "selection"]
    assert failing(workspace, resealed(published)) == ["accounting", "selection"]


def test_a_record_that_the_schema_refuses_cannot_be_in_the_store(refusing: tuple[Workspace, Published]) -> None:
    """An index that points at a refused row is a failed check, not an exception."""
    workspace, published = refusing
    np.save(published.directory / "a_train.index" / "row.npy", np.array([0, 1]))
    found = verdicts(workspace, resealed(published))
    verdict = found["tokenization_identity"]
    assert "a row that is stored is refused when it is read again: empty_text: 'text' is only whitespace" in [
        each.summary for each in found.values()
    ]
    assert not verdict.passed
    assert "a.jsonl:2 is stored with 1 characters, and the options allow 1" in verdict.summary
