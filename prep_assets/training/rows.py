"""Data sets over what was written as lines: preference pairs and RL prompts, with the tokens of prompts where they are stored.

    RowDataset("stores/preferences")                          {"prompt": …, "chosen": …, "rejected": …}
    RowDataset("stores/rl_prompts", "rl_prompts_test")        {"prompt": …, "gold": …}
    PromptDataset("stores/rl_tokens", "stores/rl_prompts")    the same, and input_ids

They end, and one without a row is an error when it is made: a loop over it would wait forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from prep_assets.errors import StoreError, nearest
from prep_assets.stores.detect import local_path, payload_folders
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.open import open_store
from prep_assets.training.collate import padded


class RowDataset(Dataset[dict[str, Any]]):
    """The rows of a JSONL store or file, each read from disk when it is asked for.

    Args:
        path: a file, or a published store of lines.
        name: which file of the store, without its ending; the one that is not held out where it is not given.

    Raises:
        StoreError: the file does not exist, or has no row.
    """

    def __init__(self, path: Path | str, name: str | None = None) -> None:
        self.store = open_store(_lines(local_path(path), name), "jsonl")
        if not self.store.num_records:
            raise StoreError(f"{self.store.path} has no row")

    def __len__(self) -> int:
        return self.store.num_records

    def __getitem__(self, i: int) -> dict[str, Any]:
        row = self.store.fetch_record(i, self.store.keys)
        return {key: value for key, value in row.items() if value is not None}


class ContrastiveDataset(Dataset[dict[str, str]]):
    """Contrastive rows for embedding models: one item for each positive of a query, ``{"anchor", "positive", "negative_1", …}``.

    Args:
        path: the published store `contrastive` of a domain.
        negatives: how many negatives each item has, the first ones of its row.
        name: which file of the store, as of `RowDataset`.

    Raises:
        StoreError: no such store, or a row with fewer negatives, or one that is only to be embedded.
    """

    def __init__(self, path: Path | str, negatives: int = 0, name: str | None = None) -> None:
        self.rows, self.negatives = RowDataset(path, name), negatives
        counts = np.zeros(len(self.rows), np.int64)
        for number in range(len(self.rows)):
            row = self.rows[number]
            if len(row.get("negatives", ())) < negatives or not row.get("positives"):
                raise StoreError(
                    f"{self.rows.store.path} line {number + 1:,} has {len(row.get('positives', ()))} positive and {len(row.get('negatives', ()))} "
                    f"negative texts; each row needs one positive and {negatives} negatives"
                )
            counts[number] = len(row["positives"])
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int) -> dict[str, str]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"item {i} of {len(self)}")
        i %= len(self)
        number = int(np.searchsorted(self._ends, i, "right"))
        row = self.rows[number]
        negatives = {f"negative_{at}": text for at, text in enumerate(row["negatives"][: self.negatives], 1)} if self.negatives else {}
        return {"anchor": row["query"], "positive": row["positives"][i - int(self._ends[number])], **negatives}


class PromptDataset(Dataset[dict[str, Any]]):
    """Prompts to roll out: what `RowDataset` gives, and ``input_ids`` int64[P], which end where the model is to go on.

    Args:
        tokens: the published store `rl_tokens`.
        rows: the store that it was made from: `rl_prompts`, or `arithmetic_prompts` for the arithmetic curriculum.

    Raises:
        StoreError: no such store, or `tokens` was made from other rows.
    """

    def __init__(self, tokens: Path | str, rows: Path | str) -> None:
        self.rows = RowDataset(rows)
        name = "arithmetic" if self.rows.store.path.stem == "arithmetic_prompts" else "prompts"
        (folder,) = payload_folders(local_path(tokens))
        data = next((path for path in (folder / f"{name}.h5", folder / name) if path.exists()), None)
        if data is None:
            raise StoreError(f"{tokens} has no stream {name!r}; it needs the published store rl_tokens")
        self.store = open_store(data)
        made_from = Manifest.read(folder).recipe["prompts"]
        found = Manifest.read(self.rows.store.path.parent)
        if made_from.get(found.asset) != found.content_hash:
            raise StoreError(f"{folder} was not made from the prompts in {self.rows.store.path.parent}. Build rl_tokens again")
        self._row = np.load(folder / f"{name}.index" / "row.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": long(self.store.fetch_record(i, "sequence")), **self.rows[int(self._row[i])]}


@dataclass(frozen=True)
class PadPrompts:
    """Left-pads ``input_ids``, so that every prompt of a batch ends where its answer begins.

    Batch: ``input_ids, attention_mask`` int64[B, L], the mask 1 on tokens; every other field of the items as a list, `None` where one lacks it.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
        prompts: list[Tensor] = [item["input_ids"] for item in items]
        names = sorted({name for item in items for name in item} - {"input_ids"})
        return {
            "input_ids": padded(prompts, self.pad_id, left=True),
            "attention_mask": padded([torch.ones_like(row) for row in prompts], 0, left=True),
            **{name: [item.get(name) for item in items] for name in names},
        }


def _lines(path: Path, name: str | None) -> Path:
    if path.is_file():
        return path
    found = {
        each.stem: each for folder in payload_folders(path) for each in sorted(folder.glob("*.jsonl")) if not each.name.startswith(".")
    }
    if name is None:
        trained = [stem for stem in found if not stem.endswith("_test") and stem != "unpaired"]
        name = trained[0] if len(trained) == 1 else None
    if name not in found:
        message = f"no lines {name!r}{nearest(name, found)}; it has" if name else "several files of lines or none, so name one:"
        raise StoreError(f"{path} has {message} {', '.join(found) or 'none'}")
    return found[name]


def long(array: npt.NDArray[Any]) -> Tensor:
    """int64 tensor; a copy, so that nothing written into it reaches the store."""
    return torch.from_numpy(array.astype(np.int64))


def loss_weights(array: npt.NDArray[Any]) -> Tensor:
    """bool tensor, or float32 where the store's numbers are floating-point: all items of a store have one type."""
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array != 0)
