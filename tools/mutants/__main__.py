"""``python -m mutants MODULE…``: change the proofs one place at a time, and see whether their direct tests fail.

Modules are files of the room of proofs, and those of extensions (``contrastive/rows``): all of them if none is named, and with the name ``changed`` those
that differ from what the page measured.
A survivor that `survivors.md` beside this file does not list makes the run fail. PREP_ASSETS_WRITE_DOCS=1 writes the figures to `measured.md`.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from mutants.changed import Changed
from mutants.page import PAGE, SURVIVORS, Figure, figures, written
from mutants.session import Session

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, TESTS = ROOT / "prep_assets", ROOT / "prep_assets_tests"


def main() -> int:
    os.environ |= {"CI": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.pop("PREP_ASSETS_TEST_DATA", None)
    sources = modules()
    known, states = figures(), {name: state(name) for name in sources}
    names = sys.argv[1:] or list(sources)
    if names == ["changed"]:
        names = [name for name in sources if name not in known or known[name].state != states[name]]
    unlisted = 0
    found = {}
    for name in names:
        # each module in a process of its own, so that nothing of another is imported
        with ProcessPoolExecutor(1) as pool:
            noticed, tried, more = pool.submit(module, name).result()
        found[name] = Figure(noticed, tried, states[name])
        unlisted += more
        if noticed and os.environ.get("PREP_ASSETS_WRITE_DOCS"):
            PAGE.write_text(written({key: figure for key, figure in (figures() | {name: found[name]}).items() if key in sources}), "utf-8")
    noticed, tried = (sum(getattr(figure, field) for figure in found.values()) for field in ("noticed", "tried"))
    print(f"{noticed:,} of {tried:,} changes are noticed; {unlisted:,} of the others are not listed in {SURVIVORS.relative_to(ROOT)}")
    return int(unlisted > 0)


def modules() -> list[str]:
    """The modules of the proofs, those of an extension with its name before theirs."""
    own = [path.stem for path in sorted((PACKAGE / "proofs").glob("*.py"))]
    added = [f"{path.parts[-3]}/{path.stem}" for path in sorted(PACKAGE.glob("extensions/*/proofs/*.py"))]
    return [name for name in (*own, *added) if not name.endswith("__init__")]


def path_of(name: str) -> Path:
    """The file of a module, below the package."""
    extension, _, stem = name.rpartition("/")
    return Path("extensions", extension, "proofs", f"{stem}.py") if extension else Path("proofs", f"{stem}.py")


def state(name: str) -> str:
    """A digest of a module's code, without its comments and docstrings."""
    tree = ast.parse((PACKAGE / path_of(name)).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return sha256(ast.dump(tree).encode()).hexdigest()[:8]


def tests_of(name: str) -> list[Path]:
    """The direct tests of a module: the files of its room's or extension's tests that import it and build no store, which each fork would build again."""
    package, folder = ".".join(path_of(name).parent.parts), Path("extensions", Path(name).parent) if "/" in name else Path("proofs")
    imports = re.compile(rf"from prep_assets\.{package}(\.{Path(name).name} import | import ([\w, ]+, )?{Path(name).name}\b)")
    texts = {path: path.read_text("utf-8") for path in sorted((TESTS / folder).glob("test_*.py"))}
    return [path for path, text in texts.items() if imports.search(text) and "Workspace" not in text]


def module(name: str) -> tuple[int, int, int]:
    """Try all changes of one module: how many were noticed, how many there are, and how many of the others the list of survivors lacks."""
    whole = ".".join(("prep_assets", *path_of(name).with_suffix("").parts))
    tests = tests_of(name)
    changed = Changed.of(whole, PACKAGE / path_of(name))
    mutants = [mutant for mutant in changed.made.mutant_names if not _only_strict(*changed.difference(mutant))]
    if not mutants:
        return 0, 0, 0
    if not tests:
        print(f"{name}: no direct test imports it")
        return 0, len(mutants), len(mutants)
    changed.install()
    session = Session(whole, mutants)
    with Path(os.devnull).open("w") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        pytest.main([*map(str, tests), "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-q"], plugins=[session])
        os.dup2(kept, 1)
    if len(session.fates) < len(mutants):
        print(f"{name}: tests fail without any change: {session.failed}")
        return 0, len(mutants), len(mutants)
    left = {mutant: fate for mutant, fate in session.fates.items() if fate in ("survived", "no tests")}
    print(f"{name}: {len(mutants) - len(left):,} of {len(mutants):,}", flush=True)
    unlisted = 0
    listed = SURVIVORS.read_text("utf-8").partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    for mutant, fate in left.items():
        before, after = changed.difference(mutant)
        known = f"\n- `{after}`" in listed
        unlisted += not known
        print(f"  {mutant} {fate}{', listed' if known else ''}\n    - {before}\n    + {after}", flush=True)
    return len(mutants) - len(left), len(mutants), unlisted


def _only_strict(before: str, after: str) -> bool:
    """Whether a change is about `strict` of a zip alone: an assertion about lengths that the code before it makes equal."""
    bare = [re.sub(r",? ?strict=(True|False|None)|, (?=[):])", "", text).replace("):", ")").replace(" ", "") for text in (before, after)]
    return bare[0] == bare[1] != ""


if __name__ == "__main__":
    sys.exit(main())
