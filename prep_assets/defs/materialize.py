"""Runs in Dagster: what sensors start, what a step does, what its log says, and what is gone or rotted."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.defs.io_manager import Stores
from prep_assets.defs.metadata import UNRECORDED, data_version, evaluations, known_versions, materialization, store_metadata
from prep_assets.defs.site import Site, chosen, publishes, register
from prep_assets.engine import Statuses, plan, run
from prep_assets.engine.events import Accepted, Candidate, Checked, Event, Planned, Refused, Skipped, Started, Tally, Written
from prep_assets.engine.execute import check
from prep_assets.engine.plan import Step, Store
from prep_assets.errors import PrepAssetsError, SourceUnavailable
from prep_assets.graph.graph import family_assets
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Place

# What sensors and schedules start, and where they record the checks of stores that are gone, have rotted or were built elsewhere.

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


# What a run's log says while the engine works.

LONG, SECONDS_BETWEEN = 1 << 24, 300.0
"""Bytes of work for which progress is logged, and the longest silence in seconds."""


def log_event(context: dg.AssetExecutionContext, event: Event) -> None:
    """The gist of an event, in the run's log."""
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
        case Refused(_, reason):
            context.log.error(reason)
        case Skipped(step, because):
            context.log.error(f"{step.label}: not built, because {because.label} could not be")


class LogProgress:
    """Reports long work to the run's log, at each further tenth and every few minutes."""

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


# What Dagster remembers and what is gone: runs whose process ended without a word, and stores that were moved away or deleted by hand.

PROCESS = "prep_assets/process"
RUNNING = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING]


def sign(context: dg.AssetExecutionContext) -> None:
    """Write down, as a tag of the run, in which process it runs."""
    context.instance.add_run_tags(context.run.run_id, {PROCESS: _process(os.getpid())})


def close_gone(instance: dg.DagsterInstance) -> list[str]:
    """Mark as failed every run of this machine that says it is running and whose process is gone; return their ids."""
    closed = []
    for run in instance.get_runs(dg.RunsFilter(statuses=RUNNING)):
        host, _, rest = run.tags.get(PROCESS, "").rpartition(" ")[0].rpartition(" ")
        if host == socket.gethostname() and _process(int(rest)) != run.tags[PROCESS]:
            instance.report_run_failed(run, "The process of this run is gone: it was killed, or its terminal was closed.")
            closed.append(run.run_id)
    return closed


def _process(pid: int) -> str:
    """Host, process id, and when the process started: an id is given again, a start is not. Where there is no `/proc`, whether it runs."""
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
    """A failed check for each store of a family that is gone since the last look, and the labels of all that are gone.

    Args:
        known: labels of those that were gone at the last look: their failure is on record.
    """
    events, gone = [], set[str]()
    for asset in family_assets(workspace, family).values():
        key, partitions = site.key(asset.name), asset.partitions(workspace)
        if asset.partitioned:
            materialized = instance.get_materialized_partitions(key)
            partitions = tuple(each for each in partitions if each in materialized)
        elif not instance.get_latest_materialization_event(key):
            continue
        for partition in partitions:
            place = workspace.place(asset.name, partition)
            if place.exists:
                continue
            gone.add(place.label)
            if place.label not in known:
                remedy = build_command(asset.name, partition)
                why = f"the store is gone: {place.backend.where} was built and is no longer there. Build it with:\n  {remedy}"
                events.append(damaged(site, asset.name, partition, why))
    return events, gone


# A run's step: the engine brings an asset and what it is made from up to date, and its events become Dagster's.

NOBODY_WAITS = ("dagster/schedule_name", "dagster/sensor_name", "dagster/auto_materialize", "dagster/from_automation_condition")
"""Tags of runs that no person started: in these, a store that is current is not checked again."""
_LOOKS: dict[str, Statuses] = {}
"""By run: what its steps so far have seen of the stores, while they built none."""
RETRIES, SECONDS_TO_WAIT = 2, 20
"""Of a step whose sources did not answer."""


def materialize(
    context: dg.AssetExecutionContext, config: dg.Config, site: Site, asset: Asset, upstream: Mapping[str, Any]
) -> Iterator[Any]:
    """Bring the partitions of this run up to date, and hand their stores to the IO manager, which publishes them.

    What a store is made from is published when it is built; of a run that dies, stores whose checks held are taken up by the next one.

    Args:
        upstream: where the IO manager has the stores that the asset is made from.
    """
    sign(context)
    for lost in close_gone(context.instance):
        context.log.warning(f"Run {lost} is closed as failed: its process is gone.")
    workspace = site.in_run(context, LogProgress(context))
    _check_place(workspace, asset, upstream)
    try:
        register(context.instance, site, workspace, asset.family)
        partitions = _partitions(context, workspace, asset)
    except PrepAssetsError as error:
        ending = _ending(asset, str(error), isinstance(error, SourceUnavailable))
        raise ending from ending.__cause__  # `from None` would take the reason away from one that is tried again
    if not partitions:
        context.log.info(f"{asset.name} has no store for {', '.join(context.partition_keys)}: nothing to do")
        return
    workspace = workspace.overriding(asset.family, chosen(config))
    recheck = not any(tag in context.run.tags for tag in NOBODY_WAITS)
    planned = context.op_execution_context.selected_asset_check_keys
    known = {} if recheck or planned else known_versions(context.instance, site, workspace, asset, partitions)
    record = _Record(context, site, workspace, asset, partitions, known)
    try:
        steps = _planned(context, workspace, [(asset, partition) for partition in partitions], record)
        tally = Tally()
        for event in run(workspace, steps, recheck=recheck, publish=publishes(config), hand_over=True):
            tally.add(event)
            if record.leaves(event):
                continue
            log_event(context, event)
            yield from record.events(event)
    except PrepAssetsError as error:
        yield from record.unchanged()
        ending = _ending(asset, str(error), isinstance(error, SourceUnavailable))
        raise ending from ending.__cause__
    if str(tally):
        context.log.info(str(tally))
    if record.untouched:
        context.log.info(f"{asset.name}: {record.untouched:,} of {len(partitions):,} stores are as they were, and as they are recorded")
    yield from record.end()
    if record.reasons:
        raise _ending(asset, "\n".join(record.reasons), record.passing)


def _planned(context: dg.AssetExecutionContext, workspace: Workspace, stores: list[Store], record: _Record) -> list[Step]:
    """The plan of a step. What an earlier step of the run saw is enough where nothing is to be done and Dagster knows all stores as they were seen; where
    it does not, somebody else may have built them meanwhile."""
    seen = _LOOKS.pop(context.run.run_id, None)
    steps = plan(workspace, stores, look=seen) if seen else []
    if not seen or not all(record.knows(step) for step in steps):
        seen = Statuses(workspace)
        steps = plan(workspace, stores, look=seen)
    if not any(step.why for step in steps):
        _LOOKS.clear()
        _LOOKS[context.run.run_id] = seen
    return steps


def check_only(context: dg.AssetExecutionContext, site: Site, asset: Asset) -> Iterator[Any]:
    """Run the checks of the stores that there are once more, and build nothing.

    Those that fail are recorded after all others: the page of a check shows what was recorded last, whichever partition that is of.
    """
    workspace = site.in_run(context, LogProgress(context))
    wanted = {key.name for key in context.op_execution_context.selected_asset_check_keys}
    # a run of checks that names no partition looks at every store that there is
    named = context.has_partition_key or context.run.tags.get("dagster/asset_partition_range_start") or not asset.partitioned
    there = [each for each in asset.partitions(workspace) if workspace.place(asset.name, each).exists]
    every = _partitions(context, workspace, asset) if named else there or list(asset.partitions(workspace))
    record = _Record(context, site, workspace, asset, every)
    found: list[tuple[Step, dict[str, Verdict]]] = []
    for partition in every:
        for event in check(workspace, Step(asset, partition, "current", "", requested=True)):
            log_event(context, event)
            if isinstance(event, Accepted | Refused):
                verdicts = event.verdicts or {name: Verdict(False, getattr(event, "reason", "")) for name in wanted}
                found.append((event.step, {name: verdict for name, verdict in verdicts.items() if name in wanted}))
    for step, verdicts in sorted(found, key=lambda each: not all(verdict.passed for verdict in each[1].values())):
        yield from record.checks(step, verdicts)


def _check_place(workspace: Workspace, asset: Asset, upstream: Mapping[str, Any]) -> None:
    """Stop where another IO manager reads what is upstream than stores this asset: the engine would build it a second time."""
    for name, place in upstream.items():
        if isinstance(place, Place) and place.root != workspace.stores:
            raise _failure(asset, f"{name} is stored in {place.root}, this asset in {workspace.stores}: bind both to one IO manager")


def _partitions(context: dg.AssetExecutionContext, workspace: Workspace, asset: Asset) -> list[str]:
    partitions = list(context.partition_keys) if asset.partitioned else [""]
    if not partitions:
        raise _failure(asset, f"the range holds no partition. Their order is {', '.join(asset.partitions(workspace))}")
    # assets of one job have one set of partitions; a domain of scored groups has no prompts, and the other way round
    own = set(asset.partitions(workspace))
    return [each for each in partitions if each in own]


def _failure(asset: Asset, text: str) -> dg.Failure:
    return dg.Failure(text if text.startswith(asset.name) else f"{asset.name}: {text}", allow_retries=False)


def _ending(asset: Asset, text: str, passing: bool) -> Exception:
    """How a step ends that did not do all it was asked for. One whose sources did not answer is tried again by Dagster."""
    failure = _failure(asset, text)
    if not passing:
        return failure
    again = dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=SECONDS_TO_WAIT)
    again.__cause__ = failure
    return again


class _Record:
    """Turns events of the engine into events of Dagster.

    The stores asked for are the step's output, which the IO manager publishes; Dagster records it, with one data version. So where a run has several
    partitions, the IO manager records each with a version of its own. One that Dagster knows as it is, by its data version, is not recorded
    again: the history of a thousand domains does not grow in nights in which nothing happens.
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
        self.passing = False

    def leaves(self, event: Event) -> bool:
        """Whether an event says of a store that it is as Dagster knows it; it is counted."""
        same = isinstance(event, Accepted) and not event.draft and self.knows(event.step)
        self.untouched += same
        return same

    def knows(self, step: Step) -> bool:
        """Whether nothing is to be done for a store, and Dagster knows it as it is."""
        published = step.standing.published if step.standing else None
        known = published is not None and self._known.get(step.partition) == data_version(published)
        return known and step.asset is self._asset and not step.why

    def events(self, event: Event) -> Iterator[Any]:
        match event:
            case Accepted(draft=False) if event.step.requested:
                self._accepted.append(event)
            case Accepted() if event.step.requested:
                # a draft is seen and not materialized: what is downstream, and what Dagster takes for the asset's version, stay as they are
                key, partition = self._site.key(event.step.asset.name), event.step.partition or None
                yield dg.AssetObservation(key, partition=partition, metadata=self._metadata(event))
            case Accepted():
                yield self._materialization(event)
                yield from self.checks(event.step, event.verdicts)
            case Refused():
                self.reasons.append(event.reason)
                self.passing |= isinstance(event.error, SourceUnavailable)
                yield from self.checks(event.step, event.verdicts)
            case _:
                pass

    def end(self) -> Iterator[Any]:
        """Hand over what was asked for. A run of one partition that was refused has no output, so that what is downstream waits."""
        if self._accepted or (self.untouched and not self.reasons):
            # of a run over a range, of which this asset may have one domain only, Dagster would record the output for each partition
            planned = len(self._context.partition_keys) if self._asset.partitioned else 1
            whole = planned == 1 and bool(self._accepted)
            name = self._context.assets_def.get_output_name_for_asset_key(self._site.key(self._asset.name))
            stores = Stores(self._workspace, tuple(self._accepted), self._metadata, None if whole else self._materialization)
            if whole:
                # what the asset was made from may have been built by this very step, after Dagster noted the versions of its inputs
                self._context.get_step_execution_context().fetch_external_input_asset_version_info()
                yield dg.Output(stores, name, data_version=dg.DataVersion(data_version(self._accepted[0].published)))
            else:
                yield dg.Output(stores, name, metadata=UNRECORDED)
        for event in self._accepted:
            yield from self.checks(event.step, event.verdicts)
        yield from self.unchanged()

    def unchanged(self) -> Iterator[dg.AssetCheckEvaluation]:
        """What is known of the stores that this run was to check and did not touch.

        Where Dagster planned checks when the run started, it takes one that says nothing for failed: what is downstream would wait for no reason.
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

    def checks(self, step: Step, verdicts: Mapping[str, Verdict]) -> Iterator[dg.AssetCheckEvaluation]:
        """A result for each check of one store."""
        if verdicts:
            self._seen.add((step.asset.name, step.partition))
        yield from evaluations(self._context.instance, self._site, self._workspace, step, verdicts)

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
