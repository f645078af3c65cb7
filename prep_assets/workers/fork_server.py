"""Where workers come from: a process that is started afresh, imports and opens what all of them need, and is then forked for each.

It is started and not forked itself, because the process that builds has threads, and locks would be copied in whatever state they are. This one has
none that can hold a lock (`prep_assets.workers.process`). Where it has others, say of a tokenizer of the user's own, it becomes a worker instead, and
the next worker has a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path

_THREADS = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
ONE_THREAD = {**dict.fromkeys(_THREADS, "1"), "TOKENIZERS_PARALLELISM": "false"}
"""The workers are the threads: a library that starts one for each core in each of them would only fight itself."""


class ForkServer:
    """The process, which ends with the one that started it.

    Attributes:
        process: it.
    """

    def __init__(self) -> None:
        ours, self._alive = os.pipe()
        self._control, theirs = Pipe()
        # what this process imports, in its order: without -P a folder prep_assets where it was started would come first
        command = [sys.executable, "-P", "-m", "prep_assets.workers.process", str(theirs.fileno()), str(ours)]
        environment = {
            **os.environ,
            **ONE_THREAD,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        }
        self.process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(), ours),
            stdin=subprocess.DEVNULL,
            stdout=2,  # results of commands are on stdout
            env=environment,
            process_group=0,  # Ctrl-C is for the process that started them
        )
        theirs.close()
        os.close(ours)

    def get_ready(self, work: bytes) -> None:
        """Have it import and open what some work needs. It goes on with that while this process goes on."""
        with suppress(OSError):  # it is gone, which shows when a worker is asked for
            self._control.send(("ready", work))

    def worker(self) -> tuple[int, Connection]:
        """A new worker: its process, and what it listens to.

        Raises:
            EOFError, OSError: this process was ended.
        """
        ours, theirs = Pipe()
        with theirs:
            self._control.send(("fork", None))
            send_handle(self._control, theirs.fileno(), self.process.pid)
            return int(self._control.recv()), ours

    def ended(self, worker: int) -> int:
        """The exit code of a worker that is gone or about to be; that of SIGKILL where nobody can tell any more."""
        if worker == self.process.pid:
            self.end()
            return self.process.returncode
        try:
            self._control.send(("ended", worker))
            return int(self._control.recv())
        except (EOFError, OSError):
            return -signal.SIGKILL

    def end(self) -> None:
        """End it; its workers end as well."""
        if not self._control.closed:
            self.process.kill()
            self.process.wait()
            self._control.close()
            os.close(self._alive)
