"""`dagster dev` and `prep-assets view` over a small workspace in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

MINUTES = 60
BAD = {"messages": [{"role": "user", "content": "And if nobody answers?"}]}


def chat(question: str, answer: str) -> dict[str, Any]:
    """A row of the source."""
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


@dataclass
class Served:
    """A workspace of two domains, `mine` with a row that is refused, and the processes that show it.

    Attributes:
        workspace: what they show.
        source: the file of `mine`.
        url, view: addresses of Dagster's pages and of ours.
    """

    workspace: Workspace
    source: Path
    home: Path
    url: str = ""
    view: str = ""
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start both servers and wait until they answer."""
        ports = [_free(), _free()]
        self.url, self.view = (f"http://127.0.0.1:{port}" for port in ports)
        programs = Path(sys.executable).parent
        env = {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "PREP_ASSETS_CONFIG_DIR": str(self.workspace.configs),
            "PREP_ASSETS_STORE_DIR": str(self.workspace.stores),
            "PREP_ASSETS_VIEW_URL": self.view,
            "PYTHONPATH": str(ROOT),
        }
        log = (self.home / "log.txt").open("ab")
        for command in (
            [programs / "dagster", "dev", "-m", "prep_assets.definitions", "-h", "127.0.0.1", "-p", str(ports[0])],
            [sys.executable, "-c", "from prep_assets.cli.entry import main; main()", "view", "--port", str(ports[1])],
        ):
            # a group of its own, because `dagster dev` starts five processes
            self._processes.append(subprocess.Popen(command, cwd=self.home, env=env, stdout=log, stderr=log, start_new_session=True))
        wait_for(lambda: all(map(_answers, (f"{self.url}/server_info", self.view))), 3 * MINUTES, "the servers")

    def stop(self) -> None:
        """End both, with all processes that they have started."""
        for process in self._processes:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(20)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        self._processes.clear()

    def instance(self) -> dg.DagsterInstance:
        """What Dagster remembers."""
        return dg.DagsterInstance.from_config(str(self.home))


def small_workspace(folder: Path) -> Served:
    """The workspace, with nothing built and nothing started."""
    rows = [chat(f"What is {n} + {n}?", f"It is {2 * n}.") for n in range(1, 9)]
    source = jsonl(folder / "mine.jsonl", [*rows[:3], BAD, *rows[3:]])
    domains = {"mine": {"files": [str(source)], "schema": "messages"}, "dolly": domain("dolly.jsonl", "dolly", ignore=["category"])}
    workspace = workspace_in(folder, minimal("sft", domains, template="chatml", packing={"strategy": "bfd", "row_len": 256}))
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "tools/venv/dagster.yaml", home)
    return Served(workspace, source, home)


def wait_for(ready: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `ready` says, as soon as it says anything."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := ready():
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds:.0f} seconds")


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
