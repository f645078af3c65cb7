"""Reading ahead: the next items are made in a thread of their own while the last ones are worked on.

It pays where one side of it releases Python's global lock, as tokenizers, numpy and files do. Order stays, so results do not depend on it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from queue import Full, Queue
from typing import TypeVar

T = TypeVar("T")

_LOOK_UP = 0.05
"""Seconds after which a thread whose queue is full looks whether anybody still wants its items."""
_PATIENCE = 1.0
"""Seconds that an end before the last item waits for the thread, which may be deep inside a tokenizer; it then ends by itself, unheard."""


def ahead(source: Iterable[T], *, depth: int = 1) -> Generator[T, None, None]:
    """The items of `source`, in order, made in another thread at most `depth` + 1 items ahead.

    What `source` raises is raised here, after the items before it. Close the generator (``contextlib.closing``) to end the thread early: it
    stops at its next item, and `source` is closed.
    """
    ready: Queue[tuple[T] | BaseException | None] = Queue(depth)
    unwanted = threading.Event()
    thread = threading.Thread(target=_make, args=(source, ready, unwanted), name="reads ahead", daemon=True)
    thread.start()
    try:
        while (made := ready.get()) is not None:
            if isinstance(made, BaseException):
                raise made
            yield made[0]
    finally:
        unwanted.set()
        thread.join(_PATIENCE)


def _make(source: Iterable[T], ready: Queue[tuple[T] | BaseException | None], unwanted: threading.Event) -> None:
    end: BaseException | None = None
    try:
        for item in source:
            if not _put(ready, (item,), unwanted):
                break
    except BaseException as error:  # it is raised again where the items are used
        end = error
    try:
        if isinstance(source, Generator):
            source.close()
    except BaseException as error:
        end = end or error
    _put(ready, end, unwanted)


def _put(ready: Queue[tuple[T] | BaseException | None], item: tuple[T] | BaseException | None, unwanted: threading.Event) -> bool:
    """Queue an item; false where it is no longer wanted."""
    while not unwanted.is_set():
        try:
            ready.put(item, timeout=_LOOK_UP)
            return True
        except Full:
            continue
    return False
