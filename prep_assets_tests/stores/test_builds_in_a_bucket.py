"""Everything that builds and reads, over a bucket that fails all the time: the bytes are those of a folder on disk."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import prep_assets
from prep_assets import engine
from prep_assets.cli.main import app
from prep_assets.engine import Statuses, plan, state
from prep_assets.engine.status import forgotten
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.extensions.keep.scrub import scrub
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.remote import local_root
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, shipped, tree, workspace_in
from prep_assets_tests.stores.s3 import S3, Fault

STORES = (("sft_raw", "dolly"), ("sft_tokens", "dolly"), ("sft_packed", ""))


def sample() -> dict[str, Any]:
    options = shipped()["sft"]
    return {"sft": {**options, "domains": {"dolly": {**options["domains"]["dolly"], "max_items": 20}}}}


@pytest.fixture
def local(tmp_path: Path) -> Workspace:
    workspace = workspace_in(tmp_path / "local", sample())
    for store in STORES:
        build(workspace, *store)
    return workspace


@pytest.fixture
def remote(local: Workspace, failing_s3: S3, tmp_path: Path) -> Workspace:
    workspace = Workspace(local.configs, local_root(f"s3://bucket/{tmp_path.name}"))
    for store in STORES:
        build(workspace, *store)
    return workspace


def test_a_bucket_holds_the_bytes_of_a_folder(
    local: Workspace, remote: Workspace, failing_s3: S3, contents: Callable[[Path], dict[str, bytes]], monkeypatch: Any, tmp_path: Path
) -> None:
    bucket = Bucket(remote.where)
    kept = {entry.key: b"".join(bucket.read(entry.key)) for entry in bucket.entries("") if "catalog.json" not in entry.key}
    assert kept == tree(local.stores)

    # another machine, which has nothing yet
    failing_s3.calm()
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "elsewhere"))
    there = Workspace(local.configs, local_root(remote.where))
    assert [step.why for step in plan(there, [(ASSETS["sft_packed"], "")])] == [""]
    assert forgotten(there) == []
    for asset, partition in STORES:
        ours, theirs = there.built(asset, partition), local.built(asset, partition)
        assert (ours.manifest, ours.results) == (theirs.manifest, theirs.results)
        assert contents(ours.directory) == contents(theirs.directory)
    version = there.place("sft_packed").backend.pointers().current
    opened = prep_assets.load(f"{remote.where}/sft_packed/versions/{version}/sft_packed.h5")
    assert len(opened) and opened.fetch(0, len(opened), "sequence").tolist() == _rows(local)

    # and the command line
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(local.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", remote.where)

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    assert remote.where in run("status")
    assert "passed" in run("verify", "sft_packed")
    run("export", "sft_packed", "--to", "astrai", "--out", str(tmp_path / "out"))
    assert any((tmp_path / "out").rglob("*"))
    assert "0 folders" in run("prune", "--dry-run")
    assert Statuses(there).at(ASSETS["sft_packed"], "").state == "current"


def _rows(local: Workspace) -> list[int]:
    opened = prep_assets.load(local.stores / "sft_packed" / "current" / "sft_packed.h5")
    found: list[int] = opened.fetch(0, len(opened), "sequence").tolist()
    return found


def test_the_scrubber_reads_what_rests_in_a_bucket(tmp_path: Path, s3: S3) -> None:
    configs = workspace_in(tmp_path, sample()).configs
    there = Workspace(configs, local_root(f"s3://bucket/{tmp_path.name}"))
    engine.build(there, "sft_raw", partition="dolly")
    sound = scrub(there, 1 << 40)
    assert (sound.damaged, sound.unreached, sound.read) == ((), (), sound.total)
    bucket = Bucket(there.where)
    harm: list[Callable[[bytes], bytes] | None] = [
        lambda whole: b"x" + whole[1:],
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        None,
    ]
    for wrong in harm:
        current = there.place("sft_raw", "dolly").pointers.current
        key = next(entry.key for entry in bucket.entries("") if entry.key.endswith(f"{current}/sources.json"))
        if wrong is None:
            bucket.delete(key)
        else:
            bucket.put(key, wrong(b"".join(bucket.read(key))))
        [found] = scrub(there, 1 << 40).damaged
        assert (found.asset, found.partition, found.source) == ("sft_raw", "dolly", False)
        assert f"{there.where}/{key}" in found.what
        assert state(there, ASSETS["sft_raw"], "dolly") == "broken"
        engine.build(there, "sft_raw", partition="dolly")
    assert scrub(there, 1 << 40).damaged == ()
    s3.plan = lambda method, path, headers: "500" if path.endswith("sources.json") else ""
    found = scrub(there, 1 << 40)
    assert (found.damaged, len(found.unreached)) == ((), 1)
    assert found.total > found.read > 0


def test_a_look_asks_for_three_objects_of_each_store_and_for_many_stores_at_a_time(s3: S3, tmp_path: Path) -> None:
    """It asked for one after the other: with 60 ms for each, a thousand domains took minutes."""
    domains = {name: domain(jsonl(tmp_path / f"{name}.jsonl", [{"text": f"A page about {name}."}]), "text") for name in "abcd"}
    options = minimal("pretrain", domains, engine="reference")
    there = Workspace(workspace_in(tmp_path, options).configs, local_root(f"s3://bucket/{tmp_path.name}"))
    engine.build(there, "pretrain_tokens")
    s3.calm()
    together = threading.Barrier(8)

    def waiting(method: str, path: str, headers: Any) -> Fault:
        if path.endswith("catalog.json"):  # each waits until all eight stores are asked for
            together.wait(60)
        return ""

    s3.plan = waiting
    steps = plan(there, [(ASSETS["pretrain_tokens"], name) for name in domains])
    assert [(step.asset.name, step.why) for step in steps] == [("pretrain_tokens", "")] * 4
    asked = Counter(path.rpartition("/")[2].rpartition(".checks")[1] or path.rpartition("/")[2] for _, path in s3.asked)
    assert asked == {"catalog.json": 8, "manifest.json": 8, ".checks": 8}
    assert set(s3.asked.values()) == {1}


def test_a_list_ends_where_a_server_passes_over_where_it_should_begin(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azurite does; pages were asked for by their beginning, so that a list never ended."""
    import obstore

    listed, found = obstore.list, Bucket(f"s3://bucket/{tmp_path.name}")
    monkeypatch.setattr(obstore, "list", lambda *arguments, offset=None, **more: listed(*arguments, **more))
    keys = [f"a/{number}" for number in range(3)]
    for key in keys:
        found.put(key, b"")
    assert [entry.key for entry in islice(found.entries("a/"), 10)] == keys
