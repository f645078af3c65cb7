"""A process in which users' functions are called, so that one that ends its process (`os._exit`, a signal, memory that runs out) ends no build."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import RLock, Timer
from time import monotonic
from typing import Any, TypeVar

from prep_assets import limits
from prep_assets.errors import PrepAssetsError
from prep_assets.own_code import own_function
from prep_assets.workers.pool import how_ended, portable, started

T = TypeVar("T")
own = lru_cache(64)(own_function)
"""A user's function, once for all calls in that process."""


LATE = 5.0
"""Seconds after twice the limit of a call, which may have to import a module first."""


class Ended(PrepAssetsError):
    """The process ended in the middle of a call."""


_LOCK = RLock()
_PROCESSES: dict[int, tuple[subprocess.Popen[bytes], Connection]] = {}
"""Id of a process → the one that it calls functions in, and what that listens to. A fork has its own."""


def _process() -> tuple[subprocess.Popen[bytes], Connection]:
    if (owner := os.getpid()) not in _PROCESSES:
        connection, other = Pipe()
        with other:
            _PROCESSES[owner] = started("prep_assets.extensions.quality.apart", other.fileno()), connection
    return _PROCESSES[owner]


def call_apart(whose: str, on: str, function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Call a function of a module, whose arguments and result can be pickled, in a process that stays for the next call.

    Args:
        whose: whose process it is, for errors.
        on: the record, or block of them, that it is called for; empty while it is loaded.
        args: the address of the user's function first.

    Raises:
        Ended: the process ended meanwhile.
        PrepAssetsError: it answers no signal, as in a call of a C library, and is killed.
        Exception: what the function raises.
    """
    call = pickle.dumps((function, args, options, (limits.SECONDS, limits.BYTES)))
    with _LOCK:
        process, connection = _process()
        late, began = Timer(2 * limits.SECONDS + LATE, os.killpg, (process.pid, signal.SIGKILL)), monotonic()
        late.start()
        try:
            connection.send_bytes(call)
            is_raised, result = pickle.loads(connection.recv_bytes())
        except Exception:  # whatever was written into its file descriptors
            if not (is_late := monotonic() - began > limits.SECONDS):  # it may also end itself, see `limits`
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LATE)
            end_process()
            if is_late:
                raise PrepAssetsError(
                    f"{args[0]}: one call takes more than {limits.SECONDS:g} seconds, and cannot be interrupted. Correct it"
                ) from None
            where, remedy = (f" on {on}", "; or leave out by `where` what it cannot judge") if on else (" while it was loaded", "")
            raise Ended(f"{whose} {how_ended(process.returncode)}{where}. Correct it, so that it ends no process{remedy}") from None
        except BaseException:  # Ctrl-C: its answer is none to the next call
            end_process()
            raise
        finally:
            late.cancel()
    if is_raised:
        raise result
    return result  # type: ignore[no-any-return]


@atexit.register
def end_process() -> None:
    """End the process, with what it forked; the next call begins another."""
    with _LOCK:
        if called := _PROCESSES.pop(os.getpid(), None):
            process, connection = called
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            connection.close()
            process.wait()


def main() -> None:
    """Call what the connection asks for whose file descriptor is the argument, until it is closed."""
    limits.interrupt_main_thread()
    connection, process = Connection(int(sys.argv[1])), os.getpid()
    with suppress(EOFError):
        while True:
            function, args, options, (limits.SECONDS, limits.BYTES) = pickle.loads(connection.recv_bytes())
            try:
                answer = pickle.dumps((False, function(*args, **options)))
            except Exception as error:
                answer = pickle.dumps((True, portable(error)))
            if os.getpid() != process:  # a fork that came back
                os._exit(0)
            connection.send_bytes(answer)


if __name__ == "__main__":
    main()
