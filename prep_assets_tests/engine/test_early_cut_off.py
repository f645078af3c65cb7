"""What has the content that is asked for is not written again, however its sources or options were touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from prep_assets.engine import build
from prep_assets.engine.events import Event, Tally, Written
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.explain.made import small
from prep_assets_tests.graph.workspaces import workspace_in

ASSET = "sft_export_trl"


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("cut_off")
    workspace = workspace_in(folder, {"sft": small(folder / "data")["sft"]})
    build(workspace, ASSET)
    return workspace


@pytest.fixture
def folder(_made: Workspace, tmp_path: Path) -> Path:
    root = _made.configs.parent
    shutil.copytree(root, tmp_path / "w", symlinks=True)
    config = tmp_path / "w" / "configs" / "sft.yaml"
    config.write_text(config.read_text("utf-8").replace(str(root), str(tmp_path / "w")), "utf-8")
    return tmp_path / "w"


def opened(folder: Path) -> Workspace:
    return Workspace(folder / "configs", folder / "stores")


def inodes(folder: Path) -> dict[str, int]:
    """The folder of each current store, by inode: the same only where nothing was written."""
    workspace, found = opened(folder), {}
    for asset in assets_of(workspace).values():
        for partition in asset.partitions(workspace):
            place = workspace.place(asset.name, partition)
            if (current := place.current()) is not None:
                found[place.label] = current.directory.stat().st_ino
    return found


def rebuilt(folder: Path) -> tuple[set[str], set[str], str]:
    """Stores that point to another folder after a build, stores that were written, and what the run says."""
    before, written, tally = inodes(folder), set[str](), Tally()

    def tell(event: Event) -> None:
        tally.add(event)
        if isinstance(event, Written) and not event.published.reused:
            written.add(event.step.label)

    build(opened(folder), ASSET, tell=tell)
    after = inodes(folder)
    return {label for label, inode in after.items() if before.get(label) != inode}, written, str(tally)


def test_the_order_of_keys_rebuilds_the_tokens_of_one_domain(folder: Path) -> None:
    path = folder / "data" / "one.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    turned = [{"messages": [dict(reversed(message.items())) for message in row["messages"]]} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in turned), "utf-8")
    _, written, said = rebuilt(folder)
    # the pin of the file, and the tokens, which come out equal: nothing further on is touched
    assert written == {"sft_raw[one]", "sft_tokens[one]"}
    assert said == "2 of 3 domains reused"


def test_a_change_that_is_taken_back_finds_the_old_stores(folder: Path) -> None:
    path = folder / "configs" / "sft.yaml"
    text = path.read_text("utf-8")
    before = inodes(folder)
    path.write_text(text.replace("row_len: 32", "row_len: 64"), "utf-8")
    assert rebuilt(folder)[1] == {"sft_packed", ASSET}
    path.write_text(text, "utf-8")
    assert rebuilt(folder)[1] == set()
    assert inodes(folder) == before
