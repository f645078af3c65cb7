"""What was found out about source files, kept beside the stores so that it is not found out again."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prep_assets.disk.strict_json import loads

if TYPE_CHECKING:
    from prep_assets.records.pin import Pin


def keep(cache: Path, found: Any) -> None:
    """Write down what was found about source files, in one step: sensors and runs look at the same files at once."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    fresh = cache.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    fresh.write_text(json.dumps(found), "utf-8")
    fresh.replace(cache)


def remembered_pins(cache: Path) -> list[Pin]:
    """The pins in a cache of hashes; none where it is missing or cannot be read, because hashing again costs only time."""
    try:
        from prep_assets.records.pin import Pin

        return [Pin(**entry) for entry in loads(cache.read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        return []
