"""Refresh without anybody asking: sensors on sources, a nightly schedule per family, and automation inside the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from prep_assets.config.models import FAMILIES
from prep_assets.defs.domains import domains, register
from prep_assets.defs.jobs import SECONDS, rebuild_job
from prep_assets.defs.site import Site
from prep_assets.errors import PrepAssetsError


def sound(site: Site, families: Sequence[str]) -> list[str]:
    """The families whose configuration means something; the others have assets that say what is wrong, and nothing starts them."""
    return [family for family in families if _is_sound(site, family)]


def _is_sound(site: Site, family: str) -> bool:
    from prep_assets.assets.graph import family_assets

    try:
        return bool(family_assets(site.declared(), family))
    except PrepAssetsError:
        return False


def sensors(site: Site, families: Sequence[str]) -> list[dg.SensorDefinition]:
    """One sensor on the source files of each family."""
    from prep_assets.defs.sources import sources_sensor

    return [sources_sensor(site, family) for family in families]


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
        job=rebuild_job(site, family),
        description=f"Rebuilds the {family} family where its sources or options have changed, all domains in one run.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> Any:
        if isinstance(partitions, dg.StaticPartitionsDefinition):
            keys = partitions.get_partition_keys()
        else:
            register(context.instance, site, site.workspace.open(), family)
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
