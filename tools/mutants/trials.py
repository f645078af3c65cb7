"""A session of pytest that tries changes instead of tests: each in a fork, on the tests that run its statement, until one of them fails."""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import pytest
from _pytest.tmpdir import tmppath_result_key
from planted import planting, server

from mutants.changes import Change
from mutants.traced import TRACE, seconds

MOST_SECONDS = int(os.environ.get("SECONDS") or 20)
"""Of processor time, after which no further test is begun."""
QUICK = 0.1
"""Tests of fewer seconds are tried before all others, until they have taken a tenth of the time."""
WARM = "pristine"
"""The fixture that is made once for all trials: stores that are built without a check."""


@dataclass
class Trials:
    """A plugin that takes the place of pytest's own loop. What the import alone runs is left out.

    Attributes:
        changes: what is tried.
        tell: is given each change, the test that noticed it, empty if none did, how many tests were run, and how many run the statement.
    """

    changes: Sequence[Change]
    tell: Callable[[Change, str, int, int], None]
    cost: dict[str, float] = field(default_factory=dict)
    breadth: dict[str, int] = field(default_factory=dict)
    reach: dict[str, list[pytest.Item]] = field(default_factory=lambda: defaultdict(list))
    imported: set[str] = field(default_factory=set)
    noticed: Counter[str] = field(default_factory=Counter)
    sound: dict[str, bool] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        os.environ["PREP_ASSETS_CACHE"] = str(folder / "cache")
        (folder / "cache").mkdir()
        self._read({item.nodeid: item for item in session.items})
        for item in [item for item in session.items if WARM in getattr(item, "fixturenames", ())][:1]:
            _warm(item)
        gc.unfreeze()  # so that functions are found
        functions, kept = planting.live_functions(), {*folder.iterdir()}
        gc.freeze()
        for change in self.changes:
            if (name := f"{change.module} {change.statement}") not in self.imported or self.reach[name]:
                self.tell(change, *self._tried(change, functions))
            for left in {*folder.iterdir()} - kept:
                shutil.rmtree(left, ignore_errors=True)
        return True

    def _read(self, items: dict[str, pytest.Item]) -> None:
        """The trace: what a shared fixture runs and takes is added to its tests."""
        lines = list(map(json.loads, TRACE.read_text("utf-8").splitlines()))
        names = [name for line in lines for name in line.get("names", ())]
        fixtures = {line["fixture"]: line for line in lines if "fixture" in line}
        self.imported = {names[at] for line in lines if line.get("test") == "" for at in line["runs"]}
        for line in lines:
            server._import(line.get("imported", ()))
            if item := items.get(line.get("test", "")):
                found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
                named = (f"{each.baseid} {name}" for name, several in found.items() for each in several if name != WARM)
                parts = [line, *(fixtures[name] for name in named if name in fixtures)]
                runs = {at for part in parts for at in part["runs"]}
                seconds = (
                    part["seconds"] for part in parts if part is line or part["seconds"] > QUICK
                )  # what all tests take counts for none
                self.cost[item.nodeid], self.breadth[item.nodeid] = sum(seconds) + 0.01, len(runs)
                for name in map(names.__getitem__, runs):
                    self.reach[name].append(item)
        known = {*self.reach, *self.imported}
        TRACE.with_name("unrun.txt").write_text("".join(f"{name}\n" for name in names if name not in known), "utf-8")

    def _tried(self, change: Change, functions: dict[planting.Key, list[Any]]) -> tuple[str, int, int]:
        inside = f"{change.module} {change.function}"

        def promising(item: pytest.Item, breadth: float) -> float:
            """What noticed a change of the function comes first, then what notices much and takes little time."""
            likely = 1 + self.noticed[item.nodeid] + 1000 * self.noticed[f"{inside} {item.nodeid}"]
            return self.cost[item.nodeid] * self.breadth[item.nodeid] ** breadth / likely

        # what takes next to nothing comes first, then in turns what runs little else, such as spoiled stores, and what runs much else, such as builds
        reach = [item for item in self.reach[f"{change.module} {change.statement}"] if self.sound.get(item.nodeid, True)]
        narrow, broad = (sorted(reach, key=lambda item: promising(item, breadth)) for breadth in (1, -1))
        quick = [item for item in narrow if self.cost[item.nodeid] < QUICK]
        together = accumulate(self.cost[item.nodeid] for item in quick)
        at_once = [item for item, seconds in zip(quick, together, strict=True) if seconds < MOST_SECONDS / 10]
        items = [*dict.fromkeys(chain(at_once, chain.from_iterable(zip(narrow, broad, strict=True))))]
        failed, tried = self._run(items, lambda: planting.plant(change, functions))
        if not failed:
            return "", tried, len(items)
        if (by := items[tried - 1].nodeid) not in self.sound:
            # in the same order without a change: what fails here as well says nothing
            wrong, at = self._run(items[:tried], lambda: None)
            self.sound[items[at - 1].nodeid] = not wrong
            if wrong:
                return self._tried(change, functions)
        self.noticed.update((by, f"{inside} {by}"))
        return by, tried, len(items)

    def _run(self, items: Sequence[pytest.Item], prepare: Callable[[], None]) -> tuple[bool, int]:
        """Run tests in a fork until one fails: whether it does, and how many were begun.

        None may take much longer than it does without a change: a loop that does not end is noticed in the quickest.
        """
        at = mmap.mmap(-1, 4)
        child = os.fork() if items else 0
        if items and not child:
            try:
                server._limit(3600)
                prepare()
                began = seconds()
                for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
                    if seconds() - began < MOST_SECONDS:
                        at[:] = (number + 1).to_bytes(4, "little")
                        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + 10 + 4 * self.cost[item.nodeid]), 3605))
                        if _fails(item, following):
                            os._exit(1)
                os._exit(0)
            finally:
                os._exit(1)
        begun, since, status = 0, time.monotonic(), 0
        while child and not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if begun != (begun := int.from_bytes(at[:], "little")):
                since = time.monotonic()
            if time.monotonic() - since > 60 + 20 * self.cost[items[max(begun, 1) - 1].nodeid]:
                server._end(child)
            time.sleep(0.005)
        if child:
            server._end(child)
            status = ended[1]
        return status != 0, int.from_bytes(at[:], "little")


def _warm(item: pytest.Item) -> None:
    """Make the shared fixture, and import what it takes, in a fork, so that no cache of this process knows what the unchanged code makes."""

    def made() -> tuple[Any, list[str]]:
        _set_up(item)
        return item.funcargs[WARM], [name for name in sys.modules if name != "__main__"]  # type: ignore[attr-defined]

    value, imported = server._in_fork(made)
    server._import(imported)
    item._fixtureinfo.name2fixturedefs[WARM][-1].cached_result = (value, None, None)  # type: ignore[attr-defined]


def _set_up(item: pytest.Item) -> None:
    if not getattr(item, "_request", True):
        item._initrequest()  # type: ignore[attr-defined]
    item.stash[tmppath_result_key] = {}
    item.ihook.pytest_runtest_setup(item=item)


def _fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test without its report, which takes longer than most tests. After a failure the process is of no use."""
    try:
        _set_up(item)
        item.ihook.pytest_runtest_call(item=item)
    except pytest.skip.Exception:
        pass
    except BaseException:
        return True
    try:
        item.ihook.pytest_runtest_teardown(item=item, nextitem=following)
    except BaseException:
        return True
    return False
