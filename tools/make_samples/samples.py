"""Writing the sample data sets, each in the file format and row form of a well-known public data set."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from make_samples.chats import chats
from make_samples.documents import documents, notes
from make_samples.instructions import alpaca, dolly
from make_samples.preferences import hh, ultrafeedback
from make_samples.problems import gsm8k

ZSTD_LEVEL = 19


def write_samples(folder: Path) -> None:
    """Write all sample data sets into `folder`, which is made if it is missing.

    The text is the same on every machine. The two compressed files hold no time or name; their bytes are the same for one version of the
    compression library.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _files():
        (folder / name).write_bytes(content)


def _files() -> Iterable[tuple[str, bytes]]:
    yield "gsm8k.jsonl", _lines(gsm8k())
    yield "alpaca.json", (json.dumps(list(alpaca()), ensure_ascii=False, indent=1) + "\n").encode()
    yield "dolly.jsonl", _lines(dolly())
    yield "chats.jsonl", _lines(chats())
    yield "docs.jsonl.zst", zstd.compress(_lines(documents()), level=ZSTD_LEVEL)
    yield "notes.txt", "".join(f"{note}\n" for note in notes()).encode()
    yield "hh.jsonl.gz", gzip.compress(_lines(hh()), mtime=0)
    yield "ultrafeedback.jsonl", _lines(ultrafeedback())


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
