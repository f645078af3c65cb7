"""How many examples random tests try: a third of what they name, all of it where PREP_ASSETS_SOAK is 1, as `make soak` sets it."""

from __future__ import annotations

import os

SOAK = os.environ.get("PREP_ASSETS_SOAK") == "1"


def examples(soak: int) -> int:
    """The number of examples of a test that tries `soak` of them in a soak run."""
    return soak if SOAK else max(10, soak // 3)
