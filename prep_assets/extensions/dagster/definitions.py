"""All definitions of a site."""

from __future__ import annotations

import logging
import warnings

import dagster as dg
from dagster import BetaWarning, PreviewWarning

from prep_assets.extensions.dagster.assets import families, family_definitions
from prep_assets.extensions.dagster.sensors import automation, recorder, schedules, scrubber, sound, sources_sensor
from prep_assets.extensions.dagster.site import Site, register_at_load
from prep_assets.graph.graph import unknown_family

# backfill policies and partitioned checks are beta, and would warn on every command
warnings.filterwarnings("ignore", category=BetaWarning)
warnings.filterwarnings("ignore", category=PreviewWarning)


def definitions(site: Site, only: tuple[str, ...] = (), *, whole_project: bool = True) -> dg.Definitions:
    """The assets, checks, sensors and schedules of families with a configuration file, or only of some.

    Args:
        whole_project: whether these are all definitions of the project, so that sensors of all assets and the executor are included.
    """
    workspace = site.declared()
    chosen = [family for family in families(workspace) if not only or family in only]
    valid = sound(site, chosen)
    if fault := unknown_family(workspace):
        logging.getLogger("prep_assets").error("%s", fault)
    register_at_load(site, valid)
    return dg.Definitions(
        assets=[asset for family in chosen for asset in family_definitions(site, family)],
        sensors=[
            *(sources_sensor(site, family) for family in valid),
            *([automation(site), scrubber(site, valid), recorder(site, valid)] if whole_project else []),
        ],
        schedules=schedules(site, valid),
        resources={site.resource: site.workspace, site.io_manager_key: site.stores},
        # steps share one process: a run of many small steps is not dominated by starting interpreters
        executor=dg.in_process_executor if whole_project else None,
    )
