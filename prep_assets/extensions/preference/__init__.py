"""Preference pairs, labelled answers and ranked lists. A family found by its entry point."""

from __future__ import annotations

from typing import Any

from prep_assets.extensions.preference.config import Preference as CONFIG

__all__ = ["ASSETS", "CONFIG"]


def __getattr__(name: str) -> Any:
    if name != "ASSETS":
        raise AttributeError(name)
    from prep_assets.extensions.preference.assets import ASSETS

    return ASSETS
