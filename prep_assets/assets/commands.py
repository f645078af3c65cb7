"""Commands that messages tell people to run."""

from __future__ import annotations


def build_command(asset: str, partition: str = "") -> str:
    """The command that builds an asset."""
    return f"prep-assets build {asset}" + (f" --partition {partition}" if partition else "")
