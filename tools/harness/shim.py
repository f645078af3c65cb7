"""The shim that counts a process's calls on files, and runs a workload in a forked process with one of them killed or failing."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
OFF, COUNT, KILL, FAIL, FAIL_ON = 0, 1, 2, 3, 4
_MARK = "PREP_ASSETS_SHIM"


def library() -> Path:
    """The built shim, in the system's folder for temporary files."""
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"prep-assets-shim-{name}.so"
    if not built.exists():
        fresh = built.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", fresh, SOURCE, "-ldl"], check=True)
        fresh.replace(built)
    return built


def missing() -> str:
    """Why there can be no shim here; empty where there can."""
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    return "" if shutil.which("cc") else "needs a C compiler (cc)"


def under_shim() -> None:
    """Start this program again with the shim loaded, unless it is."""
    if os.environ.get(_MARK) != "1":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "LD_PRELOAD": str(library()), _MARK: "1"})


@dataclass(frozen=True)
class Outcome:
    """How a workload ended.

    Attributes:
        status: exit code; negative for a signal.
        calls: how many calls on files it made.
        said: the error it ended with, type and text; empty where it succeeded.
        trace: where that error came from.
    """

    status: int
    calls: int
    said: str
    trace: str


def run(work: Callable[[], None], root: Path, mode: int = COUNT, number: int = 0, error: int = 0) -> Outcome:
    """Carry out `work` in a forked process. Call `number` below `root` is killed, or fails with `error`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _carry_out(work, root, (mode, number, error), writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    calls, _, rest = told.partition("\n")
    said, _, trace = rest.partition("\0")
    return Outcome(os.waitstatus_to_exitcode(status), int(calls or 0), said, trace)


def _carry_out(work: Callable[[], None], root: Path, how: tuple[int, int, int], pipe: int) -> None:
    shim, said = ctypes.CDLL(None), ""
    try:
        shim.shim_arm(how[0], ctypes.c_long(how[1]), how[2], os.fsencode(root), -1)
        work()
    except BaseException as error:
        shim.shim_off()
        said = f"{type(error).__module__}.{type(error).__name__}: {error}\0{traceback.format_exc()}"
    shim.shim_off()
    shim.shim_seen.restype = ctypes.c_long
    with contextlib.suppress(OSError):
        os.write(pipe, f"{shim.shim_seen()}\n{said}".encode("utf-8", "backslashreplace")[:60_000])
    os._exit(1 if said else 0)
