"""``python -m mutants MODULE…``: change the proofs one place at a time, and see whether their direct tests fail.

Modules are files of the room of proofs, all of them if none is named. A survivor that `docs/mutants.md` does not list makes the run fail.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from mutants.changed import Changed
from mutants.session import Session

ROOT = Path(__file__).resolve().parents[2]
ROOM = "proofs"
PAGE = ROOT / "docs" / "mutants.md"


def main() -> int:
    os.environ |= {"CI": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.pop("PREP_ASSETS_TEST_DATA", None)
    names = sys.argv[1:] or sorted(path.stem for path in (ROOT / "prep_assets" / ROOM).glob("*.py") if path.stem != "__init__")
    killed = total = unlisted = 0
    for name in names:
        # each module in a process of its own, so that nothing of another is imported
        with ProcessPoolExecutor(1) as pool:
            own_killed, own_total, own_unlisted = pool.submit(module, name).result()
        killed, total, unlisted = killed + own_killed, total + own_total, unlisted + own_unlisted
    print(f"{killed:,} of {total:,} changes are noticed; {unlisted:,} of the others are not listed in {PAGE.relative_to(ROOT)}")
    return int(unlisted > 0)


def module(name: str) -> tuple[int, int, int]:
    """Try all changes of one module: how many were noticed, how many there are, and how many of the others the page does not list."""
    whole = f"prep_assets.{ROOM}.{name}"
    test = ROOT / "prep_assets_tests" / ROOM / f"test_{name}.py"
    changed = Changed.of(whole, ROOT / "prep_assets" / ROOM / f"{name}.py")
    mutants = changed.made.mutant_names
    if not mutants:
        return 0, 0, 0
    if not test.exists():
        print(f"{name}: no file {test.relative_to(ROOT)}")
        return 0, len(mutants), len(mutants)
    changed.install()
    session = Session(whole, mutants)
    with Path(os.devnull).open("w") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        pytest.main([str(test), "-p", "no:cacheprovider", "-p", "no:xdist", "-q"], plugins=[session])
        os.dup2(kept, 1)
    if len(session.fates) < len(mutants):
        print(f"{name}: tests fail without any change: {session.failed}")
        return 0, len(mutants), len(mutants)
    left = {mutant: fate for mutant, fate in session.fates.items() if fate in ("survived", "no tests")}
    print(f"{name}: {len(mutants) - len(left):,} of {len(mutants):,}", flush=True)
    unlisted = 0
    page = PAGE.read_text() if PAGE.exists() else ""
    for mutant, fate in left.items():
        before, after = changed.difference(mutant)
        listed = _only_strict(before, after) or f"`{after}`" in page
        unlisted += not listed
        print(f"  {mutant} {fate}{', listed' if listed else ''}\n    - {before}\n    + {after}", flush=True)
    return len(mutants) - len(left), len(mutants), unlisted


def _only_strict(before: str, after: str) -> bool:
    """Whether a change is about `strict` of a zip alone: an assertion about lengths that the code before it makes equal."""
    bare = [re.sub(r",? ?strict=(True|False|None)|, (?=[):])", "", text).replace("):", ")").replace(" ", "") for text in (before, after)]
    return bare[0] == bare[1] != ""


if __name__ == "__main__":
    sys.exit(main())
