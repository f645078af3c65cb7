"""A Ray cluster of one node on this machine, and the processor time of all of its processes, those as well that have ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


class Head:
    """The processes below one.

    Attributes:
        address: of the cluster.
    """

    def __init__(self, address: str, root: int) -> None:
        self.address, self._root, self._seen = address, root, dict[int, tuple[str, float]]()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def used(self) -> Counter[str]:
        """CPU seconds so far by what runs: ``raylet``, ``gcs_server``, ``worker`` …"""
        self._note()
        total = Counter[str]()
        for name, spent in list(self._seen.values()):
            total[name] += spent  # type: ignore[assignment]
        return total

    def close(self) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            self._note()

    def _note(self) -> None:
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                number, _, rest = path.read_text().partition(" (")
                name, _, fields = rest.rpartition(") ")
            except OSError:
                continue
            each = fields.split()
            found[int(number)] = int(each[1]), name, (int(each[11]) + int(each[12])) / _TICK
        below = {self._root}
        while more := {pid for pid, (parent, *_) in found.items() if parent in below and pid not in below}:
            below |= more
        for pid in below & found.keys():
            _, name, spent = found[pid]
            self._seen[pid] = "worker" if name.startswith("ray::") and "Agent" not in name else name, spent


@contextmanager
def ray_head(processors: int) -> Iterator[Head]:
    """A cluster that ends with the block."""
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port = asking.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # short, for sockets
        command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}", f"--num-cpus={processors}"]
        command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"]
        command.append("--object-store-memory=100000000")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        head: Head | None = None
        try:
            if not any("runtime started" in line for line in process.stdout):
                raise SystemExit("Ray does not start")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            head = Head(f"127.0.0.1:{port}", process.pid)
            yield head
        finally:
            if head is not None:
                head.close()
            process.terminate()
            process.wait()
