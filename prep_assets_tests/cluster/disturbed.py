"""The work of a shard on a cluster whose workers are killed or late. Every execution leaves a mark."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

from prep_assets.pipeline.tokens import _encode_shard


def encode_shard(task: Any, folder: Path, *, encode: Any, dtypes: Any, marks: Path, how: str, at: int) -> Any:
    """Encode a shard. The first execution of number `at` is ``killed`` or ``late``; every one is slower where the whole is to take its time."""
    number = int(folder.name[1:6])
    first = not any(marks.glob(f"{number}-*"))
    (marks / f"{number}-{os.getpid()}-{uuid.uuid4().hex}").touch()
    if how == "slow":
        time.sleep(0.3)
    if how == "killed" and first and number == at:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "late" and first and number == at:
        time.sleep(600)
    return _encode_shard(task, folder, encode=encode, dtypes=dtypes)
