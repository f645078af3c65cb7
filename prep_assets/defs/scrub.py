"""A sensor that reads stores and sources again, an hourly gigabyte at a time, and has rebuilt what rotted."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.graph import family_assets
from prep_assets.defs.jobs import mend_job
from prep_assets.defs.outside_runs import OutsideRun
from prep_assets.defs.site import Site
from prep_assets.engine.scrub import BYTES, Damage, scrub
from prep_assets.stores.manifest import digest

HOUR = 3600
SECONDS = 30
"""A sensor may take a minute."""


def scrubber(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """Damage to a store becomes a failed check of it and of those made from it, and a run that builds them again; damage to a source only failed checks."""
    jobs = {family: mend_job(site, family) for family in families}
    job_of = {asset: jobs[family].name for family in families for asset in family_assets(site.declared(), family)}

    @dg.sensor(
        name=site.named("scrub"),
        jobs=list(jobs.values()),
        minimum_interval_seconds=HOUR,
        description="Reads 1 GiB of stores, in buckets too, and of sources on this machine again each hour, in rotation; builds again what has rotted.",
    )
    def read_again(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = scrub(site.workspace.open(), BYTES, SECONDS)
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
    return [
        dg.AssetCheckEvaluation(
            asset_key=site.key(asset), check_name=INTEGRITY.name, passed=False, description=text, partition=partition or None
        )
        for (asset, partition), text in found
    ]
