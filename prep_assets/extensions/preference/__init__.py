"""Preference pairs, labelled answers and ranked lists. A family found by its entry point."""

from prep_assets.extensions.preference.config import Preference as CONFIG

__all__ = ["CONFIG"]
