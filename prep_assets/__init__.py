"""Training data for language models, proven to train on the right tokens.

Nothing is imported before it is used, so that `import prep_assets` is light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from prep_assets.version import __version__ as __version__

if TYPE_CHECKING:
    from prep_assets.api import encode, plan, render, status, verify
    from prep_assets.engine.execute import build
    from prep_assets.errors import PrepAssetsError
    from prep_assets.extensions.dagster.component import TrainingData
    from prep_assets.extensions.dagster.io_manager import StoreIOManager
    from prep_assets.extensions.explain.previews import row
    from prep_assets.extensions.explain.trace import trace
    from prep_assets.extensions.explain.where import StoredRecord, records, where
    from prep_assets.extensions.exports.registry import export
    from prep_assets.extensions.training.opening import load
    from prep_assets.packing import pack
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.table import Table

_WHERE = {
    "Workspace": "prep_assets.pipeline.workspace",
    "build": "prep_assets.engine.execute",
    "plan": "prep_assets.api",
    "verify": "prep_assets.api",
    "status": "prep_assets.api",
    "load": "prep_assets.extensions.training.opening",
    "render": "prep_assets.api",
    "encode": "prep_assets.api",
    "pack": "prep_assets.packing",
    "export": "prep_assets.extensions.exports.registry",
    "row": "prep_assets.extensions.explain.previews",
    "records": "prep_assets.extensions.explain.where",
    "StoredRecord": "prep_assets.extensions.explain.where",
    "trace": "prep_assets.extensions.explain.trace",
    "where": "prep_assets.extensions.explain.where",
    "PrepAssetsError": "prep_assets.errors",
    "StoreIOManager": "prep_assets.extensions.dagster.io_manager",
    "Table": "prep_assets.stores.table",
    "TrainingData": "prep_assets.extensions.dagster.component",
}
"""Public name → the module that has it."""

__all__ = [
    "PrepAssetsError",
    "StoreIOManager",
    "StoredRecord",
    "Table",
    "TrainingData",
    "Workspace",
    "build",
    "encode",
    "export",
    "load",
    "pack",
    "plan",
    "records",
    "render",
    "row",
    "status",
    "trace",
    "verify",
    "where",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'prep_assets' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
