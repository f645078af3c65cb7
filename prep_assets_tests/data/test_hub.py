"""Hub addresses, with a folder that stands in for the hub behind the real `huggingface_hub` cache layout."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from prep_assets.data.files import HubAddress, find_files, hub_address
from prep_assets.errors import ConfigError, SourceError, SourceUnavailable

huggingface_hub = pytest.importorskip("huggingface_hub", reason="hub addresses need huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTENT = {"README.md": b"# card", "dataset_infos.json": b"{}", "data/train-0.jsonl": b'{"n": 0}\n', "data/train-1.jsonl": b'{"n": 0}\n'}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A full cache of one data set and no connection. Files of equal content are one blob there, as in a real cache."""
    root = tmp_path / "cache" / "datasets--owner--name"
    snapshot = root / "snapshots" / COMMIT
    for path, data in CONTENT.items():
        blob = root / "blobs" / hashlib.sha1(data).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(blob)
    real = huggingface_hub.snapshot_download

    def offline(*args: object, **options: object) -> str:
        return str(real(*args, **{**options, "cache_dir": root.parent, "local_files_only": True}))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    return root


class Branches(BaseHTTPRequestHandler):
    """The hub's answer to where a branch is."""

    at: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        branch = self.path.rpartition("/")[2]
        found = self.at.get(branch, "404")
        self.send_response(200 if len(found) == 40 else int(found))
        self.end_headers()
        self.wfile.write(json.dumps({"id": "owner/name", "sha": found}).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def branches(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A hub on this machine: branch → the commit that it is at, or the status of the answer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Branches) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(Branches, "at", {})
        yield Branches.at
        server.shutdown()


def names(*patterns: str) -> list[str]:
    return [file.name for file in find_files(patterns, Path("/nowhere"))]


def test_an_address_has_a_full_commit_and_perhaps_a_path() -> None:
    assert hub_address(f"hub://owner/na.me@{COMMIT}") == HubAddress("owner/na.me", COMMIT, None)
    assert hub_address(f"hub://o/n@{COMMIT}/data/*.parquet") == HubAddress("o/n", COMMIT, "data/*.parquet")


@pytest.mark.parametrize("revision", ["", "@main", "@0123456", f"@{COMMIT[:-1]}", f"@{COMMIT.upper()}", "/data"])
def test_a_revision_that_may_move_is_refused(revision: str) -> None:
    with pytest.raises(ConfigError, match="needs a full commit"):
        hub_address(f"hub://owner/name{revision}")


@pytest.mark.parametrize("text", ["hub://name", "hub:///name@x", f"hub://owner/name@{COMMIT}/../../etc", "hub://"])
def test_something_else_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a hub address"):
        hub_address(text)


def test_files_of_the_cache_are_found_offline_under_names_without_the_cache(hub: Path) -> None:
    assert names(f"hub://owner/name@{COMMIT}") == ["train-0.jsonl", "train-1.jsonl"]
    assert names(f"hub://owner/name@{COMMIT}/data/*-1.jsonl") == ["train-1.jsonl"]
    assert names(f"hub://owner/name@{COMMIT}/data") == ["train-0.jsonl", "train-1.jsonl"]
    assert names(f"hub://owner/name@{COMMIT}/data/*-1.jsonl", f"hub://owner/name@{COMMIT}/dataset_infos.json") == [
        "data/train-1.jsonl",
        "dataset_infos.json",
    ]
    (first, _) = find_files([f"hub://owner/name@{COMMIT}"], Path("/"))
    assert Path(first.url).read_bytes() == b'{"n": 0}\n'


def test_local_and_hub_files_of_one_domain_have_names_without_either_folder(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(b"{}")
    assert names(f"hub://owner/name@{COMMIT}", str(tmp_path / "mine.jsonl")) == [
        "file/mine.jsonl",
        "hub/train-0.jsonl",
        "hub/train-1.jsonl",
    ]


def test_a_saved_data_set_on_the_hub_keeps_its_order(hub: Path) -> None:
    folder = hub / "snapshots" / COMMIT / "saved"
    folder.mkdir()
    for name in ("b.arrow", "a.arrow"):
        (folder / name).write_bytes(b"x")
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}))
    assert names(f"hub://owner/name@{COMMIT}/saved") == ["b.arrow", "a.arrow"]


def test_what_is_not_there_stops(hub: Path) -> None:
    with pytest.raises(SourceError, match="matches no file of the data set"):
        names(f"hub://owner/name@{COMMIT}/*.parquet")
    other = COMMIT[::-1]
    with pytest.raises(SourceError, match=f"cannot fetch hub data set 'owner/name' at commit {other}.*HF_TOKEN"):
        names(f"hub://owner/name@{other}")


def test_a_branch_that_is_followed_is_read_at_the_commit_that_the_hub_names(hub: Path, branches: dict[str, str]) -> None:
    branches.update(main=COMMIT, **{"refs%2Fconvert%2Fparquet": COMMIT})
    assert hub_address("hub://o/n@follow:refs%2Fconvert%2Fparquet/data") == HubAddress("o/n", None, "data", "refs/convert/parquet")
    for branch in ("main", "refs%2Fconvert%2Fparquet"):
        assert names(f"hub://owner/name@follow:{branch}/data") == ["train-0.jsonl", "train-1.jsonl"]
    branches["main"] = COMMIT[::-1]
    with pytest.raises(SourceError, match=f"at commit {COMMIT[::-1]}"):
        names("hub://owner/name@follow:main")
    with pytest.raises(ConfigError, match="To take whatever a branch holds, today and tomorrow, write @follow:main"):
        hub_address("hub://owner/name@main")


def test_a_hub_that_does_not_answer_is_no_old_commit_of_a_branch(
    hub: Path, branches: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(COMMIT)  # what the cache remembers
    branches["main"] = "503"
    with pytest.raises(SourceUnavailable, match=r"cannot look at branch 'main' of the hub data set 'owner/name'.*503"):
        names("hub://owner/name@follow:main")
    with pytest.raises(SourceError, match=r"404|Not Found") as gone:
        names("hub://owner/name@follow:other")
    assert not isinstance(gone.value, SourceUnavailable)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceUnavailable, match="cannot look at branch 'main'"):
        names("hub://owner/name@follow:main")


def test_what_is_not_in_the_cache_is_looked_at_without_a_download(hub: Path, branches: dict[str, str]) -> None:
    branches["main"] = COMMIT
    [one, two] = find_files(["hub://owner/name@follow:main"], Path("/"), fetch=False)
    assert Path(one.url).is_file() and (one.listed, two.name) == ("", "train-1.jsonl")
    branches["main"] = COMMIT[::-1]
    [pattern] = find_files(["hub://owner/name@follow:main"], Path("/"), fetch=False)
    assert (pattern.url, pattern.listed) == ("hub://owner/name@follow:main", f"commit={COMMIT[::-1]}")
