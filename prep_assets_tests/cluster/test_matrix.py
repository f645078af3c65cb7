"""One store, whoever writes it, wherever it is kept, whatever is done meanwhile: every cell ends in what one process wrote, to the byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.data import tables as cuts
from prep_assets.engine import build
from prep_assets.engine.events import Accepted, Progress
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.pipeline import tokens as domain_in_shards
from prep_assets.pipeline import tokens as in_shards
from prep_assets.pipeline.workspace import Workspace
from prep_assets.workers.shards import Effort
from prep_assets_tests.cluster import disturbed
from prep_assets_tests.cluster.conftest import ROOT, Nodes
from prep_assets_tests.graph import shard_inputs
from prep_assets_tests.graph.test_workers import identity
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

SHARD_BYTES = 16_000
SEEN = 3
"""Shards that a driver has joined when it is killed."""


DISTURBANCES = ("worker killed", "driver killed", "node added", "node removed")


def cells() -> Iterator[tuple[str, str, int, str, str]]:
    """What, who, how many, where, what happens. One process has no worker that could be killed."""
    for place in ("disk", "bucket"):
        for count in (1, 2, 7):
            yield from (("sft", "local", count, place, what) for what in ("nothing", "driver killed", *["worker killed"] * (count > 1)))
    for count in (1, 2, 3):
        for what in ("nothing", *DISTURBANCES):
            yield from (("sft", "ray", count, place, what) for place in ("disk", "bucket"))
    for what in DISTURBANCES:
        yield from (("pretrain", "ray", 2, place, what) for place in ("disk", "bucket"))


def documents(folder: Path) -> Mapping[str, Any]:
    """Documents of very different lengths, some of them twice, some in two shards, some refused."""
    folder.mkdir()
    texts = [f"{n}: " + "A line of a document, and of no other one.\n" * (n * 37 % 41) for n in range(300)]
    path = shard_inputs.with_bad_lines(jsonl(folder / "docs.jsonl", ({"text": text} for text in [*texts, *texts[::7], "", " "])))
    return minimal("pretrain", {"docs": domain(path, "text")}, test_fraction=0.1, preprocessing={"deduplicate": True})


FAMILIES = {"sft": shard_inputs.chats, "pretrain": documents}
Alone = Mapping[str, tuple[Workspace, tuple[Any, ...]]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """Configurations, and what one process of this machine makes of each: with duplicates, a limit, rows held out and rows that are refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "SHARD_BYTES", SHARD_BYTES)
        patch.setattr(domain_in_shards, "FEWEST", 2)
        found = {}
        for family, data in FAMILIES.items():
            folder = tmp_path_factory.mktemp(family)
            workspace = workspace_in(folder, data(folder / "data"))
            [made] = build(replace(workspace, workers=1), f"{family}_tokens")
            assert made.published.manifest.counts["refused"]
            found[family] = workspace, identity(made.published)
        yield found


DRIVER = """
import sys
from functools import partial
from pathlib import Path
from prep_assets.pipeline.workspace import Workspace
from prep_assets.pipeline import tokens as domain_in_shards
from prep_assets.pipeline import tokens as in_shards
from prep_assets.engine import build
from prep_assets.engine.events import Progress
from prep_assets.data import tables as cuts
from prep_assets_tests.cluster import disturbed

cuts.SHARD_BYTES, domain_in_shards.FEWEST = int(sys.argv[5]), 2
in_shards._encode_shard = partial(disturbed.encode_shard, marks=Path(sys.argv[3]), how="slow", at=3)
tell = lambda event: print(event.what, flush=True) if isinstance(event, Progress) and event.what.startswith("tokenize") else None
build(Workspace(Path(sys.argv[1]), sys.argv[2], workers=int(sys.argv[4])), sys.argv[6], tell=tell)
"""


def killed(workspace: Workspace, asset: str, stores: str, marks: Path, workers: int) -> tuple[int, set[str]]:
    """Begin a build in a process of its own and kill that when some shards are joined: how many were, and the marks that there were."""
    arguments = [str(workspace.configs), stores, str(marks), str(workers), str(SHARD_BYTES), asset]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "11"}
    with subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        seen = 0
        while seen < (SEEN if workers > 1 else 1) and (line := process.stdout.readline()):
            seen += 1 if workers == 1 else b" shards" in line
        process.kill()
    return seen, {path.name for path in marks.iterdir()}


@pytest.mark.parametrize(("family", "who", "count", "where", "what"), list(cells()), ids=lambda value: str(value).replace(" ", "-"))
def test_every_cell_has_the_same_bytes(
    alone: Alone,
    nodes: Nodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    family: str,
    who: str,
    count: int,
    where: str,
    what: str,
) -> None:
    configured, expected = alone[family]
    marks = tmp_path / "marks"
    marks.mkdir()
    kept = f"s3://bucket/{tmp_path.name}" if where == "bucket" else str(tmp_path / "stores")
    (tmp_path / "configs").mkdir()
    said = yaml.safe_load((configured.configs / f"{family}.yaml").read_text("utf-8"))
    cluster = {"kind": "ray", "address": nodes.address} if who == "ray" else {"kind": "local"}
    (tmp_path / "configs" / f"{family}.yaml").write_text(yaml.safe_dump({**said, "cluster": cluster}, sort_keys=False), "utf-8")
    workers = 2 * count if who == "ray" else count  # as many as are given out at a time
    workspace = Workspace(tmp_path / "configs", kept, workers=workers)  # type: ignore[arg-type]
    if who == "ray":
        nodes.be(count)
    seen, before = killed(workspace, f"{family}_tokens", kept, marks, workers) if what == "driver killed" else (0, set())
    told, efforts, build_is = disturbing(what, nodes)
    how = "killed" if what == "worker killed" else "" if what == "nothing" else "slow"
    monkeypatch.setattr(in_shards, "_encode_shard", partial(disturbed.encode_shard, marks=marks, how=how, at=3))
    [made] = build(workspace, f"{family}_tokens", tell=build_is)
    assert identity(made.published) == expected

    begun = [path.name.split("-") for path in marks.iterdir()]
    executions = Counter(int(number) for number, *_ in begun)
    # on a crowded machine a shard may be late, and is given out a second time on purpose; the first may end before the second begins
    redone = executions.total() - len(executions) - efforts[-1].copies
    if workers == 1:
        assert not executions  # no shards
        return
    assert len(executions) >= 6
    assert redone <= 2 * (count + (what == "node added")), "more than what was under way was begun again"
    if what == "worker killed":
        assert executions[3] >= 2
        assert told[-1].endswith(" workers lost")
        assert "died" not in "".join(capfd.readouterr())  # Ray's own messages
    elif what == "driver killed":
        assert seen == SEEN
        again = {int(path.name.partition("-")[0]) for path in marks.iterdir() if path.name not in before}
        assert not again & set(range(SEEN)), "what the first driver had joined was begun again"
    elif what == "nothing":
        assert redone <= 0
        assert len({process for _, process, _ in begun}) <= count + 1, "workers are kept from one shard to the next"
    if where == "bucket":
        assert not [entry.key for entry in Bucket(kept).entries("") if ".shards-" in entry.key]
    assert len(nodes) == count + {"node added": 1, "node removed": -1 if count > 1 else 0}.get(what, 0) or who == "local"


def disturbing(what: str, nodes: Nodes) -> tuple[list[str], list[Effort], Callable[[Any], None]]:
    """What is told of shards and of what they took, and what listens: it takes a node away, or adds one, when 30 % are done. The only one is
    replaced."""
    told: list[str] = []
    efforts: list[Effort] = []

    def act() -> None:
        if what == "node removed":
            nodes.remove()
        if what == "node added" or not len(nodes):
            nodes.add()

    left = iter([act] * what.startswith("node"))

    def tell(event: Any) -> None:
        if isinstance(event, Accepted):
            efforts.append(event.effort)
        if isinstance(event, Progress) and event.what.startswith("tokenize"):
            told.append(event.what)
            if event.done >= 0.3 * event.total:
                next(left, lambda: None)()

    return told, efforts, tell
