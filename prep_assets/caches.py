"""What a process remembers: caches with a name and a bound, of which the entry goes first that was asked for longest ago.

    @bounded_cache("engines", 2, key=lambda vocabulary, engine: (vocabulary.hash, engine), large=True)
    def engines_of(vocabulary: Vocabulary, engine: str) -> Engines: ...

So a process that works with one tokenizer after the other does not grow. A function without arguments has one result, and needs no bound: it takes
`functools.cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from cachetools import LRUCache, cached
from cachetools.keys import hashkey

P = ParamSpec("P")
T = TypeVar("T")
CACHES: dict[str, LRUCache[Any, Any]] = {}
"""Every cache by its name; `maxsize` is its bound, in entries."""


def bounded_cache(
    name: str, most: int, key: Callable[..., Hashable] = hashkey, *, large: bool = False
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function that is called once for each key, as long as its result is among the `most` that were asked for last.

    Threads that ask for the same at once may each make it; all get what the first of them made. Errors are not remembered.

    Args:
        large: results take tens of megabytes: the memory of the one that has to go is free before the next is made, unless they refer
            to themselves.
    """
    cache, lock = LRUCache[Any, Any](most), Lock()
    CACHES[name] = cache

    def around(make: Callable[P, T]) -> Callable[P, T]:
        @wraps(make)
        def with_room(*args: P.args, **named: P.kwargs) -> T:
            with lock:
                if len(cache) >= most:
                    cache.popitem()
            return make(*args, **named)

        return cached(cache, key=key, lock=lock)(with_room if large else make)

    return around
