"""Contrastive rows: queries with positive and negative texts, for embedding models. A family found by its entry point."""

from prep_assets.extensions.contrastive.config import Contrastive as CONFIG

__all__ = ["CONFIG"]
