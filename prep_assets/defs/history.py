"""What Dagster's event log remembers of checks.

A blocking check stops what is downstream in its own run only, and the log keeps one latest result per check, not one per partition. So a
later run could build on a store that failed, and a run of another partition could cover the failure up. Both ask here first.
"""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from prep_assets.pipelines.proving.checks import checks_of

FAILED_PARTITIONS = "failed_partitions"
"""Metadata of a failed check of a partitioned asset: the partitions for which it does not hold."""


def failing(instance: dg.DagsterInstance, asset: str, partitions: tuple[str, ...]) -> set[str]:
    """Those of `partitions` for which a check of the asset failed, or crashed, when it last ran. One that never ran is not among them."""
    keys = [_key(asset, check.name) for check in checks_of(asset)]
    found: set[str] = set()
    for record in instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).values():
        if record.status is AssetCheckExecutionRecordStatus.FAILED:
            found |= _failed_partitions(record) or set(partitions)
        elif record.status is AssetCheckExecutionRecordStatus.PLANNED and _run_failed(instance, record.run_id):
            found |= set(partitions)
    return found & set(partitions)


def failed_before(instance: dg.DagsterInstance, asset: str, check: str) -> set[str]:
    """The partitions for which a check did not hold when it last came to an end."""
    completed = COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    records = instance.event_log_storage.get_asset_check_execution_history(_key(asset, check), limit=1, status=completed)
    return _failed_partitions(records[0]) if records else set()


def _key(asset: str, check: str) -> dg.AssetCheckKey:
    return dg.AssetCheckKey(dg.AssetKey(asset), check)


def _failed_partitions(record: AssetCheckExecutionRecord) -> set[str]:
    listed = record.evaluation.metadata.get(FAILED_PARTITIONS) if record.evaluation else None
    return {str(name) for name in listed.value} if isinstance(listed, dg.JsonMetadataValue) and isinstance(listed.value, list) else set()


def _run_failed(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is not None and run.is_failure_or_canceled
