"""JSONL payloads: one JSON object per line, as ``json.dumps`` writes it, and the origin of each line.

A folder ``<name>.index`` next to ``<name>.jsonl`` holds `source`, `file` and `row` of each line; no trainer reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from prep_assets.stores.guards import Guards

INDEX_FIELDS = {"source": np.int32, "file": np.int32, "row": np.int64}

_decode = msgspec.json.Decoder().decode


def row_of(line: bytes) -> dict[str, Any]:
    """Parse a line. The standard library, which wrote it, also writes NaN, infinities and lone surrogates, which are not JSON, and parses them back."""
    try:
        row: dict[str, Any] = _decode(line)
    except (msgspec.MsgspecError, ValueError):
        row = json.loads(line)
    return row


def rows_between(path: Path, guards: Guards, start: int, stop: int | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of the lines of a file from byte `start` to byte `stop`, at both of which a line begins; to the end without `stop`."""
    with guards.open(path) as file:
        file.seek(start)
        for line in file:
            yield row_of(line)
            start += len(line)
            if start == stop:
                return
