"""What `make test` leaves out: two thirds of the examples of random tests, which `make soak` tries (PREP_ASSETS_SOAK=1), and fsync."""

from __future__ import annotations

import os

SOAK = os.environ.get("PREP_ASSETS_SOAK") == "1"


def examples(soak: int) -> int:
    """The number of examples of a test that tries `soak` of them in a soak run."""
    return soak if SOAK else max(10, soak // 3)


FSYNC = os.fsync


def without_fsync() -> None:
    """Let builds in this process return before the disk has their bytes: an fsync costs more than the rest of a small build, and what it
    is good for shows only when the machine dies. The harnesses that simulate that take `FSYNC` or processes of their own.
    """
    os.fsync = lambda _: None
