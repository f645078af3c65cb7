"""The wheel of this checkout, for tests of what `pip install` leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prep_assets_tests.conftest import ROOT


def build_wheel(folder: Path) -> Path:
    """Build it into `folder`, by what `pip wheel` calls."""
    code = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"
    said = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    [built] = folder.glob("*.whl")
    return built
