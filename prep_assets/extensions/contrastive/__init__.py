"""Contrastive rows: queries with positive and negative texts, for embedding models. A family found by its entry point."""

from __future__ import annotations

from typing import Any

from prep_assets.extensions.contrastive.config import Contrastive as CONFIG

__all__ = ["ASSETS", "CONFIG"]


def __getattr__(name: str) -> Any:
    if name != "ASSETS":
        raise AttributeError(name)
    from prep_assets.extensions.contrastive.assets import ASSETS

    return ASSETS
