"""What a sensor asks for, of every kind of source, against an obvious model of it. A clock that a test moves gives all times."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Protocol

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.extensions.dagster.sensors import look
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, workspace_in
from prep_assets_tests.stores.s3 import serving

huggingface_hub = pytest.importorskip("huggingface_hub", reason="hub addresses need huggingface_hub")


def rows(answer: int) -> bytes:
    return json.dumps({"instruction": "Say it.", "output": f"answer {answer}"}).encode() + b"\n"


class Source(Protocol):
    """A place with files, and an outage of it."""

    pattern: str

    def write(self, name: str, data: bytes, now: int) -> None: ...

    def remove(self, name: str) -> None: ...

    def reach(self, reached: bool) -> None:
        """Begin or end an outage."""

    def signs(self, files: dict[str, tuple[bytes, int]], commits: int) -> object:
        """What a look can see of files, each with the time at which it was written."""

    def content(self, files: dict[str, tuple[bytes, int]], commits: int) -> object:
        """What decides whether a run is asked for."""


class Drive:
    """Files in folders of a network drive, which an outage takes away."""

    def __init__(self, folder: Path) -> None:
        self.mounted, self.unmounted = folder / "drive", folder / "unmounted"
        self.pattern = str(self.mounted / "**" / "*.jsonl")

    def _at(self, name: str) -> Path:
        return (self.unmounted if self.unmounted.exists() else self.mounted) / name

    def write(self, name: str, data: bytes, now: int) -> None:
        self._at(name).parent.mkdir(parents=True, exist_ok=True)
        self._at(name).write_bytes(data)
        os.utime(self._at(name), (now, now))

    def remove(self, name: str) -> None:
        self._at(name).unlink()

    def reach(self, reached: bool) -> None:
        if reached == self.unmounted.exists():
            (self.unmounted if reached else self.mounted).rename(self.mounted if reached else self.unmounted)

    def signs(self, files: dict[str, tuple[bytes, int]], commits: int) -> object:
        return {name: (len(data), now) for name, (data, now) in files.items()}

    def content(self, files: dict[str, tuple[bytes, int]], commits: int) -> object:
        return {name: data for name, (data, _) in files.items()}


class Objects(fsspec.AbstractFileSystem):
    """A bucket whose ETags are hashes of contents. An outage is one of the folder `two`: a busy shard, a permission that is missing."""

    protocol, cachable = "objects", False
    held: ClassVar[dict[str, bytes]] = {}
    reached: ClassVar[bool] = True

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        here = path.rstrip("/") + "/"
        if here.endswith("/two/") and not self.reached:
            raise PermissionError("SlowDown: reduce your request rate")
        return [self.info(name) for name in sorted({here + name[len(here) :].split("/")[0] for name in self.held if name.startswith(here)})]

    def info(self, path: str, **_: Any) -> Any:
        if path not in self.held:
            return {"name": path, "size": 0, "type": "directory"}
        return {"name": path, "size": len(self.held[path]), "type": "file", "ETag": hashlib.md5(self.held[path]).hexdigest()}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        raise AssertionError("a sensor reads no objects")


class Bucket:
    """Objects in that bucket."""

    pattern = "objects://bucket/**/*.jsonl"

    def __init__(self, folder: Path) -> None:
        fsspec.register_implementation("objects", Objects, clobber=True)
        Objects.held = {}

    def write(self, name: str, data: bytes, now: int) -> None:
        Objects.held[f"bucket/{name}"] = data

    def remove(self, name: str) -> None:
        del Objects.held[f"bucket/{name}"]

    def reach(self, reached: bool) -> None:
        Objects.reached = reached

    def signs(self, files: dict[str, tuple[bytes, int]], commits: int) -> object:
        return {name: data for name, (data, _) in files.items()}

    content = signs


class Hub:
    """A branch of a data set that nobody has downloaded; `huggingface_hub` is replaced where it would ask the network."""

    pattern = "hub://owner/name@follow:main"

    def __init__(self, folder: Path) -> None:
        self.commits, self.reached = 0, True
        huggingface_hub.HfApi.dataset_info = self.dataset_info  # the test that uses it puts both back
        huggingface_hub.snapshot_download = self.snapshot_download

    def dataset_info(self, repository: str, *, revision: str) -> Any:
        if not self.reached:
            raise type("ConnectError", (Exception,), {})("nobody answers")
        return type("Info", (), {"sha": f"{self.commits:040x}"})

    def snapshot_download(self, repository: str, *, local_files_only: bool = False, **_: Any) -> str:
        assert local_files_only, "a sensor downloads nothing"
        raise huggingface_hub.errors.LocalEntryNotFoundError("not in the cache")

    def write(self, name: str, data: bytes, now: int) -> None:
        self.commits += 1

    def remove(self, name: str) -> None:
        self.commits += 1

    def reach(self, reached: bool) -> None:
        self.reached = reached

    def signs(self, files: dict[str, tuple[bytes, int]], commits: int) -> object:
        return commits

    content = signs


NAMES = st.sampled_from(("one/x.jsonl", "two/y.jsonl"))
CHANGES = st.one_of(
    *(st.tuples(st.just("write"), NAMES, st.integers(0, 2)), st.tuples(st.just("remove"), NAMES)),
    st.tuples(st.sampled_from(["out", "back", "restart"])),
)
STEPS = st.lists(st.tuples(CHANGES, st.integers(0, 3)), max_size=12)
"""Changes, each with how many looks come after it."""


@pytest.mark.parametrize("kind", [Drive, Bucket, Hub])
@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_a_run_is_asked_for_when_content_that_was_not_asked_for_looks_the_same_twice(
    kind: Callable[[Path], Source], tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[tuple[Any, ...], int]]
) -> None:
    """Whatever is written, removed, out of reach or restarted in between; and the other domain is left alone."""
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub, "snapshot_download", None)
        patch.setattr(huggingface_hub.HfApi, "dataset_info", None)
        source, clock, commits = kind(folder), count(1_700_000_000, 30), 1
        source.reach(True)
        files = {name: (rows(9), next(clock)) for name in ("one/base.jsonl", "two/y.jsonl")}
        for name, (data, now) in files.items():
            source.write(name, data, now)
        other = jsonl(folder / "other.jsonl", [{"instruction": "Say it.", "output": "no"}])
        domains = {"a": {"files": [source.pattern], "schema": "alpaca"}, "b": {"files": [str(other)], "schema": "alpaca"}}
        workspace = workspace_in(folder, minimal("sft", domains))
        cursor, seen, asked, reached, first = None, None, None, True, True
        flat = [each for change, looks in steps for each in (change, *[("look",)] * looks)]
        for step in [*flat, ("back",), *[("look",)] * 3]:
            now = next(clock)
            match step:
                case ("write", name, answer):
                    files[name], commits = (rows(answer), now), commits + 1
                    source.write(name, rows(answer), now)
                case ("remove", name) if name in files:
                    del files[name]
                    commits += 1
                    source.remove(name)
                case ("restart",):
                    workspace = Workspace(workspace.configs, workspace.stores)
                case ("out",) | ("back",):
                    reached = step == ("back",)
                    source.reach(reached)
                case ("look",):
                    result = look(workspace, "sft", cursor)
                    found = {request.partition_key for request in result.run_requests or ()}
                    missed = not reached and (kind is not Bucket or "two/y.jsonl" in files)
                    expected, signs, content = set(), source.signs(files, commits), source.content(files, commits)
                    if not missed and signs == seen and content != asked:
                        expected, asked = {"a"}, content
                    assert found - {"b"} == expected
                    assert ("b" in found) == (cursor is not None and first)
                    first = first and cursor is None
                    seen, cursor = None if missed else signs, result.cursor
        assert asked == source.content(files, commits)


def watched(folder: Path, **patterns: str) -> Workspace:
    """A workspace with a domain for each pattern."""
    return workspace_in(folder, minimal("sft", {name: {"files": [each], "schema": "alpaca"} for name, each in patterns.items()}))


def asked(workspace: Workspace, cursor: str | None, looks: int = 2) -> tuple[list[str | None], str, str | None]:
    """Domains that are asked for in some looks, what the last one says, and its cursor."""
    found = []
    for _ in range(looks):
        result = look(workspace, "sft", cursor)
        cursor = result.cursor
        found += [request.partition_key for request in result.run_requests or ()]
    return found, (result.skip_reason.skip_message or "") if result.skip_reason else "", cursor


def test_what_is_not_reached_is_told_with_how_often_also_beside_a_run(tmp_path: Path) -> None:
    workspace = watched(tmp_path, a="http://127.0.0.1:9/a.jsonl", b=str(jsonl(tmp_path / "b.jsonl", [json.loads(rows(1))])))
    _, said, cursor = asked(workspace, None, looks=1)
    assert "a: cannot list 'http://127.0.0.1:9/a.jsonl'" in said and "so at the last" not in said
    told: list[str] = []
    second = look(workspace, "sft", cursor, tell=told.append)
    assert [request.partition_key for request in second.run_requests or ()] == ["b"]
    assert len(told) == 1 and told[0].startswith("a: cannot list") and "(so at the last 2 looks); nothing is built" in told[0]


def test_objects_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs answers a glob with what it could list, and says nothing of a folder that it could not."""
    s3fs = pytest.importorskip("s3fs", reason="s3:// needs s3fs")
    s3fs.S3FileSystem.clear_instance_cache()
    with serving() as server:
        for name, value in {
            "ACCESS_KEY_ID": "x",
            "SECRET_ACCESS_KEY": "x",
            "DEFAULT_REGION": "us-east-1",
            "ENDPOINT_URL": server.url,
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        system = s3fs.S3FileSystem()
        for name in ("one/x", "two/y"):
            system.pipe(f"bucket/{name}.jsonl", rows(1))
        workspace = watched(tmp_path, a="s3://bucket/*/*.jsonl")
        found, _, cursor = asked(workspace, None)
        assert found == ["a"]
        build(workspace, "sft_raw", "a")
        assert asked(workspace, None)[0] == []  # also where the cursor is lost
        server.deny = "prefix=two"
        found, said, cursor = asked(workspace, cursor)
        assert found == [] and "a: cannot list 's3://bucket/*/*.jsonl'" in said
        server.deny = ""
        assert asked(workspace, cursor)[0] == []
        system.pipe("bucket/two/y.jsonl", rows(2))
        found, _, cursor = asked(workspace, cursor)
        assert found == ["a"]
        system.rm("bucket/two/y.jsonl")
        assert asked(workspace, cursor)[0] == ["a"]
