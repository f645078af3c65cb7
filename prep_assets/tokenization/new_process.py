"""Work that another Python process does, because it must know nothing of this one, or because this one must not keep what the work imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prep_assets.errors import ConfigError


def in_a_new_process(module: str, function: str, *arguments: str, **environment: str) -> str:
    """What a function of texts gives, a line of text, in a process with the same import path.

    Args:
        environment: variables that are set there.

    Raises:
        ConfigError: it fails there; the last line that it says.
    """
    called = f"import sys; from {module} import {function}; print({function}(*sys.argv[1:]))"
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", called, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    return done.stdout.strip().splitlines()[-1]
