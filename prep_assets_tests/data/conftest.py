"""What the tests of reading share."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, find_files
from prep_assets.data.read import read_blocks
from prep_assets.samples import Record


def _zstd(data: bytes) -> bytes:
    import pyarrow

    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


# Suffix -> a writer that shares no code with the decoders under test.
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": _zstd}


@pytest.fixture
def compress() -> dict[str, Callable[[bytes], bytes]]:
    """Suffix -> compressing function."""
    return COMPRESS


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., SourceFile]:
    """`source(name, data)`: a source file with these bytes."""

    def write(name: str, data: bytes, **options: Any) -> SourceFile:
        (tmp_path / name).write_bytes(data)
        return find_files([name], tmp_path, **options)[0]

    return write


@pytest.fixture
def read() -> Callable[..., tuple[list[Record], list[Unreadable]]]:
    """`read(file, **options)`: all records and all refused rows."""

    def everything(file: SourceFile, **options: Any) -> tuple[list[Record], list[Unreadable]]:
        blocks = list(read_blocks(file, 0, **options))
        return [r for b in blocks for r in b.records], [u for b in blocks for u in b.unreadable]

    return everything
