"""What Dagster remembers and what is gone: runs whose process ended without a word, and stores that were moved away or deleted by hand."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import dagster as dg

from prep_assets.assets.commands import build_command
from prep_assets.assets.graph import family_assets
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.jobs import damaged
from prep_assets.defs.site import Site

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


def lost_stores(
    site: Site, workspace: Workspace, instance: dg.DagsterInstance, family: str, known: set[str]
) -> tuple[list[dg.AssetCheckEvaluation], set[str]]:
    """A failed check for each store of a family that is gone since the last look, and the labels of all that are gone.

    Args:
        known: labels of those that were gone at the last look: their failure is on record.
    """
    events, gone = [], set[str]()
    for asset in family_assets(workspace, family).values():
        for partition in _materialized(site, instance, asset, asset.partitions(workspace)):
            place = workspace.place(asset.name, partition)
            if place.exists:
                continue
            gone.add(place.label)
            if place.label not in known:
                remedy = build_command(asset.name, partition)
                why = f"the store is gone: {place.shelf.where} was built and is no longer there. Build it with:\n  {remedy}"
                events.append(damaged(site, asset.name, partition, why))
    return events, gone


def _materialized(site: Site, instance: dg.DagsterInstance, asset: Asset, partitions: tuple[str, ...]) -> list[str]:
    key = site.key(asset.name)
    if not asset.partitioned:
        return [""] if instance.get_latest_materialization_event(key) else []
    known = instance.get_materialized_partitions(key)
    return [partition for partition in partitions if partition in known]
