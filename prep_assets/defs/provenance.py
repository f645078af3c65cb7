"""What Dagster compares to tell whether a store is in sync: versions of its content, its code and its inputs, as tags of an event.

Dagster writes these tags itself for what a step is known to materialize. The engine builds more than that: what is upstream and missing,
and each partition of a range with a version of its own.
"""

from __future__ import annotations

import dagster as dg

# it has no public name
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from prep_assets.assets.graph import EVERY
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.metadata import data_version
from prep_assets.defs.site import Site
from prep_assets.defs.versions import code_version
from prep_assets.engine.planning import Step
from prep_assets.stores.published import Published


def checked_materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """The latest materialization of a store, which is what a check looked at. A check of a partition counts only while it names that."""
    chosen = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition]) if partition else key
    for record in instance.fetch_materializations(chosen, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp)
    return None


def provenance_tags(instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, published: Published) -> dict[str, str]:
    """The tags of a materialization of one store."""
    tags = {
        "dagster/data_version": data_version(published),
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": code_version(workspace.plain, step.asset),
    }
    for name in step.asset.upstream:
        key = site.key(name)
        same = step.partition and EVERY[name].partitioned
        wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[step.partition]) if same else key
        records = instance.fetch_materializations(wanted, limit=1).records
        latest = records[0].asset_materialization if records else None
        version = ((latest.tags if latest else None) or {}).get("dagster/data_version")
        if version:
            tags[f"dagster/input_data_version/{key.to_user_string()}"] = version
            tags[f"dagster/input_event_pointer/{key.to_user_string()}"] = str(records[0].storage_id)
    return tags
