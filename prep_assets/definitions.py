"""The code location: every asset, check, sensor and schedule."""

from __future__ import annotations

import warnings

from dagster._utils.warnings import BetaWarning, PreviewWarning

# backfill policies and partitioned checks are marked as beta, and each use would say so on every command
warnings.filterwarnings("ignore", category=BetaWarning)
warnings.filterwarnings("ignore", category=PreviewWarning)

import dagster as dg  # noqa: E402

from prep_assets.defs import preference, pretrain, rl, sft  # noqa: E402
from prep_assets.defs.checks import checks  # noqa: E402
from prep_assets.defs.exports import exports  # noqa: E402
from prep_assets.defs.io_manager import StoreIOManager  # noqa: E402
from prep_assets.defs.refresh import automation, schedules, sensors  # noqa: E402

defs = dg.Definitions(
    assets=[*dg.load_assets_from_modules([pretrain, sft, preference, rl]), *rl.groups(), *exports()],
    asset_checks=checks(),
    sensors=[*sensors(), automation()],
    schedules=schedules(),
    resources={"stores": StoreIOManager()},
    # steps share one process: a run of many small steps is not dominated by starting interpreters
    executor=dg.in_process_executor,
)
