"""A Ray cluster: the shards of a plan as Ray Core tasks. All that is asked of Ray is to run a function somewhere and say when a worker is lost; order,
names and repetition are those of the plan."""

from __future__ import annotations

import os
import pickle
import re
import socket
import statistics
import time
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.own_process import set_up
from prep_assets.workers.pool import MEMORY, ONE_THREAD, WorkerLost, Workers, answer_of
from prep_assets.workers.shards import Effort, NotDeterministic, Plan, Shard, ShardResult, Work

TRIES = 5
"""How often a shard is begun before the loss of its worker stops the build."""
_AHEAD = 2
"""Shards for each processor: one under way and one to go on with while results are merged."""
_LATE = 4
"""A shard that takes so many times as long as most, when there is nothing else to do, is begun a second time elsewhere."""
_OPTIONS: dict[str, Any] = {
    "num_cpus": 1,
    "max_retries": 0,  # what is lost is given out again here, so that it can be counted
    "scheduling_strategy": "SPREAD",
}
_LOOK = 0.5
"""Seconds between looks at whether nodes have come or gone."""


def _answer(shard: Shard, work: bytes, plan: Plan) -> tuple[str, Any]:
    """See `answer_of`. Ray keeps the process for further shards, and so what it has loaded.

    Its environment is set here, before libraries look at it: a `runtime_env` would have Ray start other processes than those that it has ready.
    """
    os.environ.update(ONE_THREAD)
    set_up()  # Ray gives it to this job alone
    return answer_of(shard, work, plan)


class RayTasks:
    """Carries out plans on a Ray cluster.

    Attributes:
        asked: most shards at a time; `auto`: as many as there are processors.
        effort: counters of the plans so far.
    """

    elsewhere = True

    def __init__(self, address: str, workers: Workers, effort: Effort) -> None:
        self._ray, self.asked, self.effort = connected(address), workers, effort

    @property
    def size(self) -> int:
        """The number asked for, or the current number of processors."""
        return _processors(self.nodes()) if self.asked == "auto" else self.asked

    def nodes(self) -> list[dict[str, float]]:
        """Return the resources of each live node with processors."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        """The results of all shards, in the order of the plan, as they come. What is under way is cancelled when the generator is closed early.

        Raises:
            PrepAssetsError: whatever the work of the first shard that failed raised; workers were lost over one shard too often; no node has the
                memory that a shard needs; a worker cannot import what it must.
        """
        if not plan.shards:
            return
        run = _Run(self, plan, work)
        try:
            for shard in plan.shards:
                while shard.number not in run.results:
                    run.go_on()
                result = run.results[shard.number]
                if isinstance(result, Exception):
                    raise result
                yield result
        finally:
            run.cancel()


def _processors(nodes: Sequence[Mapping[str, float]]) -> int:
    return max(1, int(sum(node["CPU"] for node in nodes)))


def _memory(plan: Plan) -> int:
    """Return the bytes of memory that a worker may take for a shard, which is read in blocks.

    They are those of the largest shard for all, since Ray gives out tasks that ask for the same in the order in which they came, and keeps their workers
    for them. One that asks for something else may wait until all others are done, and what is joined after it with it.
    """
    return MEMORY + min(max(shard.size for shard in plan.shards), MEMORY)


class _Run:
    """One plan under way."""

    def __init__(self, runner: RayTasks, plan: Plan, work: Work) -> None:
        self.runner, self.plan, self._ray = runner, plan, runner._ray
        self.results: dict[int, ShardResult | Exception] = {}
        self._task = self._ray.remote(_answer).options(**_OPTIONS, memory=_memory(plan))
        self._work = self._ray.put(pickle.dumps(work))
        self._waiting, self._in_flight = deque(plan.shards), dict[Any, tuple[Shard, float]]()
        self._tries, self._durations, self._size = Counter[int](), deque[float](maxlen=1000), (0.0, 0)

    def go_on(self) -> None:
        """Hand out shards, then wait until something has ended, or a little."""
        if time.monotonic() - self._size[0] > _LOOK:
            self._size = time.monotonic(), self._most_in_flight()
        plan_header = self.plan.about
        while len(self._in_flight) < self._size[1] and (shard := self._next_shard()):
            task = self._task.remote(shard, self._work, plan_header)
            self._in_flight[task] = shard, time.monotonic()
        ready, _ = self._ray.wait(list(self._in_flight), timeout=_LOOK)
        for task in self._ray.wait(list(self._in_flight), num_returns=len(self._in_flight), timeout=0)[0] if ready else ():
            self._take_result(task, *self._in_flight.pop(task))

    def _most_in_flight(self) -> int:
        """Return the most shards that may be in flight.

        Raises:
            ConfigError: none of the nodes that there are could ever take one.
        """
        nodes, needed, asked = self.runner.nodes(), _memory(self.plan), self.runner.asked
        if nodes and (largest := max(node.get("memory", 0) for node in nodes)) < needed:
            raise ConfigError(
                f"a shard may need {needed >> 20:,} MiB of memory, and no node of the Ray cluster has more than {int(largest) >> 20:,} MiB to give. "
                "Start its nodes with a higher --memory, or ask for more shards: cluster.shards"
            )
        processors = _processors(nodes)
        # where there are more processors all that is given out is begun at once
        return asked if asked != "auto" and asked < processors else _AHEAD * processors

    def _next_shard(self) -> Shard | None:
        if self._waiting:
            return self._waiting.popleft()
        if len(self._durations) < 3 or not self._in_flight:
            return None
        flying = Counter(shard.number for shard, _ in self._in_flight.values())
        late = time.monotonic() - _LATE * max(1.0, statistics.median(self._durations))
        late_shard = next((shard for shard, began in self._in_flight.values() if began < late and flying[shard.number] == 1), None)
        self.runner.effort.copies += late_shard is not None
        return late_shard

    def _take_result(self, task: Any, shard: Shard, began: float) -> None:
        errors = self._ray.exceptions
        try:
            kind, content = self._ray.get(task)
        except errors.RayTaskError as error:  # before or after the work, which tells of its own errors
            kind, content = "failed", PrepAssetsError(f"{self.plan.label(shard)}: a worker of the Ray cluster cannot begin it: {error}")
        except (errors.RuntimeEnvSetupError, errors.TaskCancelledError) as error:
            kind, content = "failed", PrepAssetsError(f"{self.plan.label(shard)}: {error}")
        except errors.RayError as error:
            kind, content = "lost", " ".join(str(error).split())
        known = self.results.get(shard.number)
        if isinstance(known, ShardResult):  # a second execution
            if isinstance(content, NotDeterministic):
                raise content
        elif kind == "done":
            self._durations.append(time.monotonic() - began)
            self.results[shard.number] = content
        elif kind == "failed" and not isinstance(content, OSError):
            self.results[shard.number] = content
            self._waiting = deque(
                waiting for waiting in self._waiting if waiting.number < shard.number
            )  # later ones are not wanted any more
        else:
            self._retry(shard, "ran out of memory" if kind == "memory" else f"ended: {content}", content)

    def _retry(self, shard: Shard, why: str, fault: Any) -> None:
        """Retry a shard whose worker was lost, or that failed with an error of disk or network."""
        self.runner.effort.lost += not isinstance(fault, OSError)
        self._tries[shard.number] += 1
        if self._tries[shard.number] < TRIES:
            self._waiting.appendleft(shard)
        elif isinstance(fault, OSError):
            self.results[shard.number] = fault
        else:
            message = f"{self.plan.label(shard)}: its worker on the Ray cluster {why}, and so did {TRIES - 1} before. Give nodes more memory, or fewer CPUs"
            self.results[shard.number] = WorkerLost(message)

    def cancel(self) -> None:
        """End what is under way."""
        for task in self._in_flight:
            self._ray.cancel(task, force=True)


_ADDRESS: list[str] = []
_PLACE = re.compile(r"([^/:]+):(\d+)$")
_PATIENCE = 20
"""Seconds until a cluster must have answered."""


def connected(address: str) -> Any:
    """Return Ray, connected to a cluster once per process.

    Raises:
        ConfigError: Ray is not installed, no cluster answers, or this process is connected to another one.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("cluster.kind: ray needs Ray: pip install 'prep-assets[ray]'") from error
    if not ray.is_initialized():
        try:
            if place := _PLACE.search(address):  # Ray itself asks for minutes
                socket.create_connection((place[1], int(place[2])), _PATIENCE).close()
            # results of commands are on stdout: what workers print is kept in Ray's logs, and their loss is counted and told by us
            ray._private.worker.print_to_stdstream = lambda *args, **options: None
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"no Ray cluster answers at cluster.address {address!r}: {error}. Start one with `ray start --head`, name its address, or set "
                "cluster.kind: local"
            ) from error
        _ADDRESS.append(address)
    if _ADDRESS and _ADDRESS[0] != address and address != "auto":
        raise ConfigError(
            f"this process is connected to the Ray cluster at {_ADDRESS[0]}, and cluster.address is {address}. Build them one by one"
        )
    return ray
