"""Arrow columns from blocks, and folders as ``datasets.Dataset.save_to_disk`` writes them.

The folder is written without the `datasets` package: ``data-00000-of-00001.arrow`` … (Arrow streams), ``state.json``, ``dataset_info.json``.
Features are left out of the latter, so that every version of `datasets` derives them from the Arrow schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.manifest import digest, file_hash

SHARD_BYTES = 500_000_000


def ragged(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64], dtype: str) -> Any:
    """An Arrow list column: `values` cut into lists of `lengths`, elements of `dtype`."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.asarray(values).astype(dtype)))


def save_to_disk(folder: Path, tables: Iterable[Any], *, split: str = "train") -> None:
    """Write Arrow tables of one schema as the shards of one data set."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    writer = None
    for table in tables:
        if writer is None or written[-1].stat().st_size > SHARD_BYTES:
            if writer is not None:
                writer.close()
            written.append(folder / f"data-{len(written):05d}.arrow")
            writer = pa.ipc.new_stream(written[-1], table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    named = [path.rename(folder / f"data-{number:05d}-of-{len(written):05d}.arrow") for number, path in enumerate(written)]
    state: dict[str, Any] = {
        "_data_files": [{"filename": path.name} for path in named],
        "_fingerprint": digest([file_hash(path) for path in named])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    _json(folder / "state.json", state)
    _json(folder / "dataset_info.json", {"citation": "", "description": "", "homepage": "", "license": ""})


def save_splits(folder: Path, split: str, tables: Iterable[Any]) -> None:
    """Write one split of a ``datasets.DatasetDict``."""
    save_to_disk(folder / split, tables, split=split)
    _json(folder / "dataset_dict.json", {"splits": [split]})


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", "utf-8")
