"""A store as events of Dagster: its materialization, what its checks say, and the code version of its asset.

Dagster compares versions of a store's content, its code and its inputs to tell whether it is in sync, and writes them itself for what a step is
known to materialize. There is more than that: what a step builds upstream because it is missing, each partition of a range with a version of
its own, and stores that were built outside Dagster. So the tags are written here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

# these have no public names
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from prep_assets.assets.graph import EVERY
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.caches import bounded_cache
from prep_assets.config.models import FAMILIES
from prep_assets.defs.metadata import check_metadata, data_version
from prep_assets.defs.site import Site
from prep_assets.engine.planning import Step
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.manifest import digest, file_hash
from prep_assets.stores.published import Published

SHOWN_SUMMARY = 2000
UNRECORDED = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
"""Metadata of an output for which Dagster records no materialization."""


def materialization(
    instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, published: Published, metadata: Mapping[str, Any]
) -> dg.AssetMaterialization:
    """That a store was built."""
    return dg.AssetMaterialization(
        site.key(step.asset.name),
        partition=step.partition or None,
        metadata=metadata,
        tags=provenance_tags(instance, site, workspace, step, published),
    )


def evaluations(
    instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, verdicts: Mapping[str, Verdict]
) -> Iterator[dg.AssetCheckEvaluation]:
    """What each check says of a store that was recorded last."""
    key = site.key(step.asset.name)
    target = checked_materialization(instance, key, step.partition)
    for name, verdict in verdicts.items():
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=name,
            passed=verdict.passed,
            severity=dg.AssetCheckSeverity.ERROR,
            description=verdict.summary[:SHOWN_SUMMARY],
            metadata=check_metadata(workspace, step.asset, verdict, step.partition),
            blocking=True,
            partition=step.partition or None,
            target_materialization_data=target,
        )


def known_versions(
    instance: dg.DagsterInstance, site: Site, workspace: Workspace, asset: Asset, partitions: Sequence[str]
) -> dict[str, str]:
    """Partition → data version, of those stores that Dagster knows to be made by this code, and whose checks it knows to hold.

    Where the UI is to show that no run came for hours, one partition is left out, so that each run is seen.
    """
    if workspace.family(FAMILIES[asset.family]).refresh.fresh_for is not None:
        partitions = partitions[1:]
    if not partitions or not asset.checks:
        return {}
    key = site.key(asset.name)
    holding, latest = Counter[str](), dict[str, int]()
    checks = [dg.AssetCheckKey(key, check.name) for check in asset.checks]
    for info in instance.event_log_storage.get_asset_check_partition_info(checks, None, partitions if asset.partitioned else None):
        partition, storage_id = info.partition_key or "", info.latest_materialization_storage_id
        if info.latest_execution_status is AssetCheckExecutionRecordStatus.SUCCEEDED and info.is_current and storage_id is not None:
            holding[partition] += 1
            latest[partition] = storage_id
    ids = [latest[partition] for partition in partitions if holding[partition] == len(checks)]
    if not ids:
        return {}
    code, found = code_version(workspace.plain, asset), dict[str, str]()
    for record in instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=key, storage_ids=ids), limit=len(ids)).records:
        tags = (record.asset_materialization.tags if record.asset_materialization else None) or {}
        if tags.get("dagster/code_version") == code:
            found[record.partition_key or ""] = tags.get("dagster/data_version", "")
    return found


def latest(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    """The record of a store's latest materialization."""
    chosen = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition]) if partition else key
    return next(iter(instance.fetch_materializations(chosen, limit=1).records), None)


def recorded_version(record: dg.EventLogRecord | None) -> str:
    """The data version of a materialization; empty where there is none."""
    found = record.asset_materialization if record else None
    return ((found.tags if found else None) or {}).get("dagster/data_version", "")


def checked_materialization(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """The latest materialization of a store, which is what a check looked at. A check of a partition counts only while it names that."""
    record = latest(instance, key, partition)
    if record is None:
        return None
    return AssetCheckEvaluationTargetMaterializationData(storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp)


def provenance_tags(instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, published: Published) -> dict[str, str]:
    """The tags of a materialization of one store."""
    tags = {
        "dagster/data_version": data_version(published),
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": code_version(workspace.plain, step.asset),
    }
    for name in step.asset.upstream:
        key = site.key(name)
        record = latest(instance, key, step.partition if EVERY[name].partitioned else "")
        if record and (version := recorded_version(record)):
            tags[f"dagster/input_data_version/{key.to_user_string()}"] = version
            tags[f"dagster/input_event_pointer/{key.to_user_string()}"] = str(record.storage_id)
    return tags


FILES = ("tokenizer", "template")
"""Options that may name a folder or a file beside the configuration, whose content counts."""


def code_version(workspace: Workspace, asset: Asset) -> str:
    """The asset's code version and a hash over the options that it depends on, files that these name included.

    What one domain says is left out where each domain has a store of its own: a code version is of the whole asset, and another
    filter in one domain must not mark all others. `prep-assets status` tells them apart.
    """
    family = workspace.family(FAMILIES[asset.family])
    said = family.model_dump(mode="json", by_alias=True, exclude={"domains"})
    options = {option: _value(workspace, said, option) for option in asset.options}
    return f"{asset.version}-{digest(options)[:10]}" if options else asset.version


def _value(workspace: Workspace, said: Mapping[str, Any], option: str) -> Any:
    values: Any = said
    for key in option.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return [values, _content(workspace.configs / str(values))] if option in FILES else values


def _content(path: Path) -> Any:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [[file.name, _hash(file, file.stat().st_size, file.stat().st_mtime_ns)] for file in files if file.is_file()]


@bounded_cache("hashes of files", 4096)
def _hash(file: Path, size: int, changed: int) -> str:
    """sha256 of a file, which is read again only where it looks changed."""
    return file_hash(file)
