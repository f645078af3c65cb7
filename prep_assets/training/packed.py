"""Rows of a packed table as training items."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from prep_assets.assets.commands import build_command
from prep_assets.errors import StoreError
from prep_assets.stores.detect import local_path, payload_folders
from prep_assets.stores.guards import Guards, Verify
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import open_packed
from prep_assets.training.rows import long

IGNORE = -100


class PackedDataset(Dataset[dict[str, Tensor]]):
    """The rows of a packed table, padding included.

    Item, for a row of L tokens with k documents:

    * ``input_ids`` int64[L].
    * ``labels`` int64[L], **unshifted**: -100 where the token is not trained, in the padding, and at the first token of each document.
    * ``position_ids`` int64[L], from 0 in each document, 0 in the padding.
    * ``attention_mask`` int64[L], 1 where a token is attended, 0 where it is not and in the padding; only where the table has one.
    * ``seq_lengths`` int64[k], tokens in each document; ``cu_seqlens`` int32[k + 1], their cumulative sums. Neither counts the padding.

    Args:
        path: folder of the table, e.g. ``stores/sft_packed`` or ``stores/sft_packed/current``.
        name: which table, where the folder has several, e.g. ``sft_dev_packed``.
        verify: as `open_store` has it.

    Raises:
        StoreError: no table there, or several and no name; no published version; a manifest that was edited; parts that are damaged; loss
            weights that are neither 0 nor 1, which labels cannot express.
    """

    def __init__(self, path: Path | str, name: str | None = None, *, verify: Verify = "lazy") -> None:
        folder, name = _find(local_path(path), name)
        # the version, not `current`: a worker that opens it later reads the same rows
        self._folder, self._name, self._verify = folder, name, verify
        documents = open_packed(folder, name, Guards(verify)).documents
        h5 = folder / f"{name}.h5"
        self._store = open_store(h5 if h5.is_file() else folder / name, verify=verify)
        self._row, self._offset, self._length = (documents[field] for field in ("row", "row_offset", "length"))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PackedDataset, verify=self._verify), (self._folder, self._name)

    def __len__(self) -> int:
        return self._store.num_records

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        attention = [key for key in ("attention_mask",) if key in self._store.keys]
        found = self._store.fetch_record(i, ["sequence", "loss_mask", "position_ids", *attention])
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
        item = {"input_ids": tokens, "labels": labels, "position_ids": positions, "seq_lengths": lengths, "cu_seqlens": cu_seqlens}
        return item | {key: long(found[key]) for key in attention}


def _find(path: Path, name: str | None) -> tuple[Path, str]:
    if not (folders := payload_folders(path)):
        asset = path.parent.name if path.name == "current" else path.name
        raise StoreError(f"{path}: there is no store. Where it is the place of an asset, build it with:\n  {build_command(asset)}")
    tables = [(folder, each.stem) for folder in folders for each in sorted(folder.glob("*.documents")) if name in (None, each.stem)]
    if len(tables) > 1 and len({folder for folder, _ in tables}) > 1:
        found = ", ".join(str(folder / each) for folder, each in tables)
        raise StoreError(f"{path}: several stores have a packed table {name or ''}: {found}. Open one of these stores")
    if len(tables) != 1:
        found = ", ".join(each.stem for folder in folders for each in sorted(folder.glob("*.documents")))
        raise StoreError(f"{path}: no packed table{f' {name}' if name else ''}; found {found or 'none'}. Give the name of one of them")
    return tables[0]
