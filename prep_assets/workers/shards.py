"""Shards: pieces of one piece of work that any process may carry out, in any order and more than once, with the same bytes.

A shard writes its data into a folder of its own, which is then named after what it holds. Only the name, a hash and counts travel between
processes; whoever merges reads the folders in the order of the plan.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from prep_assets.disk.ledger import recording
from prep_assets.disk.readback import meant_in

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
        task: what the work is told; it travels to other processes.
    """

    number: int
    what: str
    size: int
    task: Any


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do. It depends on the input alone, and never on who carries it out.

    Attributes:
        shards: in order.
        staging: a folder for their files; whoever made it removes it.
    """

    shards: Sequence[Shard]
    staging: Path

    @property
    def size(self) -> int:
        """Bytes of source of all shards."""
        return sum(shard.size for shard in self.shards)


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that is done.

    Attributes:
        shard: which.
        folder: its files.
        hash: xxh3-128 of their names, sizes and hashes, in hex. It is part of the folder's name.
        counts: what the work counted.
        files: what each was meant to hold, by relative path; whoever reads them compares.
    """

    shard: Shard
    folder: Path
    hash: str
    counts: Counts
    files: Mapping[str, Mapping[str, Any]]


def carry_out(shard: Shard, work: Work, staging: Path) -> ShardResult:
    """Do one shard. Where the same files are there already, done by somebody else, those stay."""
    under_way = staging / f".shard-{shard.number:05d}-{os.getpid()}"
    shutil.rmtree(under_way, ignore_errors=True)
    under_way.mkdir(parents=True)
    with recording(under_way) as ledger:
        counts = work(shard.task, under_way)
    files = meant_in(under_way, ledger)
    found = xxhash.xxh3_128_hexdigest(json.dumps(files).encode())
    folder = staging / f"shard-{shard.number:05d}.{found}"
    if folder.exists():
        shutil.rmtree(under_way)
    else:
        under_way.rename(folder)
    return ShardResult(shard, folder, found, counts, files)
