"""What was found out about source files, kept beside the stores so that it is not found out again."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prep_assets.disk.strict_json import loads

if TYPE_CHECKING:
    from prep_assets.records.files import SourceFile
    from prep_assets.records.pin import Pin


def keep(cache: Path, found: Any) -> None:
    """Write down what was found about source files, in one step: sensors and runs look at the same files at once."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    temporary = cache.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    temporary.write_text(json.dumps(found), "utf-8")
    temporary.replace(cache)


def pinned_again(files: tuple[SourceFile, ...], cache: Path) -> tuple[Pin, ...]:
    """Content hashes of source files. A file that looks untouched since it was last hashed is not hashed again."""
    from prep_assets.records.pin import Pin, pin_files

    known = remembered_pins(cache)
    pins = pin_files(files, known)
    if list(pins) != known:
        keep(cache, [{name: getattr(pin, name) for name in Pin.__slots__} for pin in pins])
    return pins


def remembered_pins(cache: Path) -> list[Pin]:
    """The pins in a cache of hashes; none where it is missing or cannot be read, because hashing again costs only time."""
    try:
        from prep_assets.records.pin import Pin

        return [Pin(**entry) for entry in loads(cache.read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        return []
