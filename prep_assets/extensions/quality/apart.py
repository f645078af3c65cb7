"""A process in which users' functions are called, so that one that ends its process (`os._exit`, a signal, memory that runs out) ends no build."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
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


class Ended(Exception):
    """The process ended in the middle of a call; its message says how."""


class _Process:
    """The process and what it listens to, of the process with this id."""

    def __init__(self) -> None:
        self.owner, (self.connection, other) = os.getpid(), Pipe()
        self.process = started("prep_assets.extensions.quality.apart", other.fileno())
        other.close()

    def end(self) -> int:
        """Its exit code."""
        if self.owner != os.getpid():  # a fork has its own
            return 0
        self.connection.close()
        return self.process.wait()


_LOCK = Lock()
_process: _Process | None = None


def call_apart(function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Call a function of a module, whose arguments and result can be pickled, in a process that stays for the next call.

    Args:
        args: the address of the user's function first.

    Raises:
        Ended: the process ended meanwhile.
        PrepAssetsError: it answers no signal, as in a call of a C library, and is killed.
        Exception: what the function raises.
    """
    global _process
    with _LOCK:
        if _process is None or _process.owner != os.getpid():
            _process = _Process()
        called = _process
        try:
            called.connection.send_bytes(pickle.dumps((function, args, options, (limits.SECONDS, limits.BYTES))))
            if not called.connection.poll(longest := 2 * limits.SECONDS + LATE):
                _process = None
                called.process.kill()
                called.end()
                raise PrepAssetsError(f"{args[0]}: one call takes more than {longest:g} seconds, and cannot be interrupted. Correct it")
            is_raised, result = pickle.loads(called.connection.recv_bytes())
        except (EOFError, OSError):
            code, _process = called.end(), None
            raise Ended(how_ended(code)) from None
    if is_raised:
        raise result
    return result  # type: ignore[no-any-return]


@atexit.register
def _end() -> None:
    if _process is not None and _process.owner == os.getpid():
        with suppress(OSError):
            _process.process.kill()
            _process.end()


def main() -> None:
    """Call what the connection asks for whose file descriptor is the argument, until it is closed."""
    limits.interrupt_main_thread()
    connection = Connection(int(sys.argv[1]))
    while True:
        try:
            function, args, options, (limits.SECONDS, limits.BYTES) = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = pickle.dumps((False, function(*args, **options)))
        except Exception as error:
            answer = pickle.dumps((True, portable(error)))
        connection.send_bytes(answer)


if __name__ == "__main__":
    main()
