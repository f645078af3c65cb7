"""Prompts with verifiable answers, a curriculum of arithmetic, and scored groups. A family found by its entry point."""

from __future__ import annotations

from typing import Any

from prep_assets.extensions.rl.config import Rl as CONFIG

__all__ = ["ASSETS", "CONFIG"]


def __getattr__(name: str) -> Any:
    if name != "ASSETS":
        raise AttributeError(name)
    from prep_assets.extensions.rl.assets import ASSETS

    return ASSETS
