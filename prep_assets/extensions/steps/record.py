"""The record of a run: which items of which store each training step saw, one file of JSON lines a rank, and nothing is ever rewritten.

    {"attempt": …, "after": 0, "rank": 0, "ranks": 2, "items": …, "stores": […], …}    a start, or a resume: what follows was trained after `after`
    {"step": 1, "rows": [[item, piece, loss, tokens], …], "loss": null}                one optimizer step

Each line ends with a ``sum`` of its text and of all lines before it, so that a line that was lost, doubled, moved or edited is found. A resume adds a line and
makes void what an earlier attempt trained after that step. The last line of a killed process may be torn; it counts as not written.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from xxhash import xxh3_64_hexdigest

from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.manifest import label_of

_SUM = ', "sum": "'
_TAIL = len(_SUM) + 16 + len('"}')
"""Bytes of a sum at the end of a line, before its line break."""
REMEDY = "Restore the file from a copy, or record into another folder"


class Seen(NamedTuple):
    """One row that a rank saw in a step, or one document of a packed row.

    Attributes:
        item: its number in the data set.
        piece: number of the document in the row; `None` where the loop gave the loss of whole rows.
        loss: mean over its trained tokens; `None` where the loop gave none, or nothing of it is trained.
        tokens: how many of its tokens are trained; `None` where the loop did not say.
    """

    rank: int
    item: int
    piece: int | None
    loss: float | None
    tokens: int | None


class Attempt(Struct, frozen=True):
    """What one rank recorded in its file from a start or resume on, whose line is `head`.

    `ends` says where the lines of its steps begin, that of ``head["after"] + 1`` first, and where the last one ends.
    """

    path: Path
    head: Mapping[str, Any]
    ends: list[int]

    @property
    def last(self) -> int:
        """The last step that it recorded."""
        return int(self.head["after"]) + len(self.ends) - 1

    def step(self, step: int) -> dict[str, Any]:
        """The line of one of its steps."""
        at = step - self.head["after"]
        with self.path.open("rb") as file:
            file.seek(self.ends[at - 1])
            line: dict[str, Any] = json.loads(file.read(self.ends[at] - self.ends[at - 1]))
        return line


def _sum(text: str) -> str:
    """16 characters."""
    return xxh3_64_hexdigest(text.encode())


def rank_file(run: Path, rank: int) -> Path:
    """The file of one rank."""
    return run / f"rank-{rank:05d}.jsonl"


def attempts_in(path: Path) -> list[Attempt]:
    """What a file holds, every line of it compared with its sum.

    Raises:
        StoreError: a line is not what was written, or not where.
    """
    found, before, end = list[Attempt](), "", 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break  # torn by a kill
            text = line[:-1].decode("utf-8", "replace")
            body, end = text[:-_TAIL] + "}", end + len(line)
            if text[-_TAIL:] != f'{_SUM}{(before := _sum(before + body))}"}}':
                raise StoreError(
                    f"{path}, line {number:,}: its sum is not that of its text and the lines before it: one was altered. {REMEDY}"
                )
            if (step := re.match(r'\{"step": (\d+),', body)) is None:
                found.append(Attempt(path, json.loads(body), [end]))
            elif not found or int(step[1]) != found[-1].last + 1:
                expected = f"step {found[-1].last + 1:,} comes next" if found else "no start of a run is before it"
                raise StoreError(f"{path}, line {number:,}: it is of step {int(step[1]):,}, and {expected}. {REMEDY}")
            else:
                found[-1].ends.append(end)
    return found


class Writer:
    """Appends an attempt with this head to the record of one rank.

    Raises:
        ConfigError: another process writes this file; or this attempt resumes a run that was trained on other stores.
        StoreError: the file was damaged.
    """

    def __init__(self, run: Path, head: Mapping[str, Any]) -> None:
        self.path, self.last = rank_file(run, head["rank"]), int(head["after"])
        run.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise ConfigError(f"{self.path}: another record writes into it. Close it, or give each run a folder of its own") from error
        before = attempts_in(self.path)
        if head["attempt"] in (attempt.head["attempt"] for attempt in before):
            raise ConfigError(f"{self.path} has an attempt {head['attempt']!r} already. Give each start and each resume a name of its own")
        resumed = [attempt for attempt in before if attempt.head["after"] < self.last]
        if resumed and (changed := _changed(resumed[-1].head, head)):
            raise ConfigError(f"{run}: step {self.last:,} was trained on {changed}. Resume with the same, or record into another folder")
        self._file.truncate(whole := before[-1].ends[-1] if before else 0)
        self._file.seek(max(whole - _TAIL - 1, 0))
        self._sum = self._file.read().decode()[len(_SUM) : -len('"}\n')]
        self._append(head)
        self.sync()

    def step(self, step: int, rows: Sequence[Sequence[Any]], loss: float | None) -> None:
        """Record one step: item, piece, loss and tokens of each row, as in `Seen`, and the loss of the step where rows have none.

        Raises:
            ConfigError: it is not the step after the last one.
        """
        if step != self.last + 1:
            raise ConfigError(f"{self.path}: step {step:,} comes after step {self.last:,}. Count each step once, from the checkpoint's on")
        entries = [[item, piece, plain(mean), tokens] for item, piece, mean, tokens in rows]
        self._append({"step": step, "rows": entries, "loss": plain(loss)})
        self.last = step

    def sync(self) -> None:
        """Wait until the disk has it: before a checkpoint counts as saved, so that a loss of power leaves no hole."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let another process go on."""
        self._file.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        body = json.dumps(line)
        self._sum = _sum(self._sum + body)
        self._file.write(f'{body[:-1]}{_SUM}{self._sum}"}}\n'.encode())
        self._file.flush()


def plain(loss: float | None) -> float | str | None:
    """A loss as JSON, which knows neither infinity nor NaN, with six digits."""
    return loss if loss is None else float(f"{loss:.6g}") if math.isfinite(loss) else str(loss)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What a resume has not in common with the attempt before, in words."""
    said = ({"stores": trained_on(head), **{name: f"{name} {head[name]}" for name in ("items", "window")}} for head in (before, now))
    return next((f"{old}, and now it is {new}" for old, new in zip(*map(dict.values, said), strict=True) if old != new), "")


def trained_on(head: Mapping[str, Any]) -> str:
    """The stores of an attempt, in words."""
    return ", ".join(map(_named, head["stores"]))


def _named(store: Mapping[str, Any]) -> str:
    stream = f" {store['stream']}" if store["stream"] not in ("", store["asset"]) else ""
    return f"{label_of(store['asset'], store['partition'])}{stream} (build {store['build_key'][:12]}…, manifest {store['manifest'][:12]}…)"


class Run:
    """The record of a run, of all its ranks.

    Raises:
        ConfigError: nothing was recorded there.
        StoreError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("rank-*.jsonl")) if folder.is_dir() else []
        if not files:
            raise ConfigError(f"{folder} holds no record of a run: no rank-00000.jsonl. Record one with RowRecord or record_rows")
        self.ranks = {path: attempts_in(path) for path in files}
        self.main = self.ranks.get(rank_file(folder, 0), [])
        if not self.main:
            raise StoreError(f"{rank_file(folder, 0)} is missing or empty, and other ranks recorded. {REMEDY}")
        for attempt in (attempt for attempts in self.ranks.values() for attempt in attempts):
            self._compare(attempt)

    def _compare(self, attempt: Attempt) -> None:
        """The first rank says which attempts and steps there are, so that no other may have more, but for the last line, which a kill may have torn.

        Raises:
            StoreError: it has; or the file is of another rank.
        """
        first, since = rank_file(self.folder, 0).name, int(attempt.head["after"]) + 1
        at = next((at for at, main in enumerate(self.main) if main.head["attempt"] == attempt.head["attempt"]), None)
        if attempt.path != rank_file(self.folder, rank := attempt.head["rank"]):
            problem = f"is the file of rank {rank}"
        elif at is None and attempt.last >= since:
            problem = f"has steps {since:,} to {attempt.last:,} of an attempt of which {first} has nothing"
        elif at is not None and min([attempt.last - 1, *(main.head["after"] for main in self.main[at + 1 :])]) > self.main[at].last:
            problem = f"has steps {since:,} to {attempt.last:,}, and {first} ends at step {self.main[at].last:,}"
        else:
            return
        raise StoreError(f"{attempt.path} {problem}: a file was cut, or is of another run. {REMEDY}")

    @cached_property
    def steps(self) -> list[range]:
        """Which steps of each attempt of rank 0 count, since no later attempt trained them again."""
        found, before = list[range](), math.inf
        for attempt in reversed(self.main):
            first, last = attempt.head["after"] + 1, attempt.last
            found.append(range(first, int(min(last, before)) + 1))
            before = min(before, first - 1)
        return found[::-1]

    @property
    def missing(self) -> list[range]:
        """Steps before others that count of which nothing was recorded, as their run began, or was resumed, after them."""
        counted = [steps for steps in self.steps if steps]
        lasts = [0, *(steps[-1] for steps in counted)]
        return [range(last + 1, steps[0]) for last, steps in zip(lasts, counted, strict=False) if last + 1 < steps[0]]

    def attempt(self, step: int) -> list[Attempt]:
        """What each rank recorded of the attempt that a step belongs to, rank 0 first.

        Raises:
            ConfigError: no such step.
            StoreError: a rank's file, attempt or step is missing, or is of another run.
        """
        main = next((main for main, steps in zip(self.main, self.steps, strict=True) if step in steps), None)
        if main is None:
            counted = ", ".join(f"{steps[0]:,} to {steps[-1]:,}" for steps in self.steps if steps) or "none"
            void = any(attempt.head["after"] < step <= attempt.last for attempt in self.main)
            why = ": it was trained once, and a later resume from an earlier step threw it away" if void else ""
            raise ConfigError(f"{self.folder} has no step {step:,}{why}. Steps that it has: {counted}")
        return [main, *(self._beside(main, rank, step) for rank in range(1, main.head["ranks"]))]

    def _beside(self, main: Attempt, rank: int, step: int) -> Attempt:
        """What another rank recorded of an attempt of rank 0."""
        path, head = rank_file(self.folder, rank), {**main.head, "rank": rank}
        found = next((each for each in self.ranks.get(path, ()) if each.head["attempt"] == head["attempt"]), None)
        if path not in self.ranks:
            problem = "is missing"
        elif found is None:
            problem = "has nothing of this attempt, so it is of another run, or was cut"
        elif differing := [name for name in head if found.head[name] != head[name]]:
            problem = f"and rank 0 do not agree on {differing[0]}: {found.head[differing[0]]} and {head[differing[0]]}"
        elif found.last < step:
            problem = f"ends at step {found.last:,}: the run was stopped there, or the file was cut"
        else:
            return found
        raise StoreError(f"{path} {problem}. Step {step:,} was trained on {head['ranks']} ranks, after step {head['after']:,}. {REMEDY}")

    def seen(self, step: int) -> tuple[list[Seen], float | None]:
        """The rows of a step, by rank and in order; and its loss: the mean over all trained tokens, or what the loop gave.

        Raises:
            ConfigError, StoreError: as `attempt`.
        """
        rows, given = list[Seen](), list[float]()
        for rank, attempt in enumerate(self.attempt(step)):
            line = attempt.step(step)
            rows += [Seen(rank, item, piece, None if loss is None else float(loss), tokens) for item, piece, loss, tokens in line["rows"]]
            given += [] if line["loss"] is None else [float(line["loss"])]
        weighed = [(row.loss, 1 if row.tokens is None else row.tokens) for row in rows if row.loss is not None]
        weighed = weighed or [(loss, 1) for loss in given]
        return rows, sum(loss * weight for loss, weight in weighed) / sum(weight for _, weight in weighed) if weighed else None

    def all_seen(self) -> Iterator[tuple[int, list[Seen], float | None]]:
        """Each step that counts, with its rows and loss; not the last one, if a kill left it torn on some ranks."""
        steps = [step for steps in self.steps for step in steps]
        for step in steps:
            try:
                rows, loss = self.seen(step)
            except StoreError:
                if step == steps[-1] != steps[0]:  # the ranks were killed in it, as they all have the step before
                    return
                raise
            yield step, rows, loss
