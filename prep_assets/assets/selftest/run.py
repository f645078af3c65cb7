"""Selftest: corrupts copies of the user's own rows, one mutation at a time, and sees which check notices.

The store itself is only read. Rows are taken from its beginning; each mutation is done to several of them.
"""

from __future__ import annotations

from prep_assets.assets.graph import EVERY, store_of
from prep_assets.assets.selftest.selection import shelf_trials
from prep_assets.assets.selftest.trials import Trial
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.stores.published import Published

TESTED = tuple(asset.name for asset in EVERY.values() if asset.selftest is not None)
"""Assets whose rows are corrupted: all that hold tokens or lines."""


def selftest(workspace: Workspace, published: Published) -> list[Trial]:
    """Try every mutation that fits the store.

    Raises:
        ConfigError: a store that holds neither tokens nor lines.
    """
    store = store_of(workspace, published)
    if store.asset.selftest is None:
        raise ConfigError(f"{store.asset.name} holds neither tokens nor lines; selftest is for {', '.join(TESTED)}")
    return [*store.asset.selftest(store), *shelf_trials(store)]
