"""Limits of time and memory for foreign code: chat templates, and schemas of the user's own. How fast a machine is decides about that, so the build stops;
no record is refused for it.

| who calls | where it runs | what ends it |
|---|---|---|
| the main thread of a command or worker | there | a signal, also of a timer |
| the main thread of any other process, say Dagster's or a notebook's | in a thread beside it | nothing: the caller gets the error in time |
| another thread | there | a process of ours ends; elsewhere the error is on stderr, and raised when the call comes back |
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
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
_WAKE = signal.SIGURG
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
_beside: _Beside | None = None


def interrupt_main_thread() -> None:
    """Let a signal end calls of the main thread. Only for the entries of processes that are ours: a handler is there for the whole process."""
    global _is_ours
    signal.signal(_WAKE, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    _is_ours = True


def limited(
    error_for: Callable[[str, TracebackType | None], PrepAssetsError],
    function: Callable[..., T],
    *args: Any,
    here: bool = False,
    **named: Any,
) -> T:
    """Call foreign code.

    Args:
        error_for: the error for what went wrong (e.g. ``takes more than 30 seconds``), with where it was.
        here: whether it must run in the thread that calls: another one cannot import what this one is about to import.
    """
    thread = threading.get_ident()
    if thread in _CALLS or (_beside is not None and thread == _beside.ident):  # inside another one, which is watched
        return function(*args, **named)
    if not here and not _is_ours and thread == threading.main_thread().ident:
        return _called_beside(_Call(error_for), partial(function, *args, **named))
    call = _CALLS[thread] = _Call(error_for)
    _watch()
    timed = _is_ours and thread == threading.main_thread().ident
    if timed:  # the watcher does not run while a regular expression is matched, which keeps the interpreter's lock
        signal.setitimer(signal.ITIMER_REAL, SECONDS + _LOOK, _LOOK)
    try:
        try:
            result = function(*args, **named)
        finally:
            del _CALLS[thread]
            if timed:
                signal.setitimer(signal.ITIMER_REAL, 0)
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
            can_interrupt = _is_ours and thread == threading.main_thread().ident
            if can_interrupt:
                signal.pthread_kill(thread, _WAKE)
            if not call.is_said and time.monotonic() - call.noticed > _GRACE:
                call.is_said = True
                print(call.error("" if _is_ours else ", and is stopped only when it comes back"), file=sys.stderr, flush=True)
                if _is_ours:
                    os._exit(1)


class _Beside(threading.Thread):
    """The thread that calls foreign code for a main thread which waits for it."""

    def __init__(self) -> None:
        super().__init__(name="limits", daemon=True)
        self.calls, self.answers = SimpleQueue[Callable[[], Any]](), SimpleQueue[tuple[Any, BaseException | None]]()

    def run(self) -> None:
        while True:
            call = self.calls.get()
            try:
                answer: tuple[Any, BaseException | None] = call(), None
            except BaseException as error:
                answer = None, error
            self.answers.put(answer)
            del call, answer


def _called_beside(call: _Call, function: Callable[[], T]) -> T:
    global _beside
    if _beside is None or not _beside.is_alive():
        _beside = _Beside()
        _beside.start()
    thread, answer = _beside, None
    thread.calls.put(function)
    try:
        while answer is None:
            try:
                answer = thread.answers.get(timeout=_LOOK)
            except Empty:
                assert thread.ident is not None
                if call.exceeds(thread.ident):
                    raise call.error(", and goes on until this process ends") from None
    finally:
        if answer is None:
            _beside = None  # it may never come back
    result, error = answer
    if isinstance(error, MemoryError):
        raise call.error_for("needs more memory than there is", error.__traceback__) from None
    if error is not None:
        try:
            raise error
        finally:
            del error, answer
    return result  # type: ignore[no-any-return]


def _trace_of(frame: FrameType | None) -> TracebackType | None:
    """Where a frame is, with those that called it."""
    trace = None
    while frame is not None:
        trace, frame = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno or 0), frame.f_back
    return trace


def _memory() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE
    except OSError:
        return 0
