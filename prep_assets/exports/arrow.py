"""Arrow columns from blocks, and folders as ``datasets.Dataset.save_to_disk`` writes them.

The folder is written without the `datasets` package: ``data-00000-of-00001.arrow`` … (Arrow streams), ``state.json``, ``dataset_info.json``.
Features are left out of the latter, so that every version of `datasets` derives them from the Arrow schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.ledger import rename
from prep_assets.disk.written import WrittenFile, write_json
from prep_assets.stores.manifest import digest, file_hash

SHARD_BYTES = 500_000_000
_FORM: dict[str, Any] = {"indent": 2, "sort_keys": True}


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
    with ExitStack() as opened:
        file = writer = None
        for table in tables:
            if file is None or writer is None or file.tell() > SHARD_BYTES:
                opened.close()
                written.append(folder / f"data-{len(written):05d}.arrow")
                file = opened.enter_context(WrittenFile(written[-1]))
                writer = opened.enter_context(pa.ipc.new_stream(file, table.schema))
            writer.write_table(table)
    named = [rename(path, folder / f"data-{number:05d}-of-{len(written):05d}.arrow") for number, path in enumerate(written)]
    state: dict[str, Any] = {
        "_data_files": [{"filename": path.name} for path in named],
        "_fingerprint": digest([file_hash(path) for path in named])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    write_json(folder / "state.json", state, **_FORM)
    write_json(folder / "dataset_info.json", {"citation": "", "description": "", "homepage": "", "license": ""}, **_FORM)


def save_splits(folder: Path, split: str, tables: Iterable[Any]) -> None:
    """Write one split of a ``datasets.DatasetDict``."""
    save_to_disk(folder / split, tables, split=split)
    write_json(folder / "dataset_dict.json", {"splits": [split]}, **_FORM)
