"""One pytest session that tries every change of one module: after collection, each is tried in a fork, which ends at the first test that fails."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Literal

import pytest
from _pytest.tmpdir import tmppath_result_key
from mutmut.mutation import trampoline

Fate = Literal["killed", "survived", "no tests", "timeout"]
LEAST_SECONDS = 2
"""Of processor time: the clock says little on a busy machine."""


class Session:
    """Takes the place of pytest's own loop over the tests.

    Attributes:
        fates: what became of each change.
    """

    def __init__(self, module: str, mutants: Sequence[str]) -> None:
        self.module, self.mutants = module, mutants
        self.fates: dict[str, Fate] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        hits: dict[str, set[str]] = {}
        seconds: dict[str, float] = {}
        for item in session.items:
            hits[item.nodeid], seconds[item.nodeid], failed, imported = _in_fork(lambda item=item: _measured(item))
            self.failed += [item.nodeid] if failed else []
            for name in imported:
                if name not in sys.modules:
                    _import(name)
        if self.failed:
            return True
        gc.freeze()
        likely: dict[str, pytest.Item] = {}
        for mutant in self.mutants:
            function = mutant.partition("__mutmut_")[0]
            direct = [item for item in session.items if function in hits[item.nodeid]]
            # what noticed the change before this one in the same function comes first
            direct.sort(key=lambda item: (item is not likely.get(function), seconds[item.nodeid]))
            self.fates[mutant], last = _tried(f"{self.module}.{mutant}", direct, seconds) if direct else ("no tests", 0)
            if self.fates[mutant] in ("killed", "timeout"):
                likely[function] = direct[last]
        return True


def _import(name: str) -> None:
    try:
        __import__(name)
    except Exception:  # a module that only imports in some order is left to the forks
        sys.modules.pop(name, None)


def _measured(item: pytest.Item) -> tuple[set[str], float, bool, list[str]]:
    """Which functions a test calls; how long it takes, with fixtures and its processes; whether it fails unchanged; what is imported at its end."""
    found: set[str] = set()
    trampoline.record_trampoline_hit = lambda name, caller=None: found.add(name.rpartition(".")[2])
    trampoline.set_mutant_under_test("stats")
    start = time.process_time()
    failed = _fails([item], 0)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, time.process_time() - start + others.ru_utime + others.ru_stime, failed, list(sys.modules)


def _fails(items: Sequence[pytest.Item], at: int) -> bool:
    """Run a test without its report, which takes longer than most tests. After a failure the process is of no use."""
    item = items[at]
    hook: Any = item.ihook
    if hasattr(item, "_request") and not item._request:
        item._initrequest()  # type: ignore[attr-defined]
    item.stash[tmppath_result_key] = {}
    try:
        hook.pytest_runtest_setup(item=item)
        hook.pytest_runtest_call(item=item)
        hook.pytest_runtest_teardown(item=item, nextitem=items[at + 1] if at + 1 < len(items) else None)
    except pytest.skip.Exception:
        hook.pytest_runtest_teardown(item=item, nextitem=items[at + 1] if at + 1 < len(items) else None)
    except BaseException:
        return True
    return False


def _in_fork(work: Callable[[], Any]) -> Any:
    """What `work` returns, without leaving a trace in this process."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        with os.fdopen(sink, "wb") as stream:
            pickle.dump(work(), stream)
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


def _tried(mutant: str, items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> tuple[Fate, int]:
    """Run the tests one after the other: what became of the change, and which test was last.

    None may take much longer than it does without a change: a loop that does not end is noticed in the quickest.
    """
    last = mmap.mmap(-1, 4)
    child = os.fork()
    if not child:
        trampoline.set_mutant_under_test(mutant)
        sys.setrecursionlimit(1000)
        for at, item in enumerate(items):
            limit = ceil(time.process_time() + LEAST_SECONDS + 2 * seconds[item.nodeid])
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            last[:] = at.to_bytes(4, "little")
            if _fails(items, at):
                os._exit(1)
        os._exit(0)
    status, at = os.waitpid(child, 0)[1], int.from_bytes(last[:], "little")
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "killed", at
    return "killed" if os.WEXITSTATUS(status) else "survived", at
