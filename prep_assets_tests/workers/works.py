"""What the tests of the pool have done: functions that worker processes can import."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prep_assets.engine import execute as running
from prep_assets.engine.plan import Step
from prep_assets.errors import SourceError
from prep_assets.workers.shards import Counts, Work


class Odd(Exception):
    """Is made of two things and remembers one."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(f"number {number}")


def square(number: int, folder: Path) -> dict[str, Any]:
    """Write a number's square, and say which process did."""
    (folder / "square.txt").write_text(str(number * number))
    return {"square": number * number, "process": os.getpid()}


def square_slowly(number: int, folder: Path, *, seconds: float) -> dict[str, Any]:
    """The same; the first number takes its time."""
    if number == 0:
        time.sleep(seconds)
    return square(number, folder)


def vary(number: int, folder: Path, *, at: int) -> dict[str, Any]:
    """The same; number `at` gives other bytes in each process."""
    if number == at:
        (folder / "noise.bin").write_bytes(os.urandom(8))
    (folder / "square.txt").write_text(str(number * number))
    return {"square": number * number}


def die_once(number: int, folder: Path, *, at: int, marks: Path, by: int = signal.SIGKILL) -> dict[str, Any]:
    """The same; the process that is the first to do number `at` is killed in the middle of it."""
    if number == at and _first(marks / "died"):
        (folder / "half.txt").write_text("half")
        os.kill(os.getpid(), by)
        time.sleep(60)
    return square(number, folder)


def die_amid(task: Any, folder: Path, *, kind: type, work: Work, marks: Path) -> Counts:
    """Other work; the process that is the first to be given a task of a kind is killed."""
    if isinstance(task, kind) and _first(marks / "died"):
        os.kill(os.getpid(), signal.SIGKILL)
    return work(task, folder)


def die_of(task: Sequence[Step], folder: Path, *, domain: str, marks: Path | None, **how: Any) -> Counts:
    """The work of a domain in the engine; whoever is given `domain`, or any if it is empty, is killed, with `marks` only the first."""
    if domain in ("", task[0].partition) and (marks is None or _first(marks / "died")):
        os.kill(os.getpid(), signal.SIGKILL)
    return running._chain(task, folder, **how)


def die(number: int, folder: Path, *, at: int) -> dict[str, Any]:
    """The same; whoever does number `at` is killed."""
    if number == at:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return square(number, folder)


def need_memory(number: int, folder: Path, *, at: int) -> dict[str, Any]:
    """The same; number `at` needs more memory than there is."""
    if number == at:
        raise MemoryError
    return square(number, folder)


def fail(number: int, folder: Path, *, at: tuple[int, ...]) -> dict[str, Any]:
    """The same; some numbers cannot be done, the higher ones sooner."""
    if number in at:
        time.sleep(0.2 / (number + 1))
        raise SourceError(f"number {number} is not there")
    return square(number, folder)


def break_down(number: int, folder: Path) -> dict[str, Any]:
    """An exception that cannot be pickled."""
    raise Odd(number, folder)


def wait_for_ever(number: int, folder: Path, *, marks: Path) -> dict[str, Any]:
    """Say which process this is, and never end."""
    (folder / "half.txt").write_text("half")
    (marks / str(os.getpid())).touch()
    while True:
        time.sleep(1)


def _first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def count_up(numbers: Any, folder: Path) -> dict[str, Any]:
    """A number for an array of them."""
    (folder / "sum.txt").write_text(str(int(numbers.sum())))
    return {}


def get_ready(marks: Path) -> None:
    """Say which process does."""
    (marks / f"ready-{os.getpid()}").touch()


def get_ready_with_a_thread(marks: Path) -> None:
    """The same, and leave a thread behind."""
    get_ready(marks)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def fail_to_get_ready() -> None:
    """Open something that is not there."""
    raise SourceError("nothing is there")
