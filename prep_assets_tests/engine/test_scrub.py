"""The scrubber finds what rotted, in rotation under a budget, marks it and what was made from it, and a build mends it."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
from typer.testing import CliRunner

import prep_assets
from prep_assets import load
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.cli.main import app
from prep_assets.engine import build, state
from prep_assets.errors import StoreError
from prep_assets.extensions.explain.streams import Opened
from prep_assets.extensions.keep.scrub import STATE, _compare, _File, scrub
from prep_assets.extensions.remote import urls
from prep_assets.graph.graph import EVERY, run_check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.verification import BLOCK, sums_of
from prep_assets.training import DatasetFactory
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, tree, workspace_in

EVERYTHING = 1 << 40


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    source = jsonl(tmp_path / "rows.jsonl", ({"text": f"Document {n} has words."} for n in range(60)))
    made = workspace_in(tmp_path, minimal("pretrain", {"a": domain(source, "text")}, test_fraction=0.2))
    build(made, "pretrain_tokens")
    return made


def rot(path: Path, at: int = 0) -> None:
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def payload(workspace: Workspace, asset: str, suffix: str) -> Path:
    published = workspace.built(asset, "a")
    return next(path for path in sorted(published.directory.rglob("*")) if path.name.endswith(suffix))


def contents(workspace: Workspace) -> dict[str, dict[str, bytes]]:
    found = {asset: workspace.published(asset, "a") for asset in ("pretrain_raw", "pretrain_tokens")}
    return {asset: tree(published.directory) for asset, published in found.items() if published}


def test_what_is_sound_is_read_in_rotation_and_each_byte_once(workspace: Workspace) -> None:
    whole = scrub(workspace, EVERYTHING)
    assert whole.damaged == ()
    assert whole.read == whole.total > 10_000
    (workspace.stores / STATE).unlink()
    parts = []
    while sum(parts) < whole.total:
        parts.append(scrub(workspace, 1).read)
        assert parts[-1]
    assert sum(parts) == whole.total
    assert len(parts) > 8
    assert scrub(workspace, 1).read == parts[0]  # and from the beginning again


def test_a_file_larger_than_the_budget_is_read_on_from_where_it_stopped(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "large").write_bytes(np.random.default_rng(0).bytes(3 * BLOCK + 9))
    file = _File("large", str(tmp_path / "large"), 3 * BLOCK + 9, sums_of(tmp_path / "large").blocks, EVERY["pretrain_raw"], "a")
    assert _compare(file, 0, 1, float("inf")) == (BLOCK, "")
    assert _compare(file, BLOCK, 2 * BLOCK, float("inf")) == (3 * BLOCK, "")
    rot(tmp_path / "large", 3 * BLOCK + 2)
    at, wrong = _compare(file, 2 * BLOCK, EVERYTHING, float("inf"))
    assert (at, wrong) == (3 * BLOCK, f"bytes 3,145,728 to 3,145,737 of {tmp_path / 'large'} are not what they were")
    assert "has 3,145,737 bytes, it had 3" in _compare(replace(file, size=3), 0, 1, float("inf"))[1]


def test_a_store_that_rots_is_found_marked_and_built_again_to_the_byte(workspace: Workspace) -> None:
    before = contents(workspace)
    damaged = payload(workspace, "pretrain_raw", "sources.json")
    rot(damaged)
    [found] = scrub(workspace, EVERYTHING).damaged
    assert (found.asset, found.partition, found.source) == ("pretrain_raw", "a", False)
    assert found.built == ("pretrain_tokens[a]",)
    assert found.what.startswith(f"bytes 0 to {damaged.stat().st_size:,} of {damaged} are not what they were. Build it again:\n  ")
    assert [state(workspace, EVERY[asset], "a") for asset in before] == ["broken", "stale"]
    build(workspace, "pretrain_tokens")
    assert [state(workspace, EVERY[asset], "a") for asset in before] == ["current", "current"]
    assert contents(workspace) == before
    assert scrub(workspace, EVERYTHING).damaged == ()


def test_what_rotted_is_read_by_nothing_until_it_is_built_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    place = workspace.place("pretrain_tokens", "a")
    opened = partial(DatasetFactory.load, "seq", window_size=8, verify="off")
    path = place.directory / "current" / "a_train.h5"
    data = opened(path)
    first, sent = data[0]["input_ids"].tolist(), pickle.dumps(data)
    rot(payload(workspace, "pretrain_tokens", ".h5"), 5000)
    scrub(workspace, EVERYTHING)
    said = "is damaged, so nothing reads it: scrub: bytes 0 to "
    readers: list[Callable[[], object]] = [
        lambda: load(path, verify="off"),
        lambda: prep_assets.load(place.directory),
        lambda: opened(path),
        lambda: pickle.loads(sent),  # as a worker of a DataLoader that starts now
        lambda: workspace.published("pretrain_tokens", "a"),
        lambda: Opened(workspace).published("pretrain_tokens", "a"),
    ]
    for read in readers:
        with pytest.raises(StoreError, match=said):
            read()
    for command in (["inspect"], ["path"], ["report"], ["verify"], ["export", "--to", "astrai", "--out", str(workspace.stores / "out")]):
        found = CliRunner().invoke(app, [command[0], "pretrain_tokens", "--partition", "a", *command[1:]])
        assert found.exit_code == 1, command
        assert said in " ".join(found.output.split()), found.output
    assert not (workspace.stores / "out").exists()
    assert data[0]["input_ids"].tolist() == first  # whoever had it open reads on
    build(workspace, "pretrain_tokens")
    assert opened(path)[0]["input_ids"].tolist() == first


def test_what_this_process_may_not_read_is_not_taken_for_damaged(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refused(self: Path, *args: object, **options: object) -> object:
        if self.suffix == ".h5":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    found = scrub(workspace, EVERYTHING)
    assert (found.damaged, {each.endswith("cannot be read: Permission denied") for each in found.unreached}) == ((), {True})


def test_a_store_that_stands_in_another_place_fails_its_first_check(workspace: Workspace) -> None:
    own, other = workspace.place("pretrain_raw", "a"), workspace.place("pretrain_tokens", "a")
    renamed = own.backend.versions / f"{'0' * 20}-{'0' * 12}"
    payload(workspace, "pretrain_raw", "sources.json").parent.rename(renamed)
    found = run_check(INTEGRITY, workspace, own.backend.published(renamed.name))
    assert not found.passed
    assert f", in the folder {renamed.name}" in found.summary
    strange = other.backend.published(other.pointers.current)
    foreign = strange.directory.rename(own.backend.versions / strange.version)
    for path in other.backend.versions.glob("*.jsonl"):
        path.rename(own.backend.versions / path.name)
    found = run_check(INTEGRITY, workspace, replace(strange, folder=foreign))
    assert not found.passed
    assert f"it is a store of {other.label}, in {own.backend.versions}" in found.summary


def test_a_source_that_rots_though_it_looks_untouched_is_named(workspace: Workspace, tmp_path: Path) -> None:
    rot(tmp_path / "rows.jsonl", 40)
    [found] = scrub(workspace, EVERYTHING).damaged
    assert found.source
    assert found.what.endswith(f"\n  touch {tmp_path / 'rows.jsonl'} && prep-assets build pretrain_raw --partition a")
    os.utime(tmp_path / "rows.jsonl")  # a change that is meant is the sensor's business
    assert scrub(workspace, EVERYTHING).damaged == ()


def test_a_remote_source_is_read_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    rows = b"".join(b'{"text": "Document %d has words."}\n' % n for n in range(60))
    memory.pipe_file("/scrubbed/rows.jsonl", rows)
    options = minimal("pretrain", {"a": {"files": ["memory://scrubbed/rows.jsonl"], "schema": "text"}}, test_fraction=0.2)
    made = workspace_in(tmp_path, options)
    build(made, "pretrain_raw", partition="a")
    there = memory.store["/scrubbed/rows.jsonl"]
    sizes = [scrub(made, EVERYTHING, remote=remote).read for remote in (False, True)]
    assert sizes[1] == sizes[0] + len(rows)
    there.seek(40)
    there.write(b"x")  # the time stays
    assert scrub(made, EVERYTHING).damaged == ()
    [found] = scrub(made, EVERYTHING, remote=True).damaged
    assert found.source
    assert found.what.startswith(
        f"bytes 0 to {len(rows):,} of memory:///scrubbed/rows.jsonl are not what they were, though it looks untouched"
    )
    assert found.what.endswith("and pin it again:\n  prep-assets build pretrain_raw --partition a")

    def silent(url: str) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(urls, "open", silent)
    found = scrub(made, EVERYTHING, remote=True)
    assert (found.damaged, len(found.unreached), found.read) == ((), 1, sizes[0])


def test_the_command(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    sound = CliRunner().invoke(app, ["scrub", "--bytes", "all"])
    assert (sound.exit_code, "0 files damaged" in sound.output) == (0, True)
    rot(payload(workspace, "pretrain_tokens", ".h5"), 5000)
    found = CliRunner().invoke(app, ["scrub", "--bytes", "20GiB"])
    assert (found.exit_code, "1 file damaged" in found.output) == (1, True)
    assert "✗ pretrain_tokens[a]: bytes 0 to" in found.output
    (workspace.stores / STATE).unlink()
    mended = CliRunner().invoke(app, ["scrub", "--bytes", "all", "--rebuild"])
    assert mended.exit_code == 0, mended.output
    assert CliRunner().invoke(app, ["scrub", "--bytes", "all"]).exit_code == 0
    wrong = CliRunner().invoke(app, ["scrub", "--bytes", "many"])
    assert (wrong.exit_code, "needs a number and a unit" in wrong.output) == (1, True)
