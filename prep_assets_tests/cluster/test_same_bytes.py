"""A Ray cluster writes the stores of every family as one process does. What happens to its nodes and workers meanwhile: `test_matrix.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.data import tables as cuts
from prep_assets.engine import build
from prep_assets.engine import execute as checking
from prep_assets.engine.events import Progress
from prep_assets.errors import PrepAssetsError
from prep_assets.pipeline import tokens as domain_in_shards
from prep_assets.pipeline import tokens as in_shards
from prep_assets.pipeline import tokens as lines_in_shards
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.cluster import disturbed
from prep_assets_tests.cluster.conftest import ROOT, STORE, Nodes
from prep_assets_tests.graph import shard_inputs
from prep_assets_tests.graph.test_workers import identity
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

FAMILIES = {
    "sft_tokens": shard_inputs.chats,
    "pretrain_tokens": shard_inputs.documents,
    "preference_tokens": shard_inputs.pairs,
    "rl_tokens": shard_inputs.prompts,
}
IN_A_BUCKET = ("preference_tokens", "rl_tokens")
"""Families whose shards are stretches of lines of another store, which nodes fetch, as they do for checks."""


@dataclass
class Ground:
    """A workspace whose family works on a cluster, and what one process of this machine makes of the same."""

    asset: str
    alone: tuple[Any, ...]
    workspace: Workspace
    marks: Path

    def built(self, tell: Callable[[Progress], None] = lambda event: None) -> tuple[Any, ...]:
        """The store that the cluster makes."""
        [made] = build(self.workspace, self.asset, tell=lambda event: tell(event) if isinstance(event, Progress) else None)
        return identity(made.published)

    @property
    def executions(self) -> Counter[int]:
        """How often each shard was begun."""
        return Counter(int(path.name.partition("-")[0]) for path in self.marks.iterdir())


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "SHARD_BYTES", 4000)
    for module in (domain_in_shards, lines_in_shards):
        monkeypatch.setattr(module, "FEWEST", 2)
    monkeypatch.setattr(checking, "LARGE", 1)


@pytest.fixture
def ground(tmp_path: Path, nodes: Nodes, small_shards: None) -> Callable[..., Ground]:
    def made(asset: str) -> Ground:
        workspace = workspace_in(tmp_path, FAMILIES[asset](tmp_path / "data"))
        [one] = build(replace(workspace, workers=1, stores=tmp_path / "alone"), asset)
        on_ray(workspace, asset, nodes.address)
        marks = tmp_path / "marks"
        marks.mkdir()
        kept = f"s3://bucket/{tmp_path.name}" if asset in IN_A_BUCKET else tmp_path / "cluster"
        return Ground(asset, identity(one.published), Workspace(workspace.configs, kept), marks)  # type: ignore[arg-type]

    return made


def on_ray(workspace: Workspace, asset: str, address: str) -> None:
    """Say in the configuration that the family of an asset works on a cluster."""
    path = workspace.configs / f"{asset.partition('_')[0]}.yaml"
    said = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**said, "cluster": {"kind": "ray", "address": address}}, sort_keys=False), "utf-8")


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def made(ground: Ground, how: str, at: int = 3) -> None:
        monkeypatch.setattr(in_shards, "_encode_shard", partial(disturbed.encode_shard, marks=ground.marks, how=how, at=at))

    return made


@pytest.mark.parametrize("asset", FAMILIES)
def test_undisturbed(ground: Callable[..., Ground], nodes: Nodes, asset: str) -> None:
    nodes.be(2)
    made = ground(asset)
    told: list[str] = []
    assert made.built(lambda event: told.append(event.what) if event.what.startswith("tokenize") else None) == made.alone
    assert len(told) > 5


def test_a_late_shard_is_begun_a_second_time(ground: Callable[..., Ground], nodes: Nodes, disturb: Callable[..., None]) -> None:
    nodes.be(2)
    made = ground("sft_tokens")
    disturb(made, "late")
    assert made.built() == made.alone
    assert made.executions[3] == 2


def test_a_node_with_other_software_is_refused(ground: Callable[..., Ground], nodes: Nodes, tmp_path: Path) -> None:
    nodes.be(0)
    other = tmp_path / "other"
    about = other / "tokenizers-0.0.1.dist-info" / "METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: tokenizers\nVersion: 0.0.1\n")
    nodes.add(other)
    made = ground("sft_tokens")
    try:
        with pytest.raises(PrepAssetsError, match=r"tokenizers is 0\.0\.1 there and .* here"):
            made.built()
    finally:
        nodes.be(0)


def test_the_object_store_holds_no_data(nodes: Nodes, tmp_path: Path) -> None:
    """Text of more bytes than an object store has."""
    import ray

    nodes.be(2)
    line = "The quick brown fox counts to %d and rests. " * 60
    path = jsonl(tmp_path / "large.jsonl", ({"text": f"{n} " + line % tuple(range(n, n + 60))} for n in range(STORE // 2500)))
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": domain(path, "text")}, workers=2))
    assert path.stat().st_size > STORE
    [alone] = build(replace(workspace, workers=1, stores=tmp_path / "alone"), "pretrain_tokens")
    on_ray(workspace, "pretrain_tokens", nodes.address)
    used: list[float] = []

    def tell(event: Any) -> None:
        if isinstance(event, Progress) and ray.is_initialized():
            whole, free = (each().get("object_store_memory", 0) for each in (ray.cluster_resources, ray.available_resources))
            used.append(whole - free)

    [made] = build(Workspace(workspace.configs, tmp_path / "cluster"), "pretrain_tokens", tell=tell)
    assert identity(made.published) == identity(alone.published)
    assert max(used) < 2 << 20


def test_an_address_where_no_cluster_answers_is_named(tmp_path: Path, nodes: Nodes) -> None:
    script = "from prep_assets.extensions.ray.tasks import connected; connected('127.0.0.1:1')"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_raylet_start_wait_time_s": "1"}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ, timeout=120).stderr
    assert "no Ray cluster answers at cluster.address '127.0.0.1:1'" in said
