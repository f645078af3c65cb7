"""Reads Megatron's indexed data sets: pairs ``<prefix>.bin`` and ``<prefix>.idx``, all numbers little-endian.

The index is: ``MMIDIDX\\0\\0`` · uint64 version 1 · uint8 type · uint64 S · uint64 D · int32[S] lengths · int64[S] byte offsets ·
int64[D] document indices, first 0, last S. A record here is a document. ModelLink writes one pair a key, named
``<name>_packed_<key>_document``; every other pair holds the key ``sequence``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.stores.guards import UNGUARDED, Guards, map_array
from prep_assets.stores.segments import Int64s, Shard

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<QBQQ")
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


def read_megatron(indices: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each pair, or for each set of ModelLink's pairs.

    Raises:
        StoreError: a file that is not an index, or an index that does not fit its ``.bin``.
    """
    shards: dict[str, dict[str, tuple[Any, Int64s]]] = {}
    for path in indices:
        name, key = _parts(path)
        shards.setdefault(name, {})[key] = _pair(path, guards)
    return [
        Shard(name, {key: data for key, (data, _) in pairs.items()}, {key: ends for key, (_, ends) in pairs.items()})
        for name, pairs in shards.items()
    ]


def _parts(path: Path) -> tuple[str, str]:
    found = re.fullmatch(r"(.*)_packed_(.+)_(?:document|sentence)", path.stem)
    return (str(path.with_name(found[1])), found[2]) if found else (str(path.with_suffix("")), "sequence")


def _pair(path: Path, guards: Guards) -> tuple[Any, Int64s]:
    raw = guards.whole(path).read_bytes()
    if raw[:9] != MAGIC or len(raw) < 9 + HEADER.size:
        raise StoreError(f"{path} is no Megatron index: it begins with {raw[:9]!r}, not {MAGIC!r}")
    version, code, sequences, documents = HEADER.unpack_from(raw, 9)
    expected = 9 + HEADER.size + 12 * sequences + 8 * documents
    if version != 1 or code not in DTYPES or len(raw) not in (expected, expected + sequences):
        raise StoreError(f"{path}: version {version}, type {code}, {len(raw):,} bytes where its counts say {expected:,}")
    at = 9 + HEADER.size
    lengths = np.frombuffer(raw, "<i4", sequences, at)
    borders = np.frombuffer(raw, "<i8", documents, at + 12 * sequences)
    data = path.with_suffix(".bin")
    dtype, total = np.dtype(DTYPES[code]), int(lengths.sum(dtype=np.int64))
    if not data.is_file() or data.stat().st_size != total * dtype.itemsize:
        found = f"{data.stat().st_size:,} bytes" if data.is_file() else "missing"
        raise StoreError(f"{data}: {found}; its index says {total:,} of {dtype.name}, {total * dtype.itemsize:,} bytes")
    flat = map_array(data, dtype, guards)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return flat, ends[borders[1:]]
