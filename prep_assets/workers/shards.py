"""Shards: pieces of one piece of work that any process may carry out, in any order and more than once, with the same bytes.

Only the name of a folder, a hash and counts travel between processes; the process that merges reads the folders in the order of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from prep_assets.workers.hello import Hello, hello

Counts = Mapping[str, Any]
Work = Callable[[Any, Path], Counts]
"""Is given the task of a shard and an empty folder for its files. It travels to other processes, so that it is a function of a module, or a
`functools.partial` of one."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One piece.

    Attributes:
        number: its place in the plan.
        what: how messages call it.
        size: bytes of source that it takes.
        task: the argument of the work; it travels to other processes.
        name: of the folder of its results; it travels as well, because a task that has travelled can look another one.
    """

    number: int
    what: str
    size: int
    task: Any
    name: str = ""


class Depot(Protocol):
    """Where finished shards lie until the process that joins them fetches them over the network: folders by name, each there whole or not at all."""

    def names(self, below: str = "") -> Iterator[str]:
        """All names, or those that begin with ``<below>/``."""
        ...

    def put(self, name: str, folder: Path) -> None:
        """Send a folder; the same again where it is there."""
        ...

    def fetch(self, name: str, folder: Path) -> None:
        """Make a folder what was sent under a name."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do. It depends on the input alone, and never on who carries it out.

    Attributes:
        shards: in order.
        staging: a folder for their files, which all processes reach under this path; `None`: nothing but counts is wanted.
        depot: where files are sent to by processes that do not reach that folder; `None`: all do.
        hello: what a worker must answer.
        whole: how many shards there were before those that are finished were left out.
        ready: opens what every shard needs; it may run once, in a process that workers are forked from. It travels as the work does.
    """

    shards: Sequence[Shard]
    staging: Path | None
    hello: Hello = field(default_factory=hello)
    whole: int = 0
    depot: Depot | None = None
    ready: Callable[[], object] | None = None

    @property
    def about(self) -> Plan:
        """What goes with each shard."""
        return replace(self, shards=(), ready=None)

    @property
    def size(self) -> int:
        """Bytes of source of all shards."""
        return sum(shard.size for shard in self.shards)

    def without(self, numbers: Mapping[int, Any]) -> Plan:
        """The plan of what is left."""
        left = [shard for shard in self.shards if shard.number not in numbers]
        return replace(self, shards=left, whole=self.whole or len(self.shards))

    def label(self, shard: Shard) -> str:
        """How messages call a shard."""
        return f"shard {shard.number + 1:,} of {self.whole or len(self.shards):,} ({shard.what})"


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that is done.

    Attributes:
        shard: which.
        folder: its files.
        hash: xxh3-128 of its receipt, in hex, which is the folder's name; empty where nothing but counts is wanted.
        counts: what the work counted.
        files: what each was meant to hold, by relative path; the reader compares.
    """

    shard: Shard
    folder: Path
    hash: str
    counts: Counts
    files: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Effort:
    """What it took so far.

    Attributes:
        shards: that stores were joined of.
        lost: workers that ended in the middle of a shard.
        copies: shards that were begun a second time, because the first time took so long.
    """

    shards: int = 0
    lost: int = 0
    copies: int = 0

    def since(self, before: Effort) -> Effort:
        """What was added to it."""
        return Effort(self.shards - before.shards, self.lost - before.lost, self.copies - before.copies)


class Runner(Protocol):
    """Who carries out plans, one at a time."""

    effort: Effort
    elsewhere: bool
    """Whether it works on other machines as well."""

    @property
    def size(self) -> int:
        """Most shards that are worked on at a time."""
        ...

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        """The results of all shards, in the order of the plan, as they come."""
        ...
