"""Limits of time and memory for foreign code: chat templates, and schemas of the user's own. How fast a machine is decides about that, so the build stops;
no record is refused for it.

| who calls | what ends it |
|---|---|
| the main thread | a signal, also of a timer; in Dagster or a notebook its handler is there during the call alone, and if nobody uses this signal |
| another thread | a process of ours ends; elsewhere the error is on stderr, and raised when the call comes back |
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from msgspec import Struct, field

from prep_assets.errors import PrepAssetsError

T = TypeVar("T")
SECONDS = 30.0
"""How long one call may take."""
BYTES = 4 << 30
"""By how much the process may grow during one call."""
_LOOK, _GRACE = 0.2, 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


class OverLimit(BaseException):
    """Raised in a call that goes on for too long. No `except Exception` of that code catches it."""


class _Call(Struct):
    error_for: Callable[[str, TracebackType | None], PrepAssetsError]
    began: float = field(default_factory=time.monotonic)
    memory: int | None = None
    excess: str = ""
    where: TracebackType | None = None
    noticed: float = 0.0
    is_said: bool = False
    interruptible: bool = False

    def exceeds(self, thread: int, frame: FrameType | None = None) -> bool:
        """Whether it is over a limit; where its thread is then, in `frame` if that is known, is kept."""
        now, memory = time.monotonic(), _memory()
        self.memory = memory if self.memory is None else self.memory
        if now - self.began > SECONDS:
            excess = f"takes more than {SECONDS:g} seconds"
        elif memory - self.memory > BYTES:
            excess = f"takes more than {BYTES >> 20:,} MiB of memory"
        else:
            return False
        if not self.excess:
            self.where, self.noticed, self.excess = _trace_of(frame or sys._current_frames().get(thread)), now, excess
        return True

    def error(self, more: str = "") -> PrepAssetsError:
        return self.error_for(self.excess + more, self.where)


_CALLS: dict[int, _Call] = {}
"""Thread → the call under way in it."""
_is_ours = False
_watcher: threading.Thread | None = None


def interrupt_main_thread() -> None:
    """Let a signal end calls of the main thread. Only for the entries of processes that are ours: a handler is there for the whole process."""
    global _is_ours
    signal.signal(signal.SIGALRM, _interrupt)
    _is_ours = True


def limited(error_for: Callable[[str, TracebackType | None], PrepAssetsError], function: Callable[..., T], *args: Any, **named: Any) -> T:
    """Call foreign code.

    Args:
        error_for: the error for what went wrong (e.g. ``takes more than 30 seconds``), with where it was.
    """
    thread = threading.get_ident()
    if thread in _CALLS:  # inside another one, which is watched
        return function(*args, **named)
    call = _CALLS[thread] = _Call(error_for, interruptible=thread == threading.main_thread().ident and (_is_ours or _alarm_is_free()))
    _watch()
    if call.interruptible:  # the watcher does not run while a regular expression is matched, which keeps the interpreter's lock
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
    try:
        try:
            result = function(*args, **named)
        finally:
            del _CALLS[thread]
            if call.interruptible:
                signal.setitimer(signal.ITIMER_REAL, 0)
                if not _is_ours:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    except BaseException as error:
        _CALLS.pop(thread, None)  # if the signal came in between
        if call.excess:  # whatever the code made of it
            raise call.error() from None
        if isinstance(error, MemoryError):
            raise error_for("needs more memory than there is", error.__traceback__) from None
        raise
    if call.excess:
        raise call.error()
    return result


def _alarm_is_free() -> bool:
    return signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and not any(signal.getitimer(signal.ITIMER_REAL))


def _interrupt(_: int, frame: FrameType | None) -> None:
    call = _CALLS.get(thread := threading.get_ident())
    if call is None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    elif call.excess or call.exceeds(thread, frame):
        raise OverLimit


def _watch() -> None:
    """Have a thread look at all calls. A process that was forked has none."""
    global _watcher
    if _watcher is None or not _watcher.is_alive():
        _watcher = threading.Thread(target=_look, name="limits", daemon=True)
        _watcher.start()


def _look() -> None:
    while True:
        time.sleep(_LOOK)
        for thread, call in [*_CALLS.items()]:
            if not call.exceeds(thread):
                continue
            if not call.is_said and time.monotonic() - call.noticed > _GRACE:
                call.is_said = True
                print(call.error("" if _is_ours else ", and is stopped only when it comes back"), file=sys.stderr, flush=True)
                if _is_ours:
                    os._exit(1)


def _trace_of(frame: FrameType | None) -> TracebackType | None:
    """Where a frame is, with those that called it."""
    trace = None
    while frame is not None:
        is_handler = frame.f_code is _interrupt.__code__
        trace, frame = None if is_handler else TracebackType(trace, frame, frame.f_lasti, frame.f_lineno or 0), frame.f_back
    return trace


def _memory() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE
    except OSError:
        return 0
