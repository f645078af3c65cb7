"""What the checks of a store said, in a file beside it: `versions/<build key>.checks.json`.

It is not part of the store, whose bytes do not depend on who looked at it, and it counts for the very content that was looked at only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from prep_assets.disk.strict_json import loads
from prep_assets.disk.written import write_text

CHECKS = ".checks.json"


class Result(NamedTuple):
    """What one check said.

    Attributes:
        passed: whether it holds.
        summary: one sentence with numbers.
    """

    passed: bool
    summary: str


def read_results(directory: Path, content_hash: str) -> Mapping[str, Result] | None:
    """By name, what the checks of the store in `directory` said of this content; `None` where they never looked at it."""
    try:
        return parse_results(_beside(directory).read_bytes(), content_hash)
    except OSError:
        return None


def parse_results(data: bytes, content_hash: str) -> Mapping[str, Result] | None:
    """What a file says of this content; `None` where it is damaged, or about another one."""
    try:
        found = loads(data)
        if found["content_hash"] != content_hash:
            return None
        return {name: Result(bool(passed), str(summary)) for name, (passed, summary) in found["checks"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def write_results(directory: Path, content_hash: str, results: Mapping[str, Result]) -> None:
    """Write it down, in one step; what is written already stays."""
    if read_results(directory, content_hash) == results:
        return
    path = _beside(directory)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    write_text(temporary, results_text(content_hash, results))
    temporary.replace(path)


def results_text(content_hash: str, results: Mapping[str, Result]) -> str:
    """What the file holds."""
    return json.dumps({"content_hash": content_hash, "checks": {name: list(each) for name, each in results.items()}}, indent=1) + "\n"


def _beside(directory: Path) -> Path:
    return directory.with_name(directory.name + CHECKS)
