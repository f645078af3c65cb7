"""What the tests of reading share."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, find_files
from prep_assets.data.read import read_blocks
from prep_assets.samples import Record


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


# Suffix -> a writer that shares no code with the decoders under test.
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": _zstd}


def table_bytes(kind: str, rows: list[dict[str, Any]], group: int = 100) -> bytes:
    """Rows as a file of a table, so many in a row group or batch. Of Arrow's two forms, ``arrow`` is the file and ``stream`` the stream."""
    table, out = pa.Table.from_pylist(rows), io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, out, row_group_size=group, compression="none")
    else:
        with (ipc.new_stream if kind == "stream" else ipc.new_file)(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=group)
    return out.getvalue()


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
