"""Continuous integration: `make test-readers` runs where a change touches what it tests."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatch
from pathlib import Path

import yaml

from prep_assets_tests.conftest import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]


def unbraced(pattern: str) -> list[str]:
    """The patterns that ``{a,b}`` stands for."""
    parts = [each[1:-1].split(",") if each.startswith("{") else [each] for each in re.split(r"(\{[^}]*\})", pattern)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def test_trainers_readers_run_where_their_tests_or_what_they_read_changed() -> None:
    filters = yaml.safe_load(WORKFLOW["changed"]["steps"][-1]["with"]["filters"])["exports"]
    patterns = [each for pattern in filters for each in unbraced(pattern)]
    others = {*ROOT.glob("prep_assets_tests/**/test_*.py")} - {Path(__file__).resolve()}
    touched = [path.relative_to(ROOT).as_posix() for path in others if "pytest.mark.readers" in path.read_text("utf-8")]
    assert len(touched) > 10
    touched += [
        "prep_assets/extensions/exports/mds.py",
        "prep_assets/extensions/training/items.py",
        "prep_assets_tests/readers.txt",
        "constraints.txt",
    ]
    assert [path for path in touched if not any(fnmatch(path, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []
    assert not any(fnmatch("prep_assets/packing/mixing.py", pattern) for pattern in patterns)
    assert "if" in WORKFLOW["readers"] and WORKFLOW["readers"]["steps"][-1]["run"] == "make test-readers"
