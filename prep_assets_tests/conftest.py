"""What several rooms' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets and tokenizers, which a fresh machine does not have."""
    folder = Path(os.environ.get("PREP_ASSETS_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data sets at {folder}: set PREP_ASSETS_TEST_DATA to a folder that has them")
    return folder
