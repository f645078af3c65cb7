"""What checks say outside a step: when a sensor finds stores that are gone, have rotted or were built elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

import dagster as dg


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
