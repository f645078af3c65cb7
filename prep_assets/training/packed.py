"""Rows of a packed table as training items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from prep_assets.errors import StoreError
from prep_assets.stores.detect import payload_folders
from prep_assets.stores.open import open_store
from prep_assets.training.tensors import long

IGNORE = -100


class PackedDataset(Dataset[dict[str, Tensor]]):
    """The rows of a packed table, padding included.

    Item, for a row of L tokens with k documents:

    * ``input_ids`` int64[L].
    * ``labels`` int64[L], **unshifted**: -100 where the token is not trained, in the padding, and at the first token of each document.
    * ``position_ids`` int64[L], from 0 in each document, 0 in the padding.
    * ``seq_lengths`` int64[k], tokens in each document; ``cu_seqlens`` int32[k + 1], their cumulative sums. Neither counts the padding.

    Args:
        path: folder of the table, e.g. ``stores/sft_packed`` or ``stores/sft_packed/current``.
        name: which table, where the folder has several, e.g. ``sft_dev_packed``.

    Raises:
        StoreError: no table there, or several and no name; loss weights that are neither 0 nor 1, which labels cannot express.
    """

    def __init__(self, path: Path | str, name: str | None = None) -> None:
        self._args = (path, name)
        folder, name = _find(Path(path), name)
        h5 = folder / f"{name}.h5"
        self._store = open_store(h5 if h5.is_file() else folder / name)
        where = folder / f"{name}.documents"
        self._row, self._offset, self._length = (
            np.load(where / f"{field}.npy", mmap_mode="r") for field in ("row", "row_offset", "length")
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedDataset, self._args

    def __len__(self) -> int:
        return self._store.num_records

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        found = self._store.fetch_record(i, ["sequence", "loss_mask", "position_ids"])
        low, high = np.searchsorted(self._row, [i % len(self), i % len(self) + 1])
        lengths, offsets = long(self._length[low:high]), long(self._offset[low:high])
        tokens, mask = long(found["sequence"]), found["loss_mask"]
        if mask.dtype.kind == "f" and not np.isin(mask, (0, 1)).all():
            raise StoreError(
                f"{self._store.path}, row {i}: loss weights that are neither 0 nor 1 have no labels; read loss_mask with open_store"
            )
        labels = torch.where(torch.from_numpy(mask != 0), tokens, IGNORE)
        labels[offsets] = IGNORE
        cu_seqlens = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0).to(torch.int32)])
        positions = long(found["position_ids"])
        return {"input_ids": tokens, "labels": labels, "position_ids": positions, "seq_lengths": lengths, "cu_seqlens": cu_seqlens}


def _find(path: Path, name: str | None) -> tuple[Path, str]:
    folders = payload_folders(path)
    names = {each.stem: folder for folder in folders for each in sorted(folder.glob("*.documents"))}
    if name is None and len(names) == 1:
        name = next(iter(names))
    if name not in names:
        raise StoreError(f"{path}: no packed table {name or ''}; found {', '.join(names) or 'none'}. Give the name of one of them")
    return names[name], name
