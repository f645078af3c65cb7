"""Refresh without anybody asking: sensors on sources, a nightly schedule per family, automation inside the graph, and a scrub by the hour."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from prep_assets.assets.graph import family_assets
from prep_assets.config.models import FAMILIES
from prep_assets.defs.domains import domains, register
from prep_assets.defs.jobs import SECONDS, OutsideRun, damaged, family_job
from prep_assets.defs.site import Site
from prep_assets.engine.scrub import BYTES, Damage, scrub
from prep_assets.errors import PrepAssetsError
from prep_assets.stores.manifest import digest

HOUR = 3600
SCRUB_SECONDS = 30
"""How long one look reads; a sensor may take a minute."""


def sound(site: Site, families: Sequence[str]) -> list[str]:
    """The families whose configuration means something; the others have assets that say what is wrong, and nothing starts them."""
    found = []
    for family in families:
        with suppress(PrepAssetsError):
            found += [family] if family_assets(site.declared(), family) else []
    return found


def schedules(site: Site, families: Sequence[str]) -> list[dg.ScheduleDefinition]:
    """A schedule for each family: rebuild what its sources and options ask for. What has not changed is not built again."""
    return [_schedule(site, family) for family in families]


def _schedule(site: Site, family: str) -> dg.ScheduleDefinition:
    refresh = site.declared().family(FAMILIES[family]).refresh
    partitions = domains(site, family)

    @dg.schedule(
        name=site.named(f"nightly_{family}"),
        cron_schedule=refresh.every,
        execution_timezone=refresh.timezone,
        job=family_job(site, "rebuild", family),
        description=f"Rebuilds the {family} family where its sources or options have changed, all domains in one run.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> Any:
        if isinstance(partitions, dg.StaticPartitionsDefinition):
            keys = partitions.get_partition_keys()
        else:
            register(context.instance, site, site.open(), family)
            keys = partitions.get_partition_keys(dynamic_partitions_store=context.instance)
        when = context.scheduled_execution_time.isoformat()
        whole = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        return dg.RunRequest(run_key=f"{family}:{when}", tags=whole)

    return nightly


def automation(site: Site) -> dg.SensorDefinition:
    """Follows the assets' automation conditions (see `prep_assets.defs.assets`)."""
    return dg.AutomationConditionSensorDefinition(
        site.named("rebuild_downstream"),
        target=dg.AssetSelection.all() if not site.prefix else dg.AssetSelection.key_prefixes(list(site.prefix)),
        minimum_interval_seconds=SECONDS,
        description="Rebuilds assets when what they are made from has changed and its blocking checks hold.",
    )


def scrubber(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """Damage to a store becomes a failed check of it and of those made from it, and a run that builds them again; damage to a source only failed checks."""
    # what is built again is chosen from all assets of a family
    jobs = {family: family_job(site, "mend", family) for family in families}
    job_of = {asset: jobs[family].name for family in families for asset in family_assets(site.declared(), family)}

    @dg.sensor(
        name=site.named("scrub"),
        jobs=list(jobs.values()),
        minimum_interval_seconds=HOUR,
        description="Reads 1 GiB of stores, in buckets too, and of sources on this machine again each hour, in rotation; builds again what has rotted.",
    )
    def read_again(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = scrub(site.open(), BYTES, SCRUB_SECONDS)
        OutsideRun(context.instance, site.named("scrub")).record(event for damage in found.damaged for event in _failures(site, damage))
        # what is built again is checked and looked at again, so the same damage may be asked about twice
        again = digest([context.cursor, *(damage.what for damage in found.damaged)])[:16]
        requests = [
            dg.RunRequest(
                f"scrub:{asset}:{partition}:{again}",
                job_name=job_of[asset],
                asset_selection=[site.key(asset)],
                partition_key=partition or None,
            )
            for asset, partition in dict.fromkeys(store for damage in found.damaged if not damage.source for store in _stores(damage))
        ]
        summary = f"read {found.read:,} of {found.total:,} bytes, {len(found.damaged)} files damaged"
        return dg.SensorResult(requests, skip_reason=None if requests else summary, cursor=str(int(context.cursor or 0) + 1))

    return read_again


def _stores(damage: Damage) -> list[tuple[str, str]]:
    """Asset and partition of what is damaged, and of what is made from it."""
    built = (label.rstrip("]").partition("[") for label in damage.built)
    return [(damage.asset, damage.partition), *((asset, partition) for asset, _, partition in built)]


def _failures(site: Site, damage: Damage) -> list[dg.AssetCheckEvaluation]:
    first, *made = _stores(damage)
    found = [(first, damage.what), *((store, f"made from what is damaged: {damage.what}") for store in made if not damage.source)]
    return [damaged(site, asset, partition, text) for (asset, partition), text in found]
