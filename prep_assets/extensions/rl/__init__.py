"""Prompts with verifiable answers, a curriculum of arithmetic, and scored groups. A family found by its entry point."""

from prep_assets.extensions.rl.config import Rl as CONFIG

__all__ = ["CONFIG"]
