"""What tests write: packed tables of known documents; and what a manifest says of files, for tests that alter a store and make its manifest fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.stores.h5 import h5_layout
from prep_assets.stores.manifest import MANIFEST
from prep_assets.stores.packed import DOCUMENT_FIELDS, write_documents
from prep_assets.stores.shards import StorageFormat
from prep_assets.stores.table import PACKED
from prep_assets.stores.verification import sums_of
from prep_assets.stores.writer import TableWriter


def packed_dtypes(storage: StorageFormat, loss_mask: str = "int8") -> dict[str, str]:
    """Dtypes of the columns of a packed table."""
    return {"tokens": "int32", "loss_mask": loss_mask, **({"position_ids": "int32"} if storage == "bin" else {})}


def list_payload(directory: Path) -> dict[str, dict[str, Any]]:
    """The entry of every payload file below `directory`, by relative path, sorted."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / MANIFEST)
    return {path.relative_to(directory).as_posix(): {**sums_of(path)._asdict(), **_layout(path)} for path in files}


def _layout(path: Path) -> dict[str, str]:
    try:
        return h5_layout(path)
    except StoreError:  # a test has damaged it
        return {}


def write_table(
    folder: Path,
    storage: StorageFormat,
    rows: Sequence[Sequence[tuple[Sequence[int], Sequence[int]]]],
    row_len: int,
    pad: int = 0,
    align: int = 1,
) -> Path:
    """The packed table ``sft_packed`` of rows of documents, of each its tokens and its loss mask."""
    folder.mkdir(exist_ok=True)
    shape, pieces = (len(rows), row_len), list[tuple[int, ...]]()
    block = {"tokens": np.full(shape, pad, "int32"), "loss_mask": np.zeros(shape, "int8"), "position_ids": np.zeros(shape, "int32")}
    for number, row in enumerate(rows):
        at = 0
        for tokens, mask in row:
            for key, values in (("tokens", tokens), ("loss_mask", mask), ("position_ids", range(len(tokens)))):
                block[key][number, at : at + len(tokens)] = values
            pieces.append((number, at, len(tokens), 0, len(pieces), 0))
            at += len(tokens)
    with TableWriter(folder, "sft_packed", PACKED, packed_dtypes(storage), storage=storage, rows=shape) as writer:
        writer.append(block)
    write_documents(folder, "sft_packed", dict(zip(DOCUMENT_FIELDS, np.array(pieces).T, strict=True)), ("d",), row_len, align)
    return folder
