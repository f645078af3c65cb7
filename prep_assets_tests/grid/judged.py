"""What twenty rows of each reason were judged to be, by the one who read them in ``refusals.md``."""

from __future__ import annotations

JUDGED: dict[str, str] = {}
