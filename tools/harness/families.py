"""Workloads that build each asset of each family, and exports of them, as `prep-assets build` does: sources, checks and all; some in shards."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

from harness.workloads import InTurn, Workload
from prep_assets.data import tables as cuts
from prep_assets.graph.graph import EVERY, asset_named, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores import arrays
from prep_assets.stores import arrays as columns
from prep_assets.stores import files as digests
from prep_assets.stores.published import Place
from prep_assets_tests.graph.workspaces import SAMPLES, build_all, domain, make, minimal, with_groups, with_others, workspace_in

ROWS = 12
SHARD = 100
"""Bytes of source, so that twelve rows have several shards."""
SHARDED = ("sft_raw", "sft_tokens", "preference_tokens_by_domain", "rl_tokens_by_domain", "pretrain_tokens")
EXPORTS = {
    "pretrain": {"megatron": "pretrain_tokens", "olmo": "pretrain_tokens", "nanotron": "pretrain_tokens"},
    "sft": {"hf_arrow": "sft_packed", "mds": "sft_packed", "packed_parquet": "sft_packed"},
    "preference": {"hf_parquet": "preferences"},
}


class _Pool(InTurn):
    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[Any, Any] = {}

    def runner(self, *_: Any, **__: Any) -> InTurn:
        return self


def _configured(folder: Path) -> Workspace:
    """All families over the first rows of shipped samples."""
    folder.mkdir(parents=True)

    def first(name: str, schema: str) -> dict[str, Any]:
        lines = (SAMPLES / name).read_text("utf-8").splitlines(keepends=True)[:ROWS]
        (folder / name).write_text("".join(lines), "utf-8")
        return domain(folder / name, schema)

    families = {
        **minimal("pretrain", {"notes": first("notes.txt", "text")}, test_fraction=0.1),
        **minimal("sft", {"chats": first("chats.jsonl", "messages")}, template="chatml", packing={"strategy": "concat", "row_len": 512}),
        **minimal("preference", {"pairs": first("ultrafeedback.jsonl", "ultrafeedback")}, test_fraction=0.1),
        **minimal("rl", {"questions": first("gsm8k.jsonl", "gsm8k")}, test_fraction=0.1, arithmetic={"n": ROWS}),
    }
    for family, exports in EXPORTS.items():
        families[family]["exports"] = {name: {"from": source, "to": name} for name, source in exports.items()}
    return workspace_in(folder, with_others(with_groups(families, folder / "groups", ROWS), folder / "contrasts"))


@cache
def _workspace() -> Workspace:
    return _configured(Path(tempfile.mkdtemp(prefix="families-")) / "workspace")


@cache
def _built(family: str) -> Path:
    """All stores of a family, built once for this process."""
    with mock.patch.object(cuts, "SHARD_BYTES", SHARD):
        build_all(_workspace(), [family])
    return _workspace().stores


def _fed(place: Place, family: str) -> None:
    """All stores of the family but the one that is built."""
    for name in (name for name, asset in EVERY.items() if asset.family == family):
        if (stores := _built(family) / name).exists():
            shutil.copytree(stores, place.root / name, symlinks=True)
    shutil.rmtree(place.directory, ignore_errors=True)


def _build(place: Place, sharded: bool) -> None:
    workspace = replace(_workspace(), stores=place.root, pool=_Pool() if sharded else None)  # type: ignore[arg-type]
    with (
        mock.patch.object(cuts, "SHARD_BYTES", SHARD),
        mock.patch.object(columns, "IN_MEMORY", 64),  # columns, digests and spools of any size wait on disk
        mock.patch.object(digests, "IN_MEMORY", 64),
        mock.patch.object(arrays, "RECENT", 64),
    ):
        make(workspace, asset_named(place.asset, workspace), place.partition)


def families() -> list[Workload]:
    """One for each asset, of its first domain, and for each export; more in shards."""
    found = []
    for name, asset in assets_of(_workspace()).items():
        partition = asset.partitions(_workspace())[0]
        for sharded in (False, True)[: 1 + (name in SHARDED)]:
            what = f"{'in shards' if sharded else 'build'}: {name}"
            found.append(
                Workload(what, partial(_fed, family=asset.family), partial(_build, sharded=sharded), asset=name, partition=partition)
            )
    return found
