"""The sensor that scrubs: damage fails the check of its store and of those made from it, and asks for runs that mend them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.engine import build
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.sensors import scrubber
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets_tests.extensions.dagster.runs import evaluations
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in


def test_damage_becomes_failed_checks_and_runs(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    source = jsonl(tmp_path / "rows.jsonl", ({"text": f"Document {n} has words."} for n in range(60)))
    workspace = workspace_in(tmp_path, minimal("pretrain", {"a": domain(source, "text")}))
    build(workspace, "pretrain_tokens")
    sensor = scrubber(
        Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores))), ["pretrain"]
    )

    def look(cursor: str | None) -> dg.SensorResult:
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            found = sensor(context)
        assert isinstance(found, dg.SensorResult)
        return found

    sound = look(None)
    assert not sound.run_requests
    assert "0 files damaged" in str(sound.skip_reason)
    published = workspace.built("pretrain_raw", "a")
    path = published.directory / "sources.json"
    path.write_bytes(path.read_bytes().replace(b"rows", b"Rows"))
    found = look(sound.cursor)
    stores = ["pretrain_raw", "pretrain_tokens"]
    assert [(each.asset_selection, each.partition_key) for each in found.run_requests or ()] == [
        ([dg.AssetKey(store)], "a") for store in stores
    ]
    failed = [evaluations(instance, store, INTEGRITY.name, "a") for store in stores]
    assert [[each.passed for each in found] for found in failed] == [[False], [False]]
    assert "sources.json are not what they were. Build it again" in str(failed[0][0].description)
    source.write_bytes(source.read_bytes())  # touched: not taken for rot
    build(workspace, "pretrain_tokens")
    assert not look(found.cursor).run_requests
