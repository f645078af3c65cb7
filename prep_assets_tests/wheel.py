"""The wheel of this checkout, for tests of what `pip install` leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prep_assets_tests.conftest import ROOT


def build_wheel(folder: Path) -> Path:
    """Build it into `folder`, offline."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder))
    said = subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    [built] = folder.glob("*.whl")
    return built
