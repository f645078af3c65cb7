"""The clock that templates see."""

from __future__ import annotations

from datetime import datetime

FROZEN_CLOCK = datetime(2024, 7, 26)
"""What ``strftime_now`` shows: the day that Llama 3.1's own template falls back to."""
