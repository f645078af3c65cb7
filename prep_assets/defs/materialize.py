"""A run's step: the engine brings an asset and what it is made from up to date, and its events become Dagster's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.domains import register
from prep_assets.defs.gone import close_gone, sign
from prep_assets.defs.io_manager import Stores
from prep_assets.defs.log import LogProgress, log_event
from prep_assets.defs.metadata import data_version, store_metadata
from prep_assets.defs.options import chosen, publishes
from prep_assets.defs.provenance import UNRECORDED, evaluations, known_versions, materialization
from prep_assets.defs.site import Site
from prep_assets.engine import Look, plan, run
from prep_assets.engine.events import Accepted, Event, Refused, Tally
from prep_assets.engine.planning import Step, Store
from prep_assets.engine.running import check
from prep_assets.errors import PrepAssetsError, SourceUnavailable
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Place

NOBODY_WAITS = ("dagster/schedule_name", "dagster/sensor_name", "dagster/auto_materialize", "dagster/from_automation_condition")
"""Tags of runs that no person started: in these, a store that is current is not checked again."""
_LOOKS: dict[str, Look] = {}
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
        seen = Look(workspace)
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
                yield self._draft(event)
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

    def _draft(self, event: Accepted) -> dg.AssetObservation:
        """A draft is seen and not materialized: what is downstream, and what Dagster takes for the asset's version, stay as they are."""
        return dg.AssetObservation(
            self._site.key(event.step.asset.name), partition=event.step.partition or None, metadata=self._metadata(event)
        )

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
