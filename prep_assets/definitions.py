"""The code location: every asset, check, sensor and schedule."""

from __future__ import annotations

import warnings

from dagster._utils.warnings import BetaWarning, PreviewWarning

# backfill policies and partitioned checks are marked as beta, and each use would say so on every command
warnings.filterwarnings("ignore", category=BetaWarning)
warnings.filterwarnings("ignore", category=PreviewWarning)

from importlib import import_module  # noqa: E402

import dagster as dg  # noqa: E402

from prep_assets.config.models import FAMILIES  # noqa: E402
from prep_assets.defs.checks import checks  # noqa: E402
from prep_assets.defs.exports import exports  # noqa: E402
from prep_assets.defs.groups import groups  # noqa: E402
from prep_assets.defs.io_manager import StoreIOManager  # noqa: E402
from prep_assets.defs.refresh import automation, schedules, sensors  # noqa: E402
from prep_assets.pipelines.workspace import Workspace  # noqa: E402

# the module of a family asks its configuration for the domains, so one without a file is not imported
families = [name for name in FAMILIES if Workspace.open().has(name)]
modules = [import_module(f"prep_assets.defs.{name}") for name in families]

defs = dg.Definitions(
    assets=[*dg.load_assets_from_modules(modules), *groups(), *exports()],
    asset_checks=checks(),
    sensors=[*sensors(), automation()],
    schedules=schedules(),
    resources={"stores": StoreIOManager()},
    # steps share one process: a run of many small steps is not dominated by starting interpreters
    executor=dg.in_process_executor,
)
