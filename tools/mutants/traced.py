"""``python -m mutants.traced``: one run of the tests, which notes the statements of the modules that each test and each shared fixture runs."""

from __future__ import annotations

import ast
import importlib.util
import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "prep_assets"
ASKED = sorted({*os.environ.get("MODULE", "").split()})
"""Rooms or modules that are changed; none for all proofs and checks."""
TESTS = (
    *("-m", "not cli", "-n0", "-p", "no:cacheprovider", *(f"--ignore=prep_assets_tests/{room}" for room in ("cluster", "deploy", "ui"))),
    *(os.environ.get("TESTS", "").split() or [str(ROOT / "prep_assets_tests")]),
)
"""What is run: not tests of commands in processes of their own, which see no change."""


def _below(places: Iterable[str]) -> list[str]:
    found = sorted(path for place in places for path in PACKAGE.glob(place) if path.stem != "__init__")
    return [path.relative_to(PACKAGE).with_suffix("").as_posix() for path in found]


PROOFS = _below(place + file for place in ("", "extensions/*/") for file in ("proofs/*.py", "checks/*.py", "proofs.py", "checks.py"))
"""The modules of proofs and checks, those of extensions too, as they lie in the package."""
OTHERS = (
    []
    if {*ASKED} <= {*PROOFS, *(name.rpartition("/")[0] for name in PROOFS)}
    else _below(f"{name}{end}" for name in ASKED for end in (".py", "/*.py"))
)
"""What is asked for, where not all of it is among them."""
TRACE = ROOT / "build" / "mutants" / f"{'-'.join(['trace', *(ASKED if OTHERS else ())]).replace('/', '.')}.jsonl"


@cache
def modules() -> list[str]:
    """The modules that are changed, as they lie in the package."""
    return OTHERS or PROOFS


def seconds() -> float:
    """Processor time of this process and of those that it started."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def statements(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], int, ast.stmt, str]]:
    """Yield all statements of functions, and what names them: the block that each is in, its place there, and function and first line, which stay when
    others change."""
    for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for function in owner.body:
            if isinstance(function, ast.FunctionDef):
                name = f"{owner.name}.{function.name}" if isinstance(owner, ast.ClassDef) else function.name
                for node in ast.walk(function):
                    for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
                        for at, each in enumerate(block if isinstance(block, list) else ()):
                            if not (at == 0 and node is function and ast.get_docstring(function) is not None):
                                yield block, at, each, f"{name}: {ast.unparse(each).partition(chr(10))[0]}"


class Traced(SourceFileLoader):
    """Imports the modules so that each statement notes that it is run, in memory that forks share; and a plugin of pytest that writes the notes."""

    names: list[str] = []  # noqa: RUF012
    run = mmap.mmap(-1, 1 << 16)

    def __init__(self, fullname: str = "", path: str = "") -> None:
        super().__init__(fullname, path)
        self.failed, self.told = False, 0

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        module = fullname.replace(".", "/").removeprefix("prep_assets/")
        if module not in modules():
            return None
        place = str(PACKAGE / f"{module}.py")
        return importlib.util.spec_from_file_location(fullname, place, loader=cls(fullname, place))

    def get_code(self, fullname: str) -> CodeType:
        tree, module = ast.parse(self.get_data(self.path)), Path(self.path).relative_to(PACKAGE).with_suffix("").as_posix()
        for block, at, each, name in reversed([*statements(tree)]):
            note = ast.parse(f"__run__[{len(self.names)}] = 1").body[0]
            for inner in ast.walk(note):
                ast.copy_location(inner, each)
            block.insert(at, note)
            self.names.append(f"{module} {name}")
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__run__"] = self.run
        super().exec_module(module)

    def write(self, **line: Any) -> None:
        named, self.told = self.names[self.told :], len(self.names)
        with TRACE.open("a", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(each) + "\n" for each in ({"names": named}, line) if each != {"names": []}))

    def noted(self, began: float) -> dict[str, Any]:
        return {"runs": [at for at, run in enumerate(self.run[: len(self.names)]) if run], "seconds": round(seconds() - began, 3)}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before, began = self.run[:], seconds()
        self.run[:] = bytes(len(before))
        try:
            return (yield)
        finally:
            self.write(fixture=f"{fixturedef.baseid} {fixturedef.argname}", **self.noted(began))
            for at, run in enumerate(before):
                self.run[at] |= run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        from prep_assets.caches import CACHES

        for cached in CACHES.values():
            cached.clear()
        for module in filter(None, (sys.modules.get(f"prep_assets.{name.replace('/', '.')}") for name in modules())):
            for found in vars(module).values():
                if clear := getattr(found, "cache_clear", None):
                    clear()  # else only the first test runs what a function remembers
        self.run[:] = bytes(len(self.run))
        self.failed, began = False, seconds()
        try:
            return (yield)
        finally:
            if not self.failed:
                self.write(test=item.nodeid, **self.noted(began))

    def pytest_collection_finish(self) -> None:
        self.write(test="", **self.noted(seconds()))  # what the import runs

    def pytest_sessionfinish(self) -> None:
        self.write(imported=[name for name in sys.modules if name not in ("__main__", "mutants.traced")])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= not report.passed


if __name__ == "__main__":
    TRACE.parent.mkdir(parents=True, exist_ok=True)
    TRACE.unlink(missing_ok=True)
    sys.meta_path.insert(0, Traced)
    sys.exit(pytest.main([*TESTS, *sys.argv[1:]], plugins=[Traced()]))
