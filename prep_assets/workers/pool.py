"""The local pool: worker processes on this machine that take the shards of a plan one after the other."""

from __future__ import annotations

import os
import pickle
import signal
from collections import Counter, deque
from collections.abc import Generator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from prep_assets.errors import PrepAssetsError
from prep_assets.workers.count import MEMORY, Workers, worker_count
from prep_assets.workers.fork_server import ForkServer
from prep_assets.workers.memory import memory_there, require_memory
from prep_assets.workers.shards import Effort, Plan, Runner, Shard, ShardResult, Work

TRIES = 2
"""How often a shard is begun before the loss of its worker stops the build."""
_AHEAD = 2
"""Shards that a worker holds: one under way and one to go on with while results are merged."""


class WorkerLost(PrepAssetsError):
    """A worker ended in the middle of a shard, and the one that took the shard over did as well."""


@dataclass(slots=True)
class _Worker:
    process: int
    server: ForkServer
    connection: Connection
    shards: deque[Shard] = field(default_factory=deque)
    work: bytes | None = None

    def tell(self, message: tuple[str, Any]) -> None:
        with suppress(OSError):  # it is gone, which shows when it is listened to
            self.connection.send(message)


class Pool(AbstractContextManager["Pool"]):
    """Processes that carry out plans, one plan at a time. They are forked when they are first needed, and end with the pool, or when a plan
    needs something else to be opened.

    Close it, or use it as a context manager. A process that is killed with it leaves none behind: workers watch a pipe from it.

    Attributes:
        size: most processes that work at a time.
        effort: what plans took so far, those as well that were carried out elsewhere in its place.
        noted: what one piece of work leaves for another of the same build, by what it is about.
    """

    elsewhere = False

    def __init__(self, size: int = 1) -> None:
        self.size, self.effort = size, Effort()
        self.noted: dict[Any, Any] = {}
        self._workers: list[_Worker] = []
        self._server: ForkServer | None = None
        self._lost_servers: list[ForkServer] = []  # workers that were forked from them go on
        self._ready = self._needed = b""

    def __exit__(self, *_: object) -> None:
        self.close()

    def runner(self, workers: Workers, *, busy: int = 1, ray: str | None = None) -> Runner | None:
        """Who carries out plans with so many workers: this pool, or tasks on the Ray cluster at the address `ray`.

        Args:
            busy: how many processors this process keeps busy without workers; ``auto`` starts none for so few, which gives `None`.
        """
        if ray is not None:
            from prep_assets.workers.on_ray import RayTasks

            return RayTasks(ray, workers, self.effort)
        self.size = worker_count(workers)
        return self if self.size > (busy if workers == "auto" else 1) else None

    @property
    def processes(self) -> list[int]:
        """Ids of the workers that there are."""
        return [worker.process for worker in self._workers]

    def close(self) -> None:
        """End all workers at once, whatever they are doing."""
        self._end_workers()
        for server in (*self._lost_servers, *([self._server] if self._server else [])):
            server.end()
        self._lost_servers.clear()
        self._server = None

    def _end_workers(self) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):
                os.kill(worker.process, signal.SIGKILL)
        for worker in self._workers:
            worker.server.ended(worker.process)
            worker.connection.close()
        self._workers.clear()

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        """The results of all shards, in the order of the plan, as they come. Workers are ended when the iterator is closed before its end.

        Raises:
            PrepAssetsError: there is no memory for so many workers; whatever the work of the first shard that failed raised; or a worker was lost
                twice over one shard.
        """
        count = min(self.size, len(plan.shards))
        most = max(1, memory_there() // MEMORY)
        fewer = f"Set `workers` in the configuration to {most:,} or fewer, or to auto; or give --workers {most}"
        require_memory(count * MEMORY, f"{count:,} workers, {MEMORY >> 20} MiB each,", fewer)
        described, about, ready = pickle.dumps(work), plan.about, pickle.dumps(plan.ready)
        if not self._workers or (plan.ready is not None and ready != self._ready):
            self._end_workers()
            self._ready, self._needed = ready, pickle.dumps((work, plan.ready))
            if self._server is not None:
                self._server.get_ready(self._needed)
        waiting, tries = deque(plan.shards), Counter[int]()
        results: dict[int, ShardResult | Exception] = {}
        complete = False
        try:
            for shard in plan.shards:
                while shard.number not in results:
                    self._give(waiting, described, about)
                    for worker in self._heard():
                        self._take(worker, plan, waiting, tries, results)
                found = results.pop(shard.number)
                if isinstance(found, Exception):
                    raise found
                self._give(waiting, described, about)
                yield found
            complete = True
        finally:
            if not complete:
                self.close()

    def _give(self, waiting: deque[Shard], work: bytes, about: Plan) -> None:
        """Hand out shards, first to workers that have none; a second one only while there is enough for all."""
        while len(self._workers) < min(self.size, len(waiting)):
            self._workers.append(self._start())
        for most in range(1, _AHEAD + 1):
            for worker in self._workers[: self.size]:
                if waiting and len(worker.shards) < most and (most == 1 or len(waiting) >= len(self._workers)):
                    if worker.work != work:
                        worker.tell(("work", work))
                        worker.work = work
                    worker.shards.append(waiting.popleft())
                    worker.tell(("shard", (worker.shards[-1], about)))

    def _heard(self) -> list[_Worker]:
        """The busy workers that have something to say, or are gone."""
        by_connection = {worker.connection: worker for worker in self._workers if worker.shards}
        return [by_connection[ready] for ready in wait(list(by_connection)) if isinstance(ready, Connection)]

    def _take(
        self,
        worker: _Worker,
        plan: Plan,
        waiting: deque[Shard],
        tries: Counter[int],
        results: dict[int, ShardResult | Exception],
    ) -> None:
        try:
            kind, content = worker.connection.recv()
        except (EOFError, OSError):
            kind, content = "lost", None
        if kind in ("done", "failed"):
            shard = worker.shards.popleft()
            results[shard.number] = content
            if kind == "failed":  # what comes later in the plan is not wanted any more
                kept = [each for each in waiting if each.number < shard.number]
                waiting.clear()
                waiting.extend(kept)
            return
        why = self._end(worker, memory=kind == "memory")
        again = list(worker.shards)
        tries[again[0].number] += 1
        if tries[again[0].number] == TRIES:
            results[again[0].number] = WorkerLost(self._lost(again[0], plan, why))
            del again[0]
        waiting.extendleft(reversed(again))

    def _end(self, worker: _Worker, *, memory: bool) -> str:
        """Put away a worker that is gone, and say how it ended."""
        self.effort.lost += 1
        self._workers.remove(worker)
        code = worker.server.ended(worker.process)
        worker.connection.close()
        if memory:
            return "ran out of memory"
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), as the system does when memory runs out"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _lost(self, shard: Shard, plan: Plan, why: str) -> str:
        return (
            f"{plan.label(shard)}: its worker {why}, and so did the one before. There are {self.size} workers; set fewer "
            "(`workers` in the configuration, or --workers), so that each has more memory"
        )

    def _start(self) -> _Worker:
        for _ in range(TRIES):
            if self._server is None:
                self._server = ForkServer()
                self._server.get_ready(self._needed)
            server = self._server
            with suppress(EOFError, OSError):
                process, connection = server.worker()
                if process == server.process.pid:  # it has threads, so that it is the worker itself
                    self._server = None
                return _Worker(process, server, connection)
            self._lost_servers.append(server)
            self._server = None
        raise WorkerLost(
            "the process that workers are forked from was ended twice before it forked one, as the system does when memory runs out"
        )
