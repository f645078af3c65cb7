"""The local pool: number and memory of workers, the fork server, and scheduling of shards."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.own_process import set_up
from prep_assets.workers.shards import Effort, Plan, Shard, ShardResult, Work, carry_out
from prep_assets.workers.shards import greeting as hello

# How much memory this process and those that it starts can have: of the machine, or of the control groups that it runs in.

_MEMORY, _GROUPS, _ROOT = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_NAMES = {
    True: ("memory.max", "memory.current", "inactive_file"),
    False: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of version 2 of control groups, and of version 1: what a group may have, what it has, and what of that is files that can be read again."""
UNKNOWN = 1 << 62
"""Where the system does not say."""


def memory_there() -> int:
    """Return the bytes of memory that all processes can use together."""
    return min([_of_machine("MemTotal"), *(limit for limit, _ in _groups())])


def free_memory() -> int:
    """Return the bytes of memory that new processes can use now."""
    return min([_of_machine("MemAvailable"), *(max(0, limit - used) for limit, used in _groups())])


def require_memory(needed: int, what: str, remedy: str) -> None:
    """Raises:
    ConfigError: `what` takes more memory than there is.
    """
    if needed > (available := memory_there()):
        raise ConfigError(f"{what} may take {needed >> 20:,} MiB of memory, and there are {available >> 20:,} MiB here. {remedy}")


def _of_machine(field: str) -> int:
    try:
        lines = _MEMORY.read_text("ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
    except (OSError, ValueError, StopIteration):
        return UNKNOWN


def _groups() -> Iterator[tuple[int, int]]:
    """Limit and use of each control group that this process is in, and of those above it. A container sees its own as the root."""
    try:
        lines = [line.split(":", 2) for line in _GROUPS.read_text("utf-8").splitlines()]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _ROOT / "memory" if controllers else _ROOT
        limit_in, used_in, files_in = _NAMES[not controllers]
        for folder in (root / path.lstrip("/"), *(root / path.lstrip("/")).parents):
            if folder == root or root in folder.parents:
                with suppress(OSError, ValueError):  # the root of version 2 has none of these; "max" is no limit
                    limit, used = (int((folder / name).read_text("ascii")) for name in (limit_in, used_in))
                    stat = (folder / "memory.stat").read_text("ascii").splitlines()
                    yield limit, used - next((int(line.split()[1]) for line in stat if line.startswith(files_in)), 0)


# How many workers `workers: auto` means on this machine.

Workers = int | Literal["auto"]
MEMORY = 600 << 20
"""Bytes that a worker may take; what builds take is in docs/reliability.md."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def worker_count(workers: Workers) -> int:
    """`workers`, or as many as this process may use processors, and as there is memory for now."""
    return min(_processors(), max(1, free_memory() // MEMORY)) if workers == "auto" else workers


def _processors() -> int:
    """Processors that this process may run on, or fewer where its container has a quota of their time."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text("ascii").split()
        return available if quota == "max" else max(1, min(available, int(quota) // int(period)))
    except (OSError, ValueError):
        return available


# Where workers come from: a process that is started afresh, imports and opens what all of them need, and is then forked for each.
#
# It is started and not forked itself, because the process that builds has threads, and locks would be copied in whatever state they are. This one has none
# that can hold a lock (`prep_assets.workers.pool`). Where it has others, say of a tokenizer of the user's own, it becomes a worker instead, and the next
# worker has a process of its own.

_THREADS = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
ONE_THREAD = {**dict.fromkeys(_THREADS, "1"), "TOKENIZERS_PARALLELISM": "false"}
"""The workers are the threads: a library that starts one for each core in each of them would only fight itself."""


def python_path() -> str:
    """The import path of this process, for one that it starts."""
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)


def how_ended(code: int) -> str:
    """How a process with this exit code ended."""
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL), as the system does when memory runs out"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def started(module: str, *descriptors: int, **environment: str) -> subprocess.Popen[bytes]:
    """A process that runs a module of this package, with these file descriptors as its arguments."""
    # it imports what this process does, in its order: without -P a folder prep_assets where it was started would come first
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=2,  # results of commands are on stdout
        env={**os.environ, **environment, "PYTHONPATH": python_path()},
        process_group=0,  # Ctrl-C is for the process that started them
    )


class ForkServer:
    """The process that workers are forked from. It ends with the process that started it.

    Attributes:
        process: its handle.
    """

    def __init__(self) -> None:
        alive_reader, self._alive = os.pipe()
        self._control, server_end = Pipe()
        self.process = started("prep_assets.workers.pool", server_end.fileno(), alive_reader, **ONE_THREAD)
        server_end.close()
        os.close(alive_reader)

    def get_ready(self, work: bytes) -> None:
        """Have it import and load what some work needs, in the background."""
        with suppress(OSError):  # it is gone, which shows when a worker is asked for
            self._control.send(("ready", work))

    def worker(self) -> tuple[int, Connection]:
        """A new worker: its process, and what it listens to.

        Raises:
            EOFError, OSError: this process was ended.
        """
        parent_end, worker_end = Pipe()
        with worker_end:
            self._control.send(("fork", None))
            send_handle(self._control, worker_end.fileno(), self.process.pid)
            return int(self._control.recv()), parent_end

    def ended(self, worker: int) -> int:
        """The exit code of a worker that is gone or about to be; that of SIGKILL where nobody can tell any more."""
        if worker == self.process.pid:
            self.end()
            return self.process.returncode
        try:
            self._control.send(("ended", worker))
            return int(self._control.recv())
        except (EOFError, OSError):
            return -signal.SIGKILL

    def end(self) -> None:
        """End it; its workers end as well."""
        if not self._control.closed:
            self.process.kill()
            self.process.wait()
            self._control.close()
            os.close(self._alive)


# A process that workers are forked from, and the worker: a process that carries out shards until its parent is gone. Started as ``python -m
# prep_assets.workers.pool``. What the work loads (tokenizer, template, schema) stays loaded from one shard to the next.

_TASKS = Path("/proc/self/task")


def main() -> None:
    """Get ready, fork workers and say how they ended, as the connection asks whose file descriptor is the first argument, until it is closed. Workers
    end when the pipe that is the second one is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides when it ends
    set_up()
    control, alive = Connection(int(sys.argv[1])), int(sys.argv[2])
    while True:
        try:
            kind, content = control.recv()
        except EOFError:
            return
        if kind == "ready":
            _get_ready(content)
        elif kind == "ended":
            control.send(os.waitstatus_to_exitcode(os.waitpid(content, 0)[1]))
        else:
            handle = recv_handle(control)
            can_fork = _can_fork()
            if worker := _forked() if can_fork else 0:
                os.close(handle)
                control.send(worker)
                continue
            if not can_fork:
                control.send(os.getpid())
            control.close()
            _serve(Connection(handle), alive)
            return


def _get_ready(work: bytes) -> None:
    """Import and open what some work needs. What fails here fails again in a worker, which tells of it."""
    with suppress(Exception):
        hello()
        ready = pickle.loads(work)[1]
        if ready is not None:
            ready()


def _can_fork() -> bool:
    """Whether there is no thread but this one, and the one of `prep_assets.limits`, which can be copied without."""
    harmless = sum(thread.name == "limits" for thread in threading.enumerate())
    try:
        return len(list(_TASKS.iterdir())) == 1 + harmless
    except OSError:  # a system that does not say
        return False


def _forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about the thread that can be copied without
        return os.fork()


def _serve(connection: Connection, alive: int) -> None:
    """Carry out shards from a connection until it is closed."""
    threading.Thread(target=_end_with_parent, args=(alive,), name="ends with its parent", daemon=True).start()
    work: Any = None
    while True:
        try:
            kind, content = connection.recv()
        except EOFError:
            return
        if kind == "work":
            work = content
            continue
        answer = answer_of(content[0], work, content[1])
        try:
            connection.send((content[0].number, answer))
        except OSError:
            return
        if answer[0] == "memory":  # whatever is still held is given back by ending
            return


def _end_with_parent(alive: int) -> None:
    """End this process at once when the other end of the pipe is closed, even in the middle of a shard."""
    while os.read(alive, 1):
        pass
    os._exit(1)


def answer_of(shard: Shard, work: bytes, plan: Plan) -> tuple[str, Any]:
    """Carry out a shard: ``done`` with its result, ``failed`` with an exception that can travel, or ``memory``.

    Args:
        work: pickled; what it loads stays loaded while it stays the same.
    """
    try:
        return "done", carry_out(shard, _loaded(work), plan)
    except MemoryError:
        return "memory", None
    except Exception as error:
        return "failed", portable(error)


_loaded = bounded_cache("work", 1)(pickle.loads)


def portable(error: Exception) -> Exception:
    """An exception that can travel: itself where it can be pickled, else one that says the same. Unexpected ones bring their traceback."""
    if not isinstance(error, PrepAssetsError):
        error.add_note("in a worker process:\n" + traceback.format_exc().rstrip())
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        return error if str(pickle.loads(pickle.dumps(error))) == str(error) else _as_sent(error)
    except Exception:  # whatever its own code makes of being pickled
        return _as_sent(error)


def _as_sent(error: Exception) -> Exception:
    notes = "\n".join(getattr(error, "__notes__", ()))
    return PrepAssetsError(f"{type(error).__name__}: {error}" + (f"\n{notes}" if notes else ""))


if __name__ == "__main__":
    main()


# The local pool: worker processes on this machine that take the shards of a plan one after the other.

TRIES = 2
"""How often a shard is begun before the loss of its worker stops the build."""
_AHEAD = 2
"""Shards that a worker holds: one under way and one to go on with while results are merged."""


class WorkerLost(PrepAssetsError):
    """A worker ended in the middle of a shard, and the one that took the shard over did as well."""


class _Worker(Struct):
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

    def runner(self, workers: Workers, *, busy: int = 1) -> Pool | None:
        """This pool, to carry out plans with so many workers; `None` if this process does it alone.

        Args:
            busy: how many processors this process keeps busy without workers; ``auto`` starts none for so few.
        """
        self.size = worker_count(workers)
        return self if self.size > (busy if workers == "auto" else 1) else None

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
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

    def prepare(self, ready: Callable[[], object]) -> None:
        """Start the process that workers are forked from, and have it open what plans need, while this one does something else."""
        if self._server is None:
            self._server = ForkServer()
            self._server.get_ready(pickle.dumps((None, ready)))

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        """The results of all shards, in the order of the plan, as they come. Workers are ended when the iterator is closed before its end.

        Raises:
            PrepAssetsError: there is no memory for so many workers; whatever the work of the first shard that failed raised; or a worker was lost
                twice over one shard.
        """
        count = min(self.size, len(plan.shards))
        most_workers = max(1, memory_there() // MEMORY)
        remedy = f"Set `workers` in the configuration to {most_workers:,} or fewer, or to auto; or give --workers {most_workers}"
        require_memory(count * MEMORY, f"{count:,} workers, {MEMORY >> 20} MiB each,", remedy)
        pickled_work, plan_header, ready = pickle.dumps(work), plan.about, pickle.dumps(plan.ready)
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
                    self._hand_out(waiting, pickled_work, plan_header)
                    for worker in self._wait_for_workers():
                        self._take_answer(worker, plan, waiting, tries, results)
                result = results.pop(shard.number)
                if isinstance(result, Exception):
                    raise result
                self._hand_out(waiting, pickled_work, plan_header)
                yield result
            complete = True
        finally:
            if not complete:
                self.close()

    def _hand_out(self, waiting: deque[Shard], work: bytes, plan_header: Plan) -> None:
        """Hand out shards, first to workers that have none; a second one only while there is enough for all."""
        while len(self._workers) < min(self.size, len(waiting)):
            self._workers.append(self._start_worker())
        for depth in range(1, _AHEAD + 1):
            for worker in self._workers[: self.size]:
                if waiting and len(worker.shards) < depth and (depth == 1 or len(waiting) >= len(self._workers)):
                    if worker.work != work:
                        worker.tell(("work", work))
                        worker.work = work
                    worker.shards.append(waiting.popleft())
                    worker.tell(("shard", (worker.shards[-1], plan_header)))

    def _wait_for_workers(self) -> list[_Worker]:
        """Wait for busy workers; return those that have answered or died."""
        by_connection = {worker.connection: worker for worker in self._workers if worker.shards}
        return [by_connection[ready] for ready in wait(list(by_connection)) if isinstance(ready, Connection)]

    def _take_answer(
        self,
        worker: _Worker,
        plan: Plan,
        waiting: deque[Shard],
        tries: Counter[int],
        results: dict[int, ShardResult | Exception],
    ) -> None:
        try:
            number, (kind, content) = worker.connection.recv()
        except (EOFError, OSError):
            number, kind, content = None, "lost", None
        if kind in ("done", "failed"):
            shard = worker.shards.popleft()
            if number != shard.number:  # else the rows of one shard would stand for those of another, for builds and checks alike
                raise WorkerLost(
                    f"{plan.label(shard)}: its worker carried out shard {number} in its place, which is a fault of prep-assets. Report it"
                )
            results[shard.number] = content
            if kind == "failed":  # what comes later in the plan is not wanted any more
                earlier = [pending for pending in waiting if pending.number < shard.number]
                waiting.clear()
                waiting.extend(earlier)
            return
        why = self._retire(worker, memory=kind == "memory")
        retried = list(worker.shards)
        tries[retried[0].number] += 1
        if tries[retried[0].number] == TRIES:
            results[retried[0].number] = WorkerLost(self._lost_message(retried[0], plan, why))
            del retried[0]
        waiting.extendleft(reversed(retried))

    def _retire(self, worker: _Worker, *, memory: bool) -> str:
        """Remove a worker that has died, and return how it ended."""
        self.effort.lost += 1
        self._workers.remove(worker)
        code = worker.server.ended(worker.process)
        worker.connection.close()
        return "ran out of memory" if memory else how_ended(code)

    def _lost_message(self, shard: Shard, plan: Plan, why: str) -> str:
        return (
            f"{plan.label(shard)}: its worker {why}, and so did the one before. There are {self.size} workers; set fewer "
            "(`workers` in the configuration, or --workers), so that each has more memory"
        )

    def _start_worker(self) -> _Worker:
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
