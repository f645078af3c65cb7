"""Commands that messages tell people to run."""

from __future__ import annotations


def materialize_command(asset: str, partition: str = "") -> str:
    """The command that builds an asset."""
    return f"dagster asset materialize --select {asset}" + (f" --partition {partition}" if partition else "")
