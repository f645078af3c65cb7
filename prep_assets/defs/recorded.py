"""A sensor that records stores which were built outside Dagster: on the command line, from Python, by another instance."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from prep_assets.assets.graph import family_assets
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.domains import register
from prep_assets.defs.jobs import SECONDS, OutsideRun
from prep_assets.defs.metadata import data_version, store_metadata
from prep_assets.defs.provenance import evaluations, latest, materialization, recorded_version
from prep_assets.defs.site import Site
from prep_assets.engine.planning import Step
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.mirror import bucket_of

NAME = "built_elsewhere"
AT_ONCE = 100
"""Stores that one look records: a sensor may take a minute, and each store has pictures drawn of it."""
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def recorder(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """The sensor. It starts no run, so it is on from the beginning: what `prep-assets build` made stands in the graph half a minute later."""

    @dg.sensor(
        name=site.named(NAME),
        target=None,
        minimum_interval_seconds=SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records stores on this machine that were built outside Dagster, e.g. by `prep-assets build`, with what their checks said. Starts no run.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if context.instance.get_runs_count(dg.RunsFilter(statuses=UNDER_WAY)):
            return dg.SensorResult(skip_reason="runs are under way, which record what they build", cursor=context.cursor)
        workspace = site.open()
        for family in families:
            register(context.instance, site, workspace, family)
        if bucket_of(workspace.stores) is not None:
            return dg.SensorResult(skip_reason="the stores are in a bucket, where only Dagster's own builds are recorded")
        since = int(context.cursor or 0)
        changed = changed_stores(workspace, families, since)
        checks = OutsideRun(context.instance, site.named(NAME))
        recorded = [step.label for _, step in changed[:AT_ONCE] if record(context.instance, site, workspace, step, checks)]
        message = f"recorded {', '.join(recorded)}" if recorded else "no store was built outside Dagster"
        later = len(changed) - AT_ONCE
        more = f"; later looks record {later} more" if later > 0 else ""
        last = changed[:AT_ONCE][-1][0] if changed else since
        return dg.SensorResult(skip_reason=message + more, cursor=str(last))

    return look


def changed_stores(workspace: Workspace, families: Sequence[str], since: int) -> list[tuple[int, Step]]:
    """The stores on disk whose `current` was replaced at a time or later, in the order in which that happened.

    So what a store was made from comes before it, as it did when it was built. The first of each pair is the time, in nanoseconds.
    """
    found = []
    for family in families:
        for asset in family_assets(workspace, family).values():
            for partition in asset.partitions(workspace):
                pointer = workspace.place(asset.name, partition).directory / "current"
                try:
                    when = pointer.lstat().st_mtime_ns
                except OSError:
                    continue
                if when >= since:
                    found.append((when, Step(asset, partition, "current", "", requested=True)))
    return sorted(found, key=lambda each: each[0])


def record(instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, checks: OutsideRun) -> bool:
    """Record a store and its checks, unless Dagster knows it; whether it did."""
    try:
        published = workspace.published(step.asset.name, step.partition)
    except PrepAssetsError:
        return False  # damaged: its own check says so
    if published is None or data_version(published) == recorded_version(latest(instance, site.key(step.asset.name), step.partition)):
        return False
    metadata = {"built_elsewhere": True, **store_metadata(workspace, published)}
    instance.report_runless_asset_event(materialization(instance, site, workspace, step, published, metadata))
    results = {name: Verdict(*result) for name, result in (published.results or {}).items()}
    checks.record(evaluations(instance, site, workspace, step, results))
    return True
