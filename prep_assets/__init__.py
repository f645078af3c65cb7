"""prep-assets: a Dagster asset graph for LLM training data."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # `dagster … -m prep_assets` finds the definitions here; everybody else imports this package without Dagster
    if name == "defs":
        from prep_assets.definitions import defs

        return defs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
