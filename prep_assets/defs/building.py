"""What every asset does: bring up to date what it is made from, then say how its stores are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import dagster as dg

from prep_assets.config.models import FAMILIES
from prep_assets.defs.history import failing
from prep_assets.defs.options import chosen
from prep_assets.defs.partitions import domains
from prep_assets.errors import PrepAssetsError
from prep_assets.pipelines.build import Build
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.graph import EVERY, Asset, asset_named, out_of_date, upstream_of
from prep_assets.pipelines.workspace import Workspace

SINGLE_RUN = dg.BackfillPolicy.single_run()
OWNERS = ["team:data"]
Declared = Callable[[Callable[..., Any]], dg.AssetsDefinition]


def declare(name: str, *, kinds: set[str], columns: Iterable[dg.TableColumn] = (), tags: dict[str, str] | None = None) -> Declared:
    """`dg.asset` with everything that the graph and the configuration already say of the asset called `name`."""
    asset = asset_named(name, Workspace.open())
    listed = list(columns)
    return dg.asset(
        name=name,
        deps=list(asset.upstream),
        partitions_def=domains(asset.family) if asset.partitioned else None,
        backfill_policy=SINGLE_RUN,
        group_name=asset.family,
        kinds=kinds,
        owners=OWNERS,
        tags={"prep_assets/family": asset.family, **(tags or {})},
        code_version=asset.version,
        io_manager_key="stores",
        metadata={"dagster/column_schema": dg.TableSchema(listed)} if listed else None,
        automation_condition=automation(asset),
    )


def automation(asset: Asset) -> dg.AutomationCondition[Any] | None:
    """Rebuild when what an asset is made from has changed and its blocking checks hold. Sources are the sensors' affair."""
    if not asset.upstream:
        return None
    return dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()


def build(context: dg.AssetExecutionContext, config: dg.Config) -> dg.MaterializeResult[Any]:
    """How to make the stores that this run asks for; the IO manager makes them."""
    plain = Workspace.open(progress=_Progress(context))
    asset = asset_named(context.asset_key.to_user_string(), plain)
    workspace = plain.overriding(asset.family, chosen(config))
    partitions = list(context.partition_keys) if asset.partitioned else [""]
    if not partitions:
        order = ", ".join(domains(asset.family).get_partition_keys())
        raise dg.Failure(f"{asset.name}: the range holds no partition. Their order is {order}", allow_retries=False)
    try:
        _bring_up_to_date(context, workspace, asset, partitions)
        builds = {partition: asset.build(workspace, partition) for partition in partitions}
    except PrepAssetsError as error:
        raise dg.Failure(f"{asset.name}: {error}", allow_retries=False) from error
    value: Build | dict[str, Build] = builds if asset.partitioned else builds[""]
    return dg.MaterializeResult(value=value)


def _bring_up_to_date(context: dg.AssetExecutionContext, workspace: Workspace, asset: Asset, partitions: list[str]) -> None:
    """Build whatever these stores are made from and that is not fit for use, as runs of their own; or stop, as configured.

    Only one run's keys are ever executed by Dagster, so `--select sft_packed` on a fresh machine would otherwise find nothing to pack.
    """
    behind = _behind(context.instance, workspace, asset, partitions)
    if not behind:
        return
    named = ", ".join(f"{workspace.place(name, key).label} ({why})" for (name, key), why in behind.items())
    commands = "\n".join(f"  {materialize_command(name, key)}" for name, key in behind)
    if workspace.family(FAMILIES[asset.family]).on_missing == "fail":
        raise dg.Failure(f"{asset.name} is made from {named}, and on_missing is fail. Build that first:\n{commands}", allow_retries=False)
    context.log.info(f"{asset.name}: building first what it is made from: {named}")
    by_asset: dict[str, list[str]] = {}
    for name, key in behind:
        by_asset.setdefault(name, []).append(key)
    for name, keys in by_asset.items():
        for tags in _selections(EVERY[name], keys):
            _run(context, name, tags)


def _behind(instance: dg.DagsterInstance, workspace: Workspace, asset: Asset, partitions: list[str]) -> dict[tuple[str, str], str]:
    """Asset and partition of each store above these that is missing, out of date or has not passed its checks, and why; what feeds others first."""
    found: dict[tuple[str, str], str] = {}
    for partition in partitions:
        for above, key, why in out_of_date(workspace, asset, partition):
            found.setdefault((above.name, key), why)
        for name, key in _above(workspace, asset, partition):
            if key in failing(instance, name, EVERY[name].partitions(workspace)):
                found.setdefault((name, key), "has not passed its checks")
    order = list(EVERY)
    return dict(sorted(found.items(), key=lambda entry: order.index(entry[0][0])))


def _above(workspace: Workspace, asset: Asset, partition: str) -> Iterator[tuple[str, str]]:
    for above, key in upstream_of(workspace, asset, partition):
        yield from _above(workspace, above, key)
        yield above.name, key


def _selections(asset: Asset, keys: list[str]) -> list[dict[str, str]]:
    """Run tags that choose these partitions: one run over all of them where they are the whole range, else one each."""
    if not asset.partitioned:
        return [{}]
    every = list(domains(asset.family).get_partition_keys())
    if len(keys) > 1 and set(keys) == set(every):
        return [{"dagster/asset_partition_range_start": every[0], "dagster/asset_partition_range_end": every[-1]}]
    return [{"dagster/partition": key} for key in keys]


def _run(context: dg.AssetExecutionContext, name: str, tags: dict[str, str]) -> None:
    """Materialize one asset with its checks in the same instance, as a recorded run of the job that the web UI uses as well."""
    # imported here, for it is made from this module; `context.repository_def` is missing in runs that Python code starts in its own process
    from prep_assets.definitions import defs

    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=context.instance,
        asset_selection=[dg.AssetKey(name)],
        partition_key=tags.get("dagster/partition"),
        tags={**{key: value for key, value in tags.items() if key != "dagster/partition"}, "prep_assets/built_for": context.run.run_id},
        raise_on_error=False,
    )
    if not result.success:
        reasons = [_reason(event) for event in result.all_events if event.is_step_failure]
        raise dg.Failure(f"run {result.run_id}, which builds {name}, failed: " + "; ".join(reasons), allow_retries=False)


def _reason(event: dg.DagsterEvent) -> str:
    failure = event.step_failure_data
    described = failure.user_failure_data.description if failure.user_failure_data else None
    error = failure.error
    while error and error.cause:
        error = error.cause
    return described or (error.message.strip() if error else "unknown")


class _Progress:
    """Reports long work to the run's log, at each further tenth."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._log, self._tenths = context.log, dict[str, int]()

    def __call__(self, what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 10
        if tenth > self._tenths.get(what, 0) and total > 1 << 24:
            self._log.info(f"{what}: {min(tenth, 10) * 10} %")
        self._tenths[what] = tenth
