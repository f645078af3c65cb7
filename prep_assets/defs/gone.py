"""Runs whose process is gone: killed, or lost with its terminal. Dagster would take them for running for ever, and automation would wait."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import dagster as dg

PROCESS = "prep_assets/process"
RUNNING = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING]


def sign(context: dg.AssetExecutionContext) -> None:
    """Write down, as a tag of the run, in which process it runs."""
    context.instance.add_run_tags(context.run.run_id, {PROCESS: _process(os.getpid())})


def close_gone(instance: dg.DagsterInstance) -> list[str]:
    """Mark as failed every run of this machine that says it is running and whose process is gone; return their ids."""
    closed = []
    for run in instance.get_runs(dg.RunsFilter(statuses=RUNNING)):
        host, _, rest = run.tags.get(PROCESS, "").rpartition(" ")[0].rpartition(" ")
        if host == socket.gethostname() and _process(int(rest)) != run.tags[PROCESS]:
            instance.report_run_failed(run, "The process of this run is gone: it was killed, or its terminal was closed.")
            closed.append(run.run_id)
    return closed


def _process(pid: int) -> str:
    """Host, process id, and when the process started: an id is given again, a start is not."""
    return f"{socket.gethostname()} {pid} {_started(pid)}"


def _started(pid: int) -> str:
    try:
        # the 22nd field; the second is a name in parentheses, which may hold spaces
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return _alive(pid)


def _alive(pid: int) -> str:
    """Where there is no `/proc`: only whether a process of this id is there."""
    if Path("/proc/self/stat").exists():
        return "gone"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass
    return "running"
