"""Limits of time and memory for foreign code: chat templates, and schemas of the user's own.

Such code runs in the thread that called it. Another thread looks at the clock and at the memory of the process, and ends what goes on for too
long or takes too much with an exception. How fast a machine is decides about that, so the build stops; no record is refused for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from msgspec import Struct, field

from prep_assets.errors import PrepAssetsError

SECONDS = 30.0
"""How long one call may take."""
BYTES = 4 << 30
"""By how much the process may grow during one call."""
_LOOK, _GRACE = 0.2, 2.0
_WAKE = signal.SIGURG
"""Ends a wait in C, such as `time.sleep`, which no exception from another thread reaches. Only the main thread is woken by signals."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class OverLimit(BaseException):
    """Raised in the thread of a call that goes on for too long. No `except Exception` of that code catches it."""


class _Call(Struct):
    thread: int
    error_for: Callable[[str, TracebackType | None], PrepAssetsError]
    began: float = field(default_factory=time.monotonic)
    memory: int | None = None
    ended_for: str = ""
    is_said: bool = False


_CALLS: dict[int, _Call] = {}
_LOCK = threading.Lock()
_WATCH: list[tuple[int, threading.Thread]] = []
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@contextmanager
def limited(error_for: Callable[[str, TracebackType | None], PrepAssetsError]) -> Iterator[None]:
    """Run foreign code.

    Args:
        said: the error for what went wrong (e.g. ``took more than 60 seconds``), with where it was.
    """
    thread = threading.get_ident()
    if thread in _CALLS:  # inside another one, which is watched
        yield
        return
    call = _CALLS[thread] = _Call(thread, error_for)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(_WAKE) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(_WAKE, lambda *_: None)
    if not _WATCH or _WATCH[0][0] != os.getpid():
        _start()
    try:
        yield
    except OverLimit as over:
        raise error_for(call.ended_for, _of_foreign_code(over.__traceback__)) from None
    except MemoryError as error:
        raise error_for("needs more memory than there is", error.__traceback__) from None
    finally:
        with _LOCK:
            del _CALLS[thread]
            if call.ended_for:  # in case it ended by itself at that very moment
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)


def _of_foreign_code(trace: TracebackType | None) -> TracebackType | None:
    """A trace without the handler that woke the thread."""
    last = trace
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_code.co_filename == __file__:
            last.tb_next = None
            break
        last = last.tb_next
    return trace


def _start() -> None:
    with _LOCK:
        if _WATCH and _WATCH[0][0] == os.getpid():
            return
        thread = threading.Thread(target=_watch, name="limits", daemon=True)
        _WATCH[:] = [(os.getpid(), thread)]
        thread.start()


def _watch() -> None:
    while True:
        time.sleep(_LOOK)
        if not _CALLS:
            continue
        now, memory = time.monotonic(), _memory()
        with _LOCK:
            for call in [*_CALLS.values()]:
                call.memory = memory if call.memory is None else call.memory
                if now - call.began > SECONDS:
                    call.ended_for = f"takes more than {SECONDS:g} seconds"
                elif memory - call.memory > BYTES:
                    call.ended_for = f"takes more than {BYTES >> 20:,} MiB of memory"
                if call.ended_for:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(call.thread), ctypes.py_object(OverLimit))
                    if call.thread == threading.main_thread().ident and callable(signal.getsignal(_WAKE)):
                        signal.pthread_kill(call.thread, _WAKE)
                    elif not call.is_said and now - call.began > SECONDS + _GRACE:
                        call.is_said = True
                        said = f"{call.ended_for} and waits outside of Python, where it is stopped only once it comes back"
                        print(call.error_for(said, None), file=sys.stderr, flush=True)


def _memory() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE
    except OSError:
        return 0
