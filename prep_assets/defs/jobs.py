"""What sensors and schedules start, and where they record the checks of stores that are gone, have rotted or were built elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import dagster as dg

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.graph import family_assets
from prep_assets.defs.site import Site

SECONDS = 30
"""Between two looks of a sensor."""


def family_job(site: Site, name: str, family: str, *, partitioned: bool = False) -> Any:
    """All assets of a family, or those that have a store for each domain. Assets of several families have no partitions in common, so no job has them all."""
    assets = (asset for asset in family_assets(site.declared(), family).values() if asset.partitioned or not partitioned)
    # without checks, which each step says of what it builds: Dagster would plan one for each partition, and want to be told of all
    selection = dg.AssetSelection.assets(*(site.key(asset.name) for asset in assets)).without_checks()
    return dg.define_asset_job(site.named(f"{name}_{family}"), selection=selection, tags={"prep_assets/family": family})


def damaged(site: Site, asset: str, partition: str, why: str) -> dg.AssetCheckEvaluation:
    """That a store is not what it was."""
    return dg.AssetCheckEvaluation(
        asset_key=site.key(asset), check_name=INTEGRITY.name, passed=False, description=why, partition=partition or None
    )


class OutsideRun:
    """A run that has ended, to which evaluations of checks belong that no step made; it is there once there is one.

    Dagster 1.13 keeps one evaluation of a check and partition for each run, and counts all that a sensor returns as those of one run: the
    second failure of a partition would end the sensor with an `IntegrityError`, at this and each later look.
    """

    def __init__(self, instance: dg.DagsterInstance, name: str) -> None:
        self._instance, self._name, self._id = instance, name, ""

    def record(self, evaluations: Iterable[dg.AssetCheckEvaluation]) -> None:
        """Record what checks say."""
        for evaluation in evaluations:
            if not self._id:
                by = {"dagster/sensor_name": self._name}
                self._id = self._instance.add_run(dg.DagsterRun(job_name=self._name, run_id=str(uuid4()), tags=by)).run_id
                # ended before anything is recorded, so that a sensor which dies leaves no run under way
                self._report(dg.DagsterEventType.RUN_START)
                self._report(dg.DagsterEventType.RUN_SUCCESS)
            self._report(dg.DagsterEventType.ASSET_CHECK_EVALUATION, evaluation)

    def _report(self, kind: dg.DagsterEventType, data: dg.AssetCheckEvaluation | None = None) -> None:
        event = dg.DagsterEvent(event_type_value=kind.value, job_name=self._name, event_specific_data=data)
        self._instance.report_dagster_event(event, run_id=self._id)
