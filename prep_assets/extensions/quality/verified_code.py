"""Run a gold of the verifier `code` against its tests, each in a process of its own: with a bound on time, memory and files, none of this process's
environment, and Python's standard library alone.

These are limits for mistakes, and no sandbox: the program may read and write what this user may, and use the network.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from prep_assets.extensions.rl.verifiers import CodeTests

_RUN = Path(__file__).with_name("run_code.py")
_FENCED = re.compile(r"```(\w*)[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


class TooSlow(Exception):
    """The tests of a program take longer than they may."""


def program_of(answer: str) -> str:
    """The last fenced block of Python in an answer, as verl and open-r1 take it, else the last block; the answer itself where it has none."""
    blocks = _FENCED.findall(answer)
    written = [block for block in blocks if block[0].lower().startswith("py")] or blocks
    return str(written[-1][1]) if written else answer


def failure(answer: str, tests: CodeTests, seconds: float) -> str:
    """Why a program does not pass its tests; ``""`` if it does. No text of the program is in it.

    Args:
        seconds: how long all of its tests may take together.

    Raises:
        TooSlow: they take longer.
    """
    ends = time.monotonic() + seconds
    job = {"program": program_of(answer), "asserts": tests.asserts, "function": tests.function, "seconds": seconds}
    job |= {"inputs": tests.inputs, "outputs": tests.outputs} if tests.function else {}
    with TemporaryDirectory(prefix="prep-assets-code-") as name:
        folder = Path(name)
        (folder / "job").write_text(json.dumps(job), "utf-8")
        if tests.asserts or tests.function:
            return _all_at_once(folder, len(tests.asserts or tests.inputs), ends)
        for number, (given, wanted) in enumerate(zip(tests.inputs, tests.outputs, strict=True), 1):
            status, printed = _run(folder, given, ends)
            if status:
                return f"test {number} of {len(tests.inputs)} ends with status {status}"
            if not _says_the_same(printed, wanted):
                return f"test {number} of {len(tests.inputs)} prints something else"
    return ""


def _all_at_once(folder: Path, count: int, ends: float) -> str:
    status, _ = _run(folder, "", ends)
    try:
        held, raised = json.loads((folder / "result").read_text("utf-8"))
    except FileNotFoundError:
        return f"its process ends with status {status} before the last test"
    return f"test {held + 1} of {count} raises {raised}" if raised else ""


def _run(folder: Path, given: str, ends: float) -> tuple[int, str]:
    """Run the job in a folder: the status with which it ends, and what it prints."""
    (folder / "input").write_text(given, "utf-8")
    work = folder / "work"
    work.mkdir(exist_ok=True)
    command = [sys.executable, "-s", "-S", "-P", str(_RUN), str(folder / "job"), str(folder / "result")]
    environment = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}  # a set is gone through in the same order each time
    with (folder / "input").open("rb") as stdin, (folder / "output").open("wb") as stdout:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, env=environment, cwd=work, start_new_session=True
        )
    try:
        status = process.wait(max(0.0, ends - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TooSlow from None
    finally:
        with suppress(ProcessLookupError):  # what the program started, and itself where it takes too long
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return status, (folder / "output").read_text("utf-8", "replace")


def _says_the_same(printed: str, wanted: str) -> bool:
    """Whether two outputs are the same words in the same lines, numbers by their value, as PrimeIntellect's and LiveCodeBench's judges compare them."""
    lines, others = ([line.split() for line in text.strip().splitlines()] for text in (printed, wanted))
    return [*map(len, lines)] == [*map(len, others)] and all(map(_is_same, chain(*lines), chain(*others)))


def _is_same(word: str, other: str) -> bool:
    with suppress(InvalidOperation):
        return word == other or Decimal(word) == Decimal(other)
    return False
