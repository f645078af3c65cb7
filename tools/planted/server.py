"""A process that has imported everything and built nothing: each trial runs in a fork of it, so that no cache knows what the unchanged code makes."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planted import planting, trial
from planted.candidates import PACKAGE, ROOT, Plant
from planted.workspaces import Given

MEMORY = 6 << 30
"""Bytes by which a trial may grow."""
SECONDS = 20
"""Of processor time that a trial may take, beside six times what its clean builds take."""
IDLE = 20
"""Seconds without processor time after which a trial hangs."""
MOST = 4
"""Workspaces that a trial builds at most: the cheapest that run the line, and some of the others."""
Result = dict[str, Any]


@dataclass
class Clean:
    """What the unchanged code makes of a workspace.

    Attributes:
        stores: see `trial.stores_of`.
        seconds: of processor time that it takes with all checks.
        lines: by file of the package, the lines that the build runs through without the checks.
    """

    stores: trial.Stores
    seconds: float
    lines: Mapping[str, set[int]]


@dataclass
class Server:
    """Where trials run.

    Attributes:
        given: the workspaces.
        folder: a folder that goes with the server.
        clean: the clean builds, by workspace.
        functions: those of the package.
        left_out: workspaces whose clean build is stopped, and by what.
    """

    given: Mapping[str, Given]
    folder: Path
    clean: dict[str, Clean] = field(default_factory=dict)
    functions: dict[planting.Key, list[Any]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def start(self, kept: Path | None = None) -> None:
        """Import what the builds import, and build each workspace as the code is.

        Args:
            kept: a folder that remembers these builds as long as no code changes; `None` traces no lines.

        A workspace whose clean build is stopped is left out and named.

        Raises:
            SystemExit: two clean builds differ.
        """
        os.environ["PREP_ASSETS_CACHE"] = str(self.folder / "cache")
        state = kept / _state() if kept else None
        if state and state.is_dir():
            shutil.copytree(state / "cache", self.folder / "cache")
            imported, self.clean, self.left_out = pickle.loads((state / "clean").read_bytes())
            _import(imported)
        else:
            imported = list[str]()
            for name, given in self.given.items():
                _import(imported)  # what the one before imported, so that it is imported once
                try:
                    self.clean[name], imported = self._clean(name, given, trace=kept is not None)
                except trial.Stopped as stopped:
                    self.left_out.append(f"{name}: the clean build is stopped: {': '.join(stopped.args)}")
            _import(imported)
            if kept and state:
                for old in kept.glob("state-*"):
                    trial.remove(old)
                shutil.copytree(self.folder / "cache", state / "cache")
                (state / "clean").write_bytes(pickle.dumps((imported, self.clean, self.left_out)))
        self.functions = planting.live_functions()
        gc.freeze()

    def _clean(self, name: str, given: Given, *, trace: bool) -> tuple[Clean, list[str]]:
        stores, seconds, imported = _in_fork(lambda: self._built(given))
        if isinstance(stores, str):
            raise trial.Stopped(stores)
        if not trace:
            return Clean(stores, seconds, {}), imported
        again, lines = _in_fork(lambda: self._traced(given))
        kind, what = trial.difference(stores, again)
        if kind:
            raise SystemExit(f"{name}: two clean builds differ: {what}")
        print(f"{name}: {len(stores)} stores, {seconds:.2f} s", flush=True)
        return Clean(stores, seconds, lines), imported

    def _built(self, given: Given) -> tuple[trial.Stores | str, float, list[str]]:
        began = _seconds()
        try:
            with self._room() as room:
                stores = trial.stores_of(given.configs, room, sharded=given.sharded)
        except trial.Stopped as stopped:
            return ": ".join(stopped.args), 0, []
        return stores, _seconds() - began, [name for name in sys.modules if name != "__main__"]

    def _traced(self, given: Given) -> tuple[trial.Stores, dict[str, set[int]]]:
        lines: dict[str, set[int]] = {}
        with self._room() as room, trial.traced(lines):
            # what workers run through this process does not see, and shards are small pieces of the same work
            return trial.stores_of(given.configs, room, checks=False, sharded=given.sharded), lines

    def _room(self) -> tempfile.TemporaryDirectory[Path]:
        return _Room(self.folder)

    def workspaces_of(self, bug: Plant) -> list[str]:
        """The workspaces whose builds run through a line, cheapest first; where the import runs it, those that run something of its module."""
        path = str(bug.path)
        found = [name for name, clean in self.clean.items() if path in clean.lines and (not bug.function or bug.line in clean.lines[path])]
        return sorted(found, key=lambda name: self.clean[name].seconds)

    def drawn(self, bug: Plant) -> list[str]:
        """The workspaces of a trial."""
        found = self.workspaces_of(bug)
        rng = random.Random(bug.key)
        found = [name for name in found if rng.random() < self.given[name].share] or found[:1]
        others = found[MOST // 2 :]
        return [*found[: MOST // 2], *sorted(rng.sample(others, min(len(others), MOST - MOST // 2)), key=found.index)]

    def tried(self, bug: Plant, names: Sequence[str]) -> Result:
        """What becomes of a bug, in this process, which is of no use afterwards."""
        said: Result = {"verdict": "same", "workspace": names[0] if names else ""}
        try:
            planting.plant(bug, self.functions)
        except BaseException as error:
            return {**said, "verdict": "stopped", "by": type(error).__name__, "says": str(error)[:300]}
        for name in names:
            given = self.given[name]
            said["workspace"] = name
            try:
                with self._room() as room:
                    stores = trial.stores_of(given.configs, room, sharded=given.sharded)
            except trial.Stopped as stopped:
                by, says = stopped.args
                return {**said, "verdict": "stopped", "by": by, "says": says}
            kind, what = trial.difference(self.clean[name].stores, stores)
            if kind == "stores":
                return {**said, "verdict": "stopped", "by": "stores are missing", "says": str(what)[:300]}
            if kind:
                return {**said, "verdict": "published", "kind": kind, "differs": what}
        return {**said, "workspace": names[0] if names else "", "built": list(names)}

    def results(
        self, bugs: Iterable[Plant], workspaces: Callable[[Plant], list[str]] | None = None, *, jobs: int = 1
    ) -> Iterator[tuple[Plant, Result]]:
        """What becomes of each bug, in the order in which the trials end; `workspaces`: those of a trial, drawn if it is left out."""
        drawn = workspaces or self.drawn
        waiting, running = list(reversed(list(bugs))), dict[int, _Running]()
        while waiting or running:
            while waiting and len(running) < jobs:
                bug = waiting.pop()
                answer = Path(tempfile.mkstemp(dir=self.folder)[1])
                limit = SECONDS + 6 * sum(self.clean[name].seconds for name in drawn(bug))
                child = os.fork()
                if not child:
                    try:  # whatever is raised must not run what this process would do at its end
                        _limit(limit)
                        answer.write_text(json.dumps(self.tried(bug, drawn(bug)), default=str), "utf-8")
                    finally:
                        os._exit(0)
                running[child] = _Running(child, bug, answer)
            child, _, used = os.wait4(-1, os.WNOHANG)
            if not child:
                for late, watched in running.items():
                    if watched.hangs():
                        _end(late)
                time.sleep(0.02)
                continue
            if child not in running:
                continue
            bug, answer = running[child].bug, running.pop(child).answer
            _end(child)
            text = answer.read_text("utf-8")
            answer.unlink()
            for left in (str(child), f"cache-{child}"):
                trial.remove(self.folder / left)
            ended = {"verdict": "stopped", "workspace": (drawn(bug) or [""])[0], "by": "killed", "says": "no end, or no memory"}
            yield bug, {**(json.loads(text) if text else ended), "seconds": round(used.ru_utime + used.ru_stime, 2)}


@dataclass
class _Running:
    """A trial that runs, in a session of its own."""

    child: int
    bug: Plant
    answer: Path
    used: int = 0
    at: float = field(default_factory=time.monotonic)

    def hangs(self) -> bool:
        """Whether its processes took hardly any processor time for `IDLE` seconds, as where a worker that failed is waited for."""
        now = time.monotonic()
        if now - self.at < IDLE:
            return False
        before, self.used, self.at = self.used, _ticks(self.child), now
        return self.used - before < IDLE  # a hundredth of one processor


def _ticks(session: int) -> int:
    """Processor time of the processes of a session so far."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text("ascii", "replace").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0
    return total


def _state() -> str:
    """A digest of all that the clean builds depend on."""
    folders = (
        PACKAGE,
        ROOT / "tools" / "planted",
        ROOT / "prep_assets_tests" / "graph",
        ROOT / "prep_assets_tests" / "schemas",
        ROOT / "configs",
    )
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    return f"state-{hashlib.sha256(b''.join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()[:16]}"


def _import(names: Iterable[str]) -> None:
    for name in names:
        if name not in sys.modules and not name.startswith(("planted", "__mp")):
            with suppress(Exception):  # what can be imported in some order only is left to the trials
                __import__(name)


class _Room(tempfile.TemporaryDirectory):  # type: ignore[type-arg]
    """A folder of a process, and a copy of the cache for it, so that no trial finds what another left."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / str(os.getpid())

    def __enter__(self) -> Path:
        trial.remove(self.place)
        self.place.mkdir()
        return self.place / "stores"

    def __exit__(self, *_: object) -> None:
        trial.remove(self.place)


def _limit(seconds: float) -> None:
    """Bound this process and those that it starts."""
    os.setsid()
    cache = Path(os.environ["PREP_ASSETS_CACHE"])
    mine = cache.with_name(f"cache-{os.getpid()}")
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    size = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    shutil.copytree(cache, mine)
    os.environ["PREP_ASSETS_CACHE"] = str(mine)


def _end(child: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _seconds() -> float:
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def _in_fork(work: Callable[[], Any]) -> Any:
    """What `work` returns, without leaving a trace in this process."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(source)
            with os.fdopen(sink, "wb") as stream:
                pickle.dump(work(), stream)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    return pickle.loads(data)
