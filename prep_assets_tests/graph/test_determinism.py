"""The same inputs give the same bytes: in another folder, with domains listed in another order, with other hash seeds, by another engine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from prep_assets.config.models import Sft
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import CONFIGS, build_all, shipped, tree, workspace_in

BUILD = """
import sys
from pathlib import Path
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import build_all
for folder in sys.argv[1:]:
    build_all(Workspace(Path(folder, "configs"), Path(folder, "stores")))
"""


def backwards(storage_format: str) -> dict[str, dict[str, object]]:
    """The shipped configurations, every mapping's keys in the opposite order."""
    return {
        family: {**dict(reversed(options.items())), "domains": dict(reversed(options["domains"].items()))}
        for family, options in shipped(storage_format).items()
    }


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    """By storage format what another process built, in another folder and of another hash seed."""
    root = tmp_path_factory.mktemp("some") / "other folder"
    made = {storage: workspace_in(root / storage, backwards(storage)) for storage in ("h5", "bin")}
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": str(CONFIGS.parent), "TZ": "Asia/Kathmandu"}
    subprocess.run([sys.executable, "-c", BUILD, *(root / storage for storage in made)], env=environment, cwd=root, check=True)
    return made


def test_whole_trees_are_equal_to_the_byte(built: Workspace, elsewhere: dict[str, Workspace]) -> None:
    first, second = tree(built.stores), tree(elsewhere[built.family(Sft).output.storage_format].stores)
    assert list(first) == list(second)
    assert [name for name in first if first[name] != second[name]] == []
    # 9 raw, 6 tokens of a domain, the template, the packed table; of preferences two of each domain and two merged, of RL as many and two of sums
    assert sum(name.endswith("manifest.json") for name in first) == 9 + 6 + 2 + (4 + 2) + (2 + 2 + 2)


def test_building_again_rewrites_nothing(copied: Workspace) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.stores.rglob("*") if path.is_file() and "versions" in path.parts}
    again = build_all(copied)
    assert all(published.reused for published in again.values())
    assert {path: path.stat().st_mtime_ns for path in before if path.name != ".lock"} == {
        p: t for p, t in before.items() if p.name != ".lock"
    }


def test_the_reference_engine_gives_the_same_payload(make: Make, copied: Workspace) -> None:
    slow = make({name: {**each, "engine": "reference"} for name, each in shipped().items()}, "slow")
    assert copied.engines(copied.family(Sft)).first.name != slow.engines(slow.family(Sft)).first.name
    fast_stores, slow_stores = build_all(copied), build_all(slow)
    assert all(published.reused for published in fast_stores.values())
    for key, published in fast_stores.items():
        assert slow_stores[key].manifest.content_hash == published.manifest.content_hash, key
        assert dict(slow_stores[key].manifest.files) == dict(published.manifest.files)
    assert fast_stores["sft_tokens", "chats"].manifest.build_key != slow_stores["sft_tokens", "chats"].manifest.build_key


def test_nothing_in_a_manifest_tells_the_folder_or_the_time(copied: Workspace) -> None:
    folders = [str(folder) + "/" for folder in (CONFIGS.parent, Path.home(), Path(tempfile.gettempdir()))]
    for path in copied.stores.rglob("manifest.json"):
        text = path.read_text("utf-8")
        assert [folder for folder in folders if folder in text] == [], path
