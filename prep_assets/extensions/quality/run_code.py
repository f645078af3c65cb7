"""A program and its tests, in the process that `verified_code` starts for them: ``python run_code.py JOB RESULT``. It imports nothing of this package.

JOB is JSON: the program, and asserts, or a function with its calls and their results, or neither, for a program that reads standard input. After the last
test the number of tests that hold is written to RESULT, with what the next one raised; a program that ends the process before writes nothing.
"""

from __future__ import annotations

import builtins
import importlib
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY, FILE = 1 << 30, 64 << 20
"""Bytes of memory that a program may take, and of a file that it may write."""
STAR = (
    "bisect", "collections", "copy", "functools", "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "string", "typing",
)  # fmt: skip
"""Modules whose names a function may use without an import, as verl and LiveCodeBench let it."""


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    seconds = int(job["seconds"]) + 1
    limits = ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0))
    for kind, most in limits:
        resource.setrlimit(kind, (most, most))
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # the module `site` has them, which does not run
    program = compile(job["program"], "program", "exec")
    if not job["asserts"] and job["function"] is None:
        exec(program, {"__name__": "__main__"})
        return
    held, raised = 0, ""
    try:
        for _ in _tests(program, job):
            held += 1
    except (Exception, SystemExit) as error:
        raised = type(error).__name__
    Path(sys.argv[2]).write_text(json.dumps([held, raised]), "utf-8")


def _tests(program: Any, job: dict[str, Any]) -> Iterator[None]:
    """Run the tests, and yield after each that holds."""
    names: dict[str, Any] = {"__name__": "program"}
    if job["function"] is None:
        exec(program, names)
        for test in job["asserts"]:
            exec(test, names)
            yield
        return
    for module in STAR:
        names |= {name: value for name, value in vars(importlib.import_module(module)).items() if not name.startswith("_")}
    exec(program, names)
    owner = names["Solution"]() if hasattr(names.get("Solution"), job["function"]) else None
    function = names[job["function"]] if owner is None else getattr(owner, job["function"])
    for arguments, wanted in zip(job["inputs"], job["outputs"], strict=True):
        found = json.loads(json.dumps(function(*arguments)))
        assert found == wanted or [found] == wanted
        yield


if __name__ == "__main__":
    main()
