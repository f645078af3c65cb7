"""A process that workers are forked from, and the worker: a process that carries out shards until its parent is gone. Started as
``python -m prep_assets.workers.process``. What the work loads (tokenizer, template, schema) stays loaded from one shard to the next.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import PrepAssetsError
from prep_assets.workers.garbage import rare_collections
from prep_assets.workers.hello import hello
from prep_assets.workers.shards import Plan, Shard
from prep_assets.workers.staging import carry_out

_TASKS = Path("/proc/self/task")


def main() -> None:
    """Get ready, fork workers and say how they ended, as the connection asks whose file descriptor is the first argument, until it is closed. Workers
    end when the pipe that is the second one is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides when it ends
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
    """Take shards from a connection."""
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
            connection.send(answer)
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
        with rare_collections():
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
