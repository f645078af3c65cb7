"""How fast work goes on, for those who wait."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pace:
    """Measures from when it is made."""

    began: float = field(default_factory=time.monotonic)

    def said(self, done: int, total: int) -> str:
        """``41.2 MB/s, 0:32 left``, of bytes; what is left is reckoned from what is done."""
        took = time.monotonic() - self.began
        if not done or not took:
            return ""
        left = round(took * max(0, total - done) / done)
        return f"{done / took / 1e6:,.1f} MB/s, {left // 60}:{left % 60:02} left"
