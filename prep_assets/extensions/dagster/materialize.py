"""Dagster runs: jobs of sensors, steps that build and check, their logs, dead runs and lost stores."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.engine import Statuses, plan, run
from prep_assets.engine.events import Accepted, Blocked, Candidate, Checked, Event, Planned, Skipped, Started, Tally, Written
from prep_assets.engine.execute import check
from prep_assets.engine.plan import Step, StoreKey
from prep_assets.errors import PrepAssetsError, SourceUnavailable
from prep_assets.extensions.dagster.io_manager import Stores
from prep_assets.extensions.dagster.metadata import (
    UNRECORDED,
    WARNINGS,
    data_version,
    evaluations,
    known_versions,
    materialization,
    store_metadata,
)
from prep_assets.extensions.dagster.site import Site, WorkspaceResource, chosen, publishes, register
from prep_assets.graph.graph import family_assets
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import RECALLED

# Jobs of sensors and schedules, and the run that records checks of stores that are lost, damaged or built elsewhere.

SECONDS = 30
"""Between two ticks of a sensor."""


def family_job(site: Site, name: str, family: str, *, partitioned: bool = False) -> Any:
    """A job of all assets of a family, or of its partitioned ones. Families share no partitions, so no job spans them."""
    assets = (asset for asset in family_assets(site.declared(), family).values() if asset.partitioned or not partitioned)
    # without checks: steps report those of what they build, while Dagster would plan and expect one per partition
    selection = dg.AssetSelection.assets(*(site.key(asset.name) for asset in assets)).without_checks()
    return dg.define_asset_job(site.named(f"{name}_{family}"), selection=selection, tags={"prep_assets/family": family})


def damaged(site: Site, asset: str, partition: str, why: str) -> dg.AssetCheckEvaluation:
    """A failed integrity check of a store."""
    return dg.AssetCheckEvaluation(
        asset_key=site.key(asset), check_name=INTEGRITY.name, passed=False, description=why, partition=partition or None
    )


class OutsideRun:
    """A finished run that holds check evaluations of no step; it is created with the first one.

    Dagster 1.13 keeps one evaluation per check, partition and run, and assigns all evaluations that a sensor returns to one run: the
    second failure of a partition would stop the sensor with an `IntegrityError`, at this and every later tick.
    """

    def __init__(self, instance: dg.DagsterInstance, name: str) -> None:
        self._instance, self._name, self._id = instance, name, ""

    def record(self, evaluations: Iterable[dg.AssetCheckEvaluation]) -> None:
        """Record evaluations of checks."""
        for evaluation in evaluations:
            if not self._id:
                tags = {"dagster/sensor_name": self._name}
                self._id = self._instance.add_run(dg.DagsterRun(job_name=self._name, run_id=str(uuid4()), tags=tags)).run_id
                # finished before anything is recorded, so that a killed sensor leaves no running run
                self._report(dg.DagsterEventType.RUN_START)
                self._report(dg.DagsterEventType.RUN_SUCCESS)
            self._report(dg.DagsterEventType.ASSET_CHECK_EVALUATION, evaluation)

    def _report(self, kind: dg.DagsterEventType, data: dg.AssetCheckEvaluation | None = None) -> None:
        event = dg.DagsterEvent(event_type_value=kind.value, job_name=self._name, event_specific_data=data)
        self._instance.report_dagster_event(event, run_id=self._id)


# The run's log.

LONG, SECONDS_BETWEEN = 1 << 24, 300.0
"""Bytes of work from which progress is logged, and the longest silence in seconds."""


def log_event(context: dg.AssetExecutionContext, event: Event) -> None:
    """Log an event of the engine to the run's log."""
    match event:
        case Planned(steps):
            first = [step for step in steps if not step.requested]
            if first:
                named = ", ".join(f"{step.label} ({step.why})" for step in first)
                context.log.info(f"building first what it is made from: {named}")
        case Started(step):
            context.log.info(f"{step.label}: {step.why or 'checked again'}")
        case Written(step, published):
            what = "nothing to do, the store is there" if published.reused else "written"
            context.log.info(f"{step.label}: {what}: {published.where}")
            for note in published.notes:
                context.log.warning(f"{step.label}: {note}")
        case Checked(step, name, verdict) if not verdict.passed:
            context.log.error(f"{step.label}: {name} does not hold: {verdict.summary}")
        case Accepted(step, published, _, overrides, True):
            changed = ", ".join(overrides)
            context.log.warning(f"{step.label}: a draft with {changed}; current has not moved. The draft is in {published.where}")
        case Candidate():
            pass  # the IO manager says when it is published
        case Accepted(step, published):
            context.log.info(f"{step.label}: every check holds, published: {published.where}")
        case Blocked(_, reason):
            context.log.error(reason)
        case Skipped(step, because):
            context.log.error(f"{step.label}: not built, because {because.label} could not be")


class LogProgress:
    """Logs progress of long work, at every tenth and every few minutes."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._log, self._reported = context.log, dict[str, tuple[int, float]]()

    def __call__(self, what: str, done: int, total: int) -> None:
        work, _, figures = what.partition(": ")
        share, now = min(100, 100 * done // total) if total else 100, time.monotonic()
        tenth, before = self._reported.get(work, (0, now))
        if total > LONG and (share // 10 > tenth or now - before > SECONDS_BETWEEN):
            self._log.info(f"{work}: {share} %" + (f", {figures}" if figures else ""))
            before = now
        self._reported[work] = share // 10, before


# Dagster's records without their objects: runs whose process died, and stores that were moved or deleted by hand.

PROCESS = ".dagster/prep_assets_process"
RUNNING = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING]


def sign(context: dg.AssetExecutionContext) -> None:
    """Tag the run with its process."""
    context.instance.add_run_tags(context.run.run_id, {PROCESS: _process(os.getpid())})


def close_gone(instance: dg.DagsterInstance) -> list[str]:
    """Mark running runs of this machine as failed whose process is gone; return their ids."""
    closed = []
    for run in instance.get_runs(dg.RunsFilter(statuses=RUNNING)):
        host, _, rest = run.tags.get(PROCESS, "").rpartition(" ")[0].rpartition(" ")
        if host == socket.gethostname() and _process(int(rest)) != run.tags[PROCESS]:
            instance.report_run_failed(run, "The process of this run is gone: it was killed, or its terminal was closed.")
            closed.append(run.run_id)
    return closed


def _process(pid: int) -> str:
    """Host, process id, and start time, since ids are reused; without `/proc`, whether the process runs."""
    started = "gone"
    try:
        # the 22nd field; the second is a name in parentheses, which may hold spaces
        started = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except OSError:
        if not Path("/proc/self/stat").exists():
            with suppress(ProcessLookupError):
                with suppress(PermissionError):
                    os.kill(pid, 0)
                started = "running"
    return f"{socket.gethostname()} {pid} {started}"


def lost_stores(
    site: Site, workspace: Workspace, instance: dg.DagsterInstance, family: str, known: set[str]
) -> tuple[list[dg.AssetCheckEvaluation], set[str]]:
    """Failed checks for stores of a family that are gone or recalled since the last tick, and the labels of all that are; passed ones for those that are
    back as they were.

    Args:
        known: labels of stores that were gone or recalled at the last tick, whose failures are recorded.
    """
    events, gone = list[dg.AssetCheckEvaluation](), set[str]()
    for asset in family_assets(workspace, family).values():
        key, partitions = site.key(asset.name), asset.partitions(workspace)
        if asset.partitioned:
            materialized = instance.get_materialized_partitions(key)
            partitions = tuple(domain for domain in partitions if domain in materialized)
        elif not instance.get_latest_materialization_event(key):
            continue
        for partition in partitions:
            place, remedy = workspace.place(asset.name, partition), f"Build it with:\n  {build_command(asset.name, partition)}"
            pointers, why = place.pointers, ""
            if pointers.damaged:
                aside = place.backend.published(pointers.damaged)
                if RECALLED not in (aside.results or {}):
                    continue
                why = f"{aside.damage()}. {remedy}"
            elif pointers.current:
                results = (place.backend.published(pointers.current).results or {}) if place.label in known else {}
                if INTEGRITY.name in results:
                    verdicts = {INTEGRITY.name: Verdict(*results[INTEGRITY.name])}
                    step = Step(asset, partition, "current", "", requested=True)
                    events += evaluations(instance, site, workspace, step, verdicts)
                continue
            gone.add(place.label)
            if place.label not in known:
                why = why or f"the store is gone: {place.backend.where} was built and is no longer there. {remedy}"
                events.append(damaged(site, asset.name, partition, why))
    return events, gone


# Steps: the engine brings an asset and its upstream up to date, and its events become Dagster's.

NOBODY_WAITS = ("dagster/schedule_name", "dagster/sensor_name", "dagster/auto_materialize", "dagster/from_automation_condition")
"""Tags of runs that no person started, in which current stores are not checked again."""
RETRIES, SECONDS_TO_WAIT = 2, 20
"""Retries of a step whose sources were unavailable."""


def materialize(
    context: dg.AssetExecutionContext, config: dg.Config, site: Site, asset: Asset, upstream: Mapping[str, Any]
) -> Iterator[Any]:
    """Bring the partitions of this run up to date, and hand their stores to the IO manager, which publishes them.

    Upstream stores are published as soon as they are built; after a killed run, the next one reuses stores whose checks held.

    Args:
        upstream: upstream asset → place of its stores, by the IO manager.
    """
    sign(context)
    for run_id in close_gone(context.instance):
        context.log.warning(f"Run {run_id} is closed as failed: its process is gone.")
    workspace = site.in_run(context, LogProgress(context))
    _check_one_io_manager(workspace, asset, upstream)
    try:
        register(context.instance, site, workspace, asset.family)
        partitions = _partitions(context, workspace, asset)
    except PrepAssetsError as error:
        failure = _step_failure(asset, str(error), isinstance(error, SourceUnavailable))
        raise failure from failure.__cause__  # `from None` would drop the cause of a retry
    if not partitions:
        context.log.info(f"{asset.name} has no store for {', '.join(context.partition_keys)}: nothing to do")
        return
    workspace = workspace.overriding(asset.family, chosen(config))
    recheck = not any(tag in context.run.tags for tag in NOBODY_WAITS)
    checks_planned = context.op_execution_context.selected_asset_check_keys
    versions = {} if recheck or checks_planned else known_versions(context.instance, site, workspace, asset, partitions)
    record = _Record(context, site, workspace, asset, partitions, versions)
    try:
        steps = _plan_steps(getattr(context.resources, site.resource), workspace, [(asset, partition) for partition in partitions], record)
        tally = Tally()
        for event in run(workspace, steps, recheck=recheck, publish=publishes(config), hand_over=True):
            tally.add(event)
            if record.is_unchanged(event):
                continue
            log_event(context, event)
            yield from record.events(event)
    except PrepAssetsError as error:
        yield from record.unchanged()
        failure = _step_failure(asset, str(error), isinstance(error, SourceUnavailable))
        raise failure from failure.__cause__
    if str(tally):
        context.log.info(str(tally))
    if record.untouched:
        context.log.info(f"{asset.name}: {record.untouched:,} of {len(partitions):,} stores are as they were, and as they are recorded")
    yield from record.end()
    if record.reasons:
        raise _step_failure(asset, "\n".join(record.reasons), record.transient)


def _plan_steps(resource: WorkspaceResource, workspace: Workspace, stores: list[StoreKey], record: _Record) -> list[Step]:
    """Plan a step. Statuses of earlier steps of a run are reused while nothing is to be built and Dagster knows all stores as they are; else somebody may have
    built them meanwhile, and statuses are read again."""
    statuses = resource.seen()
    steps = plan(workspace, stores, look=statuses) if statuses else []
    if not statuses or not all(record.knows(step) for step in steps):
        statuses = Statuses(workspace)
        steps = plan(workspace, stores, look=statuses)
    if not any(step.why for step in steps):
        resource.seen(statuses)
    return steps


def check_only(context: dg.AssetExecutionContext, site: Site, asset: Asset) -> Iterator[Any]:
    """Run the checks of existing stores again, and build nothing.

    Failures are recorded last, since the page of a check shows the latest evaluation of any partition.
    """
    workspace = site.in_run(context, LogProgress(context))
    wanted = {key.name for key in context.op_execution_context.selected_asset_check_keys}
    # a run of checks without partitions covers every existing store
    names_partitions = context.has_partition_key or context.run.tags.get("dagster/asset_partition_range_start") or not asset.partitioned
    existing = [domain for domain in asset.partitions(workspace) if workspace.place(asset.name, domain).exists]
    partitions = _partitions(context, workspace, asset) if names_partitions else existing or list(asset.partitions(workspace))
    record = _Record(context, site, workspace, asset, partitions)
    results: list[tuple[Step, dict[str, Verdict]]] = []
    for partition in partitions:
        for event in check(workspace, Step(asset, partition, "current", "", requested=True)):
            log_event(context, event)
            if isinstance(event, Accepted | Blocked):
                verdicts = event.verdicts or {name: Verdict(False, getattr(event, "reason", "")) for name in wanted}
                results.append((event.step, {name: verdict for name, verdict in verdicts.items() if name in wanted}))
    for step, verdicts in sorted(results, key=lambda entry: not all(verdict.passed for verdict in entry[1].values())):
        yield from record.checks(step, verdicts)


def _check_one_io_manager(workspace: Workspace, asset: Asset, upstream: Mapping[str, Any]) -> None:
    """Raise where upstream stores belong to another IO manager: the engine would build them a second time."""
    for name, place in upstream.items():
        if isinstance(place, Place) and place.root != workspace.stores:
            raise _failure(asset, f"{name} is stored in {place.root}, this asset in {workspace.stores}: bind both to one IO manager")


def _partitions(context: dg.AssetExecutionContext, workspace: Workspace, asset: Asset) -> list[str]:
    partitions = list(context.partition_keys) if asset.partitioned else [""]
    if not partitions:
        raise _failure(asset, f"the range holds no partition. Their order is {', '.join(asset.partitions(workspace))}")
    # assets of a job share partitions, but a domain of scored groups has no prompts, and vice versa
    declared = set(asset.partitions(workspace))
    return [partition for partition in partitions if partition in declared]


def _failure(asset: Asset, text: str) -> dg.Failure:
    return dg.Failure(text if text.startswith(asset.name) else f"{asset.name}: {text}", allow_retries=False)


def _step_failure(asset: Asset, text: str, transient: bool) -> Exception:
    """The exception that ends a failed step; a transient failure, such as an unavailable source, makes Dagster retry."""
    failure = _failure(asset, text)
    if not transient:
        return failure
    retry = dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=SECONDS_TO_WAIT)
    retry.__cause__ = failure
    return retry


class _Record:
    """Turns events of the engine into events of Dagster.

    Requested stores are the step's output, which the IO manager publishes; Dagster records an output with one data version, so in a run of several
    partitions the IO manager records each of them. Stores whose data version Dagster knows are not recorded again, so that nightly runs
    without changes do not grow the history.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        site: Site,
        workspace: Workspace,
        asset: Asset,
        partitions: list[str],
        known: Mapping[str, str] | None = None,
    ) -> None:
        self._context, self._site, self._workspace, self._asset = context, site, workspace, asset
        self._partitions, self._known = partitions, known or {}
        self._accepted: list[Accepted] = []
        self._seen: set[tuple[str, str]] = set()
        self.untouched = 0
        self.reasons: list[str] = []
        self.transient = False

    def is_unchanged(self, event: Event) -> bool:
        """Whether an event is about a store that Dagster knows as it is; counts them in `untouched`."""
        same = isinstance(event, Accepted) and not event.draft and self.knows(event.step)
        self.untouched += same
        return same

    def knows(self, step: Step) -> bool:
        """Whether a store needs no build and Dagster knows its data version."""
        published = step.standing.published if step.standing else None
        known = published is not None and self._known.get(step.partition) == data_version(published)
        return known and step.asset is self._asset and not step.why

    def events(self, event: Event) -> Iterator[Any]:
        match event:
            case Accepted(draft=False) if event.step.requested:
                self._accepted.append(event)
            case Accepted() if event.step.requested:
                # a draft is an observation, no materialization: downstream assets and the asset's version stay as they are
                key, partition = self._site.key(event.step.asset.name), event.step.partition or None
                yield dg.AssetObservation(key, partition=partition, metadata=self._metadata(event))
            case Accepted():
                yield self._materialization(event)
                yield from self.checks(event.step, event.verdicts)
            case Blocked():
                self.reasons.append(event.reason)
                self.transient |= isinstance(event.error, SourceUnavailable)
                # a current store whose bounds have changed fails without a candidate
                candidate = self._workspace.place(event.step.asset.name, event.step.partition).candidate() is not None
                yield from self.checks(event.step, event.verdicts, candidate=candidate)
            case _:
                pass

    def end(self) -> Iterator[Any]:
        """Hand over the requested stores. A run of one partition that failed has no output, so that downstream assets wait."""
        if self._accepted or (self.untouched and not self.reasons):
            # in a run over a range, Dagster would record the output for every partition, though this asset may have only one of them
            planned = len(self._context.partition_keys) if self._asset.partitioned else 1
            whole = planned == 1 and bool(self._accepted)
            name = self._context.assets_def.get_output_name_for_asset_key(self._site.key(self._asset.name))
            stores = Stores(self._workspace, tuple(self._accepted), self._metadata, None if whole else self._materialization)
            if whole:
                # this step may have built upstream assets, after Dagster read the versions of its inputs
                self._context.get_step_execution_context().fetch_external_input_asset_version_info()
                with warnings.catch_warnings():  # a step's process may have its own filters
                    warnings.simplefilter("ignore", dg.BetaWarning)
                    output = dg.Output(stores, name, data_version=dg.DataVersion(data_version(self._accepted[0].published)))
                yield output
            else:
                yield dg.Output(stores, name, metadata=UNRECORDED)
        for event in self._accepted:
            yield from self.checks(event.step, event.verdicts)
        yield from self.unchanged()

    def unchanged(self) -> Iterator[dg.AssetCheckEvaluation]:
        """The recorded results of stores that this run was to check and did not touch.

        Dagster takes a planned check without a result for failed, and downstream assets would wait for no reason.
        """
        if not self._context.op_execution_context.selected_asset_check_keys:
            return
        for partition in self._partitions:
            place = self._workspace.place(self._asset.name, partition)
            if (self._asset.name, partition) in self._seen or not place.exists:
                continue
            try:
                current = place.current()
            except PrepAssetsError:
                continue
            known = (current.results if current else None) or {}
            step = Step(self._asset, partition, "current", "", requested=True)
            yield from self.checks(step, {name: Verdict(*result) for name, result in known.items()})

    def checks(self, step: Step, verdicts: Mapping[str, Verdict], *, candidate: bool = False) -> Iterator[dg.AssetCheckEvaluation]:
        """The evaluations of the checks of one store or candidate."""
        if verdicts:
            self._seen.add((step.asset.name, step.partition))
        selected = {(key.asset_key, key.name) for key in self._context.op_execution_context.selected_asset_check_keys}
        for evaluation in evaluations(self._context.instance, self._site, self._workspace, step, verdicts, candidate=candidate):
            if evaluation.check_name != WARNINGS or (evaluation.asset_key, WARNINGS) in selected:
                yield evaluation

    def _materialization(self, event: Accepted) -> dg.AssetMaterialization:
        return materialization(self._context.instance, self._site, self._workspace, event.step, event.published, self._metadata(event))

    def _metadata(self, event: Accepted) -> dict[str, Any]:
        metadata = store_metadata(self._workspace, event.published)
        if event.overrides:
            metadata = {"overrides": dg.MetadataValue.json(list(event.overrides)), **metadata}
        if event.draft:
            metadata = {"draft": True, **metadata}
        if event.step.why:
            metadata["built_because"] = event.step.why
        if not event.step.requested:
            metadata["built_for"] = self._asset.name
        if shards := event.effort.shards:
            metadata |= {"shards": shards, "workers_lost": event.effort.lost, "second_copies": event.effort.copies}
        return metadata
