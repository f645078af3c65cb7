"""Runs of the shipped definitions in this process, and what an instance then remembers of them."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.graph.graph import CHECKS
from prep_assets_tests.conftest import ROOT

_FOLDER = tempfile.TemporaryDirectory(prefix="configs-")
CONFIGS = Path(_FOLDER.name) / "configs"
"""The shipped configurations, of 20 rows of each domain and three domains of a family: what a run records does not depend on their number."""
shutil.copytree(ROOT / "configs", CONFIGS, ignore=shutil.ignore_patterns("recipes"))
for _path in CONFIGS.glob("*.yaml"):
    _few = re.sub(r"(schema: \w+)", r"\1, max_items: 20", _path.read_text("utf-8")).replace("n: 5000", "n: 100")
    _path.write_text(re.sub(r"\n +alpaca: .*", "", _few), "utf-8")

# partitions are fixed when the definitions load: whoever wants these takes them from here
assert "prep_assets.definitions" not in sys.modules
with pytest.MonkeyPatch.context() as _patch:
    _patch.setenv("PREP_ASSETS_CONFIG_DIR", str(CONFIGS))
    from prep_assets.definitions import defs

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
DOMAINS = {
    "pretrain": ("docs", "notes"),
    "sft": ("gsm8k", "dolly", "chats"),
    "preference": ("hh", "ultrafeedback"),
    "rl": ("gsm8k",),
}


def run(
    instance: dg.DagsterInstance,
    *assets: str,
    partition: str | None = None,
    between: tuple[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dg.ExecuteInProcessResult:
    """Materialize assets with their checks in one run, as `dagster asset materialize` does.

    Args:
        partition: like ``--partition``.
        between: like ``--partition-range``: its first and last partition.
        options: asset → run config.
    """
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(name) for name in assets],
        partition_key=partition,
        tags={RANGE_START: between[0], RANGE_END: between[1]} if between else None,
        run_config={"ops": {name: {"config": dict(values)} for name, values in (options or {}).items()}},
        raise_on_error=False,
    )


def failures(result: dg.ExecuteInProcessResult) -> str:
    """Why the steps of a run failed, joined."""
    found = []
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            described = data.user_failure_data.description if data.user_failure_data else None
            found.append(described or (data.error.to_string() if data.error else ""))
    return "\n".join(found)


def materializations(instance: dg.DagsterInstance, asset: str) -> list[dg.AssetMaterialization]:
    """Every materialization of an asset, the latest first."""
    records = instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
    return [record.asset_materialization for record in records if record.asset_materialization]


def data_version(materialization: dg.AssetMaterialization) -> str:
    """The data version that Dagster recorded."""
    return (materialization.tags or {})["dagster/data_version"]


def evaluations(instance: dg.DagsterInstance, asset: str, check: str, partition: str | None = None) -> list[dg.AssetCheckEvaluation]:
    """Every evaluation of a check, or those of one partition, the latest first."""
    key = dg.AssetCheckKey(dg.AssetKey(asset), check)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    found = [record.evaluation for record in records if isinstance(record.evaluation, dg.AssetCheckEvaluation)]
    return [each for each in found if partition in (None, each.partition)]


def stale(instance: dg.DagsterInstance, asset: str, partition: str | None = None, definitions: dg.Definitions = defs) -> list[str]:
    """Why Dagster marks a store as unsynced; empty where it does not."""
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    resolver = CachingStaleStatusResolver(
        instance, asset_graph=definitions.resolve_asset_graph(), loading_context=LoadingContextForTest(instance)
    )
    if resolver.get_status(dg.AssetKey(asset), partition) is StaleStatus.MISSING:
        return ["missing"]
    return [f"{cause.asset_key.to_user_string()} {cause.reason}" for cause in resolver.get_stale_causes(dg.AssetKey(asset), partition)]


def plain(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    """Metadata as plain values."""
    tables = {key: [record.data for record in value.records] for key, value in metadata.items() if isinstance(value, dg.TableMetadataValue)}
    return {key: tables.get(key, value.value) for key, value in metadata.items()}


def checks_of(asset: str) -> list[str]:
    """Names of an asset's checks."""
    return [check.name for check in CHECKS[asset]]
