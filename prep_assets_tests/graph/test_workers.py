"""Stores have the same bytes whoever writes them: one process, or two or four, over shards of any size, one of which is killed in the middle."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import FAMILIES
from prep_assets.data import tables as cuts
from prep_assets.data.files import SourceFile
from prep_assets.engine import build
from prep_assets.engine import execute as checking
from prep_assets.engine.events import Progress
from prep_assets.errors import ConfigError, SourceError, StoreError
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.extensions.preference.config import Preference
from prep_assets.extensions.ray import tasks
from prep_assets.graph import raw
from prep_assets.pipeline import tokens as domain_in_shards
from prep_assets.pipeline import tokens as in_shards
from prep_assets.pipeline import tokens as lines_in_shards
from prep_assets.pipeline.examples import shards_of
from prep_assets.pipeline.sources import Pinned
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores import writer
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.published import open_published
from prep_assets.stores.table import Table, open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.workers.pool import Pool, answer_of, worker_count
from prep_assets.workers.shards import Effort, Plan, ShardResult, Work
from prep_assets_tests.graph.shard_inputs import chats, distilled, documents, hidden, pairs, prompts, turns
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in


def identity(published: Published) -> tuple[Any, ...]:
    """Everything that two equal builds have in common."""
    manifest, quarantine = published.manifest, published.quarantine
    return manifest.files, manifest.counts, manifest.build_key, file_hash(quarantine) if quarantine else "", published.results


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as made:
        yield made


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "SHARD_BYTES", 8000)
    for module in (domain_in_shards, lines_in_shards, raw):
        monkeypatch.setattr(module, "FEWEST", 2)
    monkeypatch.setattr(checking, "LARGE", 1)


def built_by(count: int, workspace: Workspace, asset: str, pool: Pool) -> tuple[tuple[Any, ...], list[str]]:
    """A store built by so many workers, and what was told meanwhile."""
    told: list[str] = []
    mine = replace(workspace, workers=count, pool=pool, stores=workspace.stores.with_name(f"stores{count}"))
    [built] = build(mine, asset, tell=lambda event: told.append(event.what) if isinstance(event, Progress) else None)
    assert not list(mine.stores.rglob(".shards-*"))
    return identity(built.published), told


@pytest.mark.parametrize(
    ("make", "asset", "most"),
    [
        (chats, "sft_tokens", 2),
        pytest.param(hidden, "sft_tokens", 2, marks=pytest.mark.soak),
        (documents, "pretrain_tokens", 4),
        pytest.param(pairs, "preference_tokens_by_domain", 2, marks=pytest.mark.soak),
        pytest.param(prompts, "rl_tokens_by_domain", 2, marks=pytest.mark.soak),
    ],
)
def test_bytes_do_not_depend_on_the_number_of_workers(
    tmp_path: Path, pool: Pool, small_shards: None, make: Callable[[Path], Mapping[str, Any]], asset: str, most: int
) -> None:
    workspace = workspace_in(tmp_path, make(tmp_path / "data"))
    found = {count: built_by(count, workspace, asset, pool) for count in (1, most)}
    assert found[1][0] == found[most][0]
    assert not any(" shards" in what for what in found[1][1])
    assert any("tokenize" in what and " shards" in what for what in found[most][1])
    refused = found[1][0][1]["refused"]
    assert sum(refused.values()) > 20
    if asset == "sft_tokens":
        assert all(refused[reason] > 3 for reason in ("deduplicate/duplicate", "records/invalid_json", "tokenize/too_long"))


@pytest.mark.parametrize("most", [2, pytest.param(7, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("make", "asset", "more"),
    [
        (chats, "sft_quality", {}),
        pytest.param(documents, "pretrain_quality", {}, marks=pytest.mark.soak),
        pytest.param(pairs, "preference_quality", {"swapped_labels": {"action": "note"}}, marks=pytest.mark.soak),
    ],
)
def test_verdicts_do_not_depend_on_the_number_of_workers(
    tmp_path: Path,
    pool: Pool,
    small_shards: None,
    make: Callable[[Path], Mapping[str, Any]],
    asset: str,
    more: Mapping[str, Any],
    most: int,
) -> None:
    """Of steps that look at each example, and of those that compare all; with held-out files, duplicates and limits. Checks judge in shards, too."""
    said = make(tmp_path / "data")
    steps = {"near_duplicates": {"words": 2, "action": "note"}, "repeated_passages": {"words": 5, "max_share": 0.8}, **more}
    family = asset.partition("_")[0]
    steps |= {"language": {"keep": ["en"], "action": "note"}, "gopher_repetition": {"action": "note"}}
    workspace = workspace_in(tmp_path, {**said, family: {**said[family], "quality": {"steps": steps}}})
    found = {count: built_by(count, workspace, asset, pool) for count in (1, most)}
    assert found[1][0] == found[most][0]
    assert [any("judge" in what and " shards" in what for what in found[count][1]) for count in found] == [False, True]
    counts = found[1][0][1]["found"]
    assert all(any(kind.startswith(step) for kind in counts) for step in ("near_duplicates", "repeated_passages")), counts


@pytest.mark.soak
def test_what_a_teacher_says_does_not_depend_on_the_number_of_workers(tmp_path: Path, pool: Pool, small_shards: None) -> None:
    """Each shard has entries of its own, joined in the order of the records; checks look at them in parts."""
    workspace = workspace_in(tmp_path, distilled(tmp_path / "data"))
    found = {count: built_by(count, workspace, "sft_tokens", pool) for count in (1, 2)}
    assert found[1][0] == found[2][0]
    assert any("tokenize" in what and " shards" in what for what in found[2][1])
    files, counts = found[2][0][:2]
    assert counts["refused"] == {"deduplicate/duplicate": 66, "teacher/teacher_shifted": 30} and counts["teacher_entries"] > 5000
    assert {f"{stream}.teacher/{name}.npy" for stream in ("train", "dev") for name in ("count", "end", "id", "logprob")} <= {*files}


@pytest.mark.soak
def test_a_build_that_pins_a_domain_with_workers_reads_it_only_once_more(tmp_path: Path, pool: Pool, small_shards: None) -> None:
    """What is a duplicate was found when it was pinned. Where that was another build, or less of the domain is used, a first pass finds it."""
    said = chats(tmp_path / "data")
    told = []
    for limit in (None, 270):
        said["sft"]["domains"]["chats"]["max_items"] = limit
        workspace = workspace_in(tmp_path / str(limit), said)
        alone, _ = built_by(1, workspace, "sft_tokens", pool)
        for _ in range(2):
            together, more = built_by(2, workspace, "sft_tokens", pool)
            told.append(any(what.startswith("compare records of chats") for what in more))
            assert together == alone and alone[1]["refused"]["deduplicate/duplicate"] > 3
            shutil.rmtree(workspace.stores.with_name("stores2") / "sft_tokens")
    assert told == [False, True, True, True]


def test_sources_are_read_by_workers(tmp_path: Path, pool: Pool, small_shards: None) -> None:
    """Three files with lines that cannot be read, and rows of another domain, which are counted wherever they stand."""
    workspace = workspace_in(tmp_path, chats(tmp_path / "data"))
    found = {count: built_by(count, workspace, "sft_raw", pool) for count in (1, 2)}
    assert found[1][0] == found[2][0] and found[1][0][1]["refused"]
    assert [any("read chats: 1 of" in what for what in found[count][1]) for count in (1, 2)] == [False, True]
    path = tmp_path / "data" / "a.jsonl"
    rows = [{"messages": turns(n), "kind": "good" if n % 2 else "odd"} for n in range(900)]
    said = minimal("sft", {"good": domain(jsonl(path, rows), "messages", domain_key="kind")})
    messages = []
    for count in (1, 2):
        with pytest.raises(SourceError, match=r"no domain declares: 'odd' \(450 rows") as raised:
            built_by(count, workspace_in(tmp_path / str(count), said), "sft_raw", pool)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


@pytest.mark.soak
def test_bytes_do_not_depend_on_the_size_of_shards(tmp_path: Path, pool: Pool, small_shards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With duplicates of records in other shards, a limit that is reached, and rows that are packed of many shards."""
    said = chats(tmp_path / "data")["sft"]
    found, keys, shards = [], [], []
    told: list[str] = []
    for number, (size, asked) in enumerate([(3000, "auto"), (3000, 5), (40_000, "auto")]):
        monkeypatch.setattr(cuts, "SHARD_BYTES", size)
        workspace = workspace_in(tmp_path / str(number), {"sft": {**said, "packing": {"row_len": 512}, "cluster": {"shards": asked}}})
        told.clear()
        mine = replace(workspace, workers=2, pool=pool)
        [packed] = build(mine, "sft_packed", tell=lambda event: told.append(event.what) if isinstance(event, Progress) else None)
        both = identity(packed.published), identity(open_published(workspace.stores, "sft_tokens", "chats"))
        found.append([(files, counts, quarantine) for files, counts, _, quarantine, _ in both])
        keys.append([key for _, _, key, _, _ in both])
        shards.append(max(int(what.split(" of ")[1].split()[0]) for what in told if what.startswith("tokenize chats: ")))
    assert found[0] == found[1] == found[2]
    assert keys[0] == keys[1]
    assert found[0][1][1]["refused"]["deduplicate/duplicate"] > 3
    assert shards[0] > 15 > 6 >= shards[1] > 2


@pytest.mark.parametrize(("asked", "count"), [(1, 1), (3, 3), (50, 50), (1000, 100), ("auto", 100)])
def test_as_many_shards_as_asked_for(asked: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two files of lines that can be cut at each kilobyte: they hold every row once, in order, and no more than can be told apart."""
    monkeypatch.setattr(cuts, "SHARD_BYTES", 1000)
    files = tuple(SourceFile(f"{name}.jsonl", f"/{name}.jsonl", 50_000, "jsonl", None) for name in "ab")
    sources = Pinned(files, (), 1000, "", cuts=tuple(tuple((at * 1000, at * 10) for at in range(1, 50)) for _ in files))
    shards = shards_of(sources, asked)
    assert count <= len(shards) <= count + 1
    stretches = [stretch for shard in shards for stretch in shard.task]
    for number in range(2):
        own = [each.part for each in stretches if each.file == number]
        assert [part.start for part in own] == [0, *(part.stop for part in own[:-1])]
        assert own[-1].stop is None
        assert all(part.row == part.start // 100 for part in own)
    monkeypatch.setattr(cuts, "MOST_SHARDS", 20)
    assert len(shards_of(sources)) == 20


def test_a_worker_that_is_killed_in_the_middle_changes_no_byte(
    tmp_path: Path, pool: Pool, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_in(tmp_path, chats(tmp_path / "data"))
    alone, _ = built_by(1, workspace, "sft_tokens", pool)
    before = pool.effort.lost

    def kill_one(folder: Path, name: str, **options: Any) -> Table:
        """When the first shard is joined, a worker is in the middle of another one."""
        if name == "train" and pool.effort.lost == before:
            os.kill(pool.processes[0], signal.SIGKILL)
        return open_stream(folder, name, **options)

    monkeypatch.setattr(writer, "open_stream", kill_one)
    together, told = built_by(2, workspace, "sft_tokens", pool)
    assert together == alone
    assert pool.effort.lost > before
    assert any("workers lost" in what for what in told)


class Here:
    """Workers' part of the work, done in this process with what was pickled for them."""

    elsewhere, size = False, 2

    def __init__(self) -> None:
        self.effort = Effort()
        self.done: list[int] = []

    def run_shards(self, plan: Plan, work: Work) -> Iterator[ShardResult]:
        described = pickle.dumps(work)
        for shard in plan.shards:
            how, result = answer_of(*(pickle.loads(pickle.dumps(each)) for each in (shard, described, plan)))
            assert how == "done", result
            self.done.append(shard.number)
            yield result


@pytest.mark.parametrize("name", ["quarantine.jsonl", "streams/train.index/ends.npy", "streams/train/shard_0000/sequence.bin"])
def test_what_the_disk_alters_of_a_shard_is_not_joined(
    tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    workspace = workspace_in(tmp_path, chats(tmp_path / "data"))
    monkeypatch.setattr(Workspace, "runner", lambda self, family, busy=1: Here() if self.pool else None)
    told = in_shards.shard_results

    def spoil(*args: Any) -> Iterator[ShardResult]:
        for result in told(*args):
            if (path := result.folder / name).exists():
                data = bytearray(path.read_bytes())
                data[-1] ^= 1
                path.write_bytes(data)
            yield result

    monkeypatch.setattr(in_shards, "shard_results", spoil)
    with pytest.raises(StoreError, match=rf"{name}: bytes 0 to [\d,]+ are not what the process that wrote them says") as raised:
        built_by(2, workspace, "sft_tokens", Pool())
    assert "Nothing is published" in str(raised.value)
    assert workspace.published("sft_tokens", "chats") is None


def test_a_source_that_rots_while_it_looks_untouched_is_not_built_from(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, chats(tmp_path / "data"))
    build(workspace, "sft_raw")
    path = tmp_path / "data" / "b.jsonl"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"content", b"cOntent", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for force in (False, True):  # what is pinned again is not taken for granted either
        with pytest.raises(SourceError, match=r"b.jsonl: bytes 0 to [\d,]+ are not what they were") as raised:
            build(workspace, "sft_raw" if force else "sft_tokens", force=force)
    command = str(raised.value).splitlines()[-1]
    assert command == f"  touch {path} && prep-assets build sft_raw --partition chats"
    os.utime(path)
    assert build(workspace, "sft_tokens")


class Elsewhere(Here):
    """Another machine, in this process: it shares sources, configuration and a bucket, has a cache of its own, and gets what was pickled."""

    elsewhere = True

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self._cache = cache

    def run_shards(self, plan: Plan, work: Work) -> Iterator[ShardResult]:
        here = super().run_shards(plan, work)
        while True:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PREP_ASSETS_CACHE", str(self._cache))
                result = next(here, None)
            if result is None:
                return
            yield result


@pytest.mark.parametrize(
    ("make", "asset"), [(chats, "sft_tokens"), pytest.param(pairs, "preference_tokens_by_domain", marks=pytest.mark.soak)]
)
def test_machines_that_share_a_bucket_and_no_folder_write_the_same(
    tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Mapping[str, Any]], asset: str
) -> None:
    workspace = workspace_in(tmp_path, make(tmp_path / "data"))
    [alone] = build(replace(workspace, workers=1), asset)
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "here"))
    there = Elsewhere(tmp_path / "there")
    monkeypatch.setattr(Workspace, "runner", lambda self, family, busy=1: there if self.pool else None)
    in_bucket = Workspace(workspace.configs, f"memory://bucket/{tmp_path.name}")  # type: ignore[arg-type]
    [made] = build(in_bucket, asset)
    assert not made.published.reused
    assert identity(made.published) == identity(alone.published)
    assert len(there.done) > 6
    bucket = Bucket(f"memory://bucket/{tmp_path.name}")
    assert not [entry.key for entry in bucket.entries("") if ".shards-" in entry.key]
    assert not list((tmp_path / "there").rglob(".shards-*"))


BUILD = """
import sys
from dataclasses import replace
from pathlib import Path
from prep_assets.pipeline.workspace import Workspace
from prep_assets.pipeline import tokens as domain_in_shards
from prep_assets.engine import build
from prep_assets.engine.events import Progress
from prep_assets.data import tables as cuts

cuts.SHARD_BYTES, domain_in_shards.FEWEST = 8000, 2

def tell(event):
    if isinstance(event, Progress) and event.what.startswith("tokenize"):
        print(event.what, flush=True)
        sys.stdin.readline()

build(Workspace(Path(sys.argv[1]), Path(sys.argv[2]), workers=2), sys.argv[3], tell=tell)
"""


def test_a_build_that_was_killed_goes_on_with_its_finished_shards(
    tmp_path: Path, pool: Pool, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, asset = workspace_in(tmp_path, chats(tmp_path / "data")), "sft_tokens"
    alone, _ = built_by(1, workspace, asset, pool)
    killed = replace(workspace, stores=workspace.stores.with_name("stores2"))
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(killed.configs), str(killed.stores), asset],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert process.stdout is not None
    while b"3 of " not in process.stdout.readline():
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    process.kill()
    process.wait()
    given: list[int] = []
    taken = Pool.run_shards
    monkeypatch.setattr(
        Pool, "run_shards", lambda self, plan, work: (given.append(plan.whole - len(plan.shards)), taken(self, plan, work))[1]
    )
    monkeypatch.setattr(checking, "LARGE", 1 << 60)
    together, _ = built_by(2, workspace, asset, pool)
    assert together == alone
    assert given[-1] >= 3


def test_a_build_whose_worker_reads_another_configuration_stops(tmp_path: Path, pool: Pool, small_shards: None) -> None:
    workspace = workspace_in(tmp_path, pairs(tmp_path / "data"))
    there = workspace.travelling(Preference)
    assert there.vocabulary(there.family(Preference)).hash == workspace.vocabulary(workspace.family(Preference)).hash
    there = workspace.travelling(Preference)
    path = workspace.configs / "preference.yaml"
    path.write_text(path.read_text("utf-8").replace("max_seq_len: 60", "max_seq_len: 61"), "utf-8")
    with pytest.raises(ConfigError, match=r"preference configuration: it is another one on .* than where the build was started"):
        there.family(Preference)


def test_the_number_of_workers_is_what_the_configuration_says(tmp_path: Path) -> None:
    sizes = []
    for family, options in (("sft", {"workers": 3}), ("rl", {"workers": 1}), ("pretrain", {})):
        workspace = workspace_in(tmp_path / family, minimal(family, {"a": domain("gsm8k.jsonl", "gsm8k")}, **options))
        configured = workspace.family(FAMILIES[family])
        asked = [replace(workspace, pool=Pool(), workers=flag).runner(configured) for flag in (None, 5)]
        sizes.append([each.size if each else 1 for each in asked])
    assert sizes == [[3, 5], [1, 5], [worker_count("auto"), 5]]


def test_the_cluster_is_the_one_that_the_configuration_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        @staticmethod
        def nodes() -> list[dict[str, Any]]:
            return [{"Alive": alive, "Resources": {"CPU": 20.0, "memory": 1e9}} for alive in (True, True, False)]

    asked: list[str] = []
    monkeypatch.setattr(tasks, "connected", lambda address: (asked.append(address), Ray)[1])
    read = {"a": domain("gsm8k.jsonl", "gsm8k")}
    workspace = workspace_in(tmp_path, minimal("sft", read, cluster={"kind": "ray", "address": "10.0.0.1:6379"}, workers=7))
    family = workspace.family(FAMILIES["sft"])
    assert workspace.runner(family) is None
    sizes = [replace(workspace, pool=Pool(), workers=flag).runner(family) for flag in (None, "auto")]
    assert [each.size for each in sizes if each] == [7, 40]
    assert asked == ["10.0.0.1:6379"] * 2
