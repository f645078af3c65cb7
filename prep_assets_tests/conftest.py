"""What several rooms' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a shared machine may be slow at any moment, which says nothing about the code; in CI the same examples are tried each time
settings.register_profile(
    "prep-assets", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("prep-assets")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets and tokenizers, which a fresh machine does not have."""
    folder = Path(os.environ.get("PREP_ASSETS_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data sets at {folder}: set PREP_ASSETS_TEST_DATA to a folder that has them")
    return folder
