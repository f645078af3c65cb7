"""Records of a token store for Grain, and so for torchtitan's pipeline, MaxText and others that stand on it."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.extensions.training.collate import IGNORE
from prep_assets.extensions.training.opening import OpenStore, folder_of_manifest, index_in, load
from prep_assets.stores.guards import Verify
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.shards import ATTENTION


class DocumentSource:
    """A `RandomAccessDataSource` of Grain over a token store: item i is record i, a document or chat, in the store's order.

    Item, for a record of T tokens: ``input_ids`` int64[T - 1], and ``labels`` int64[T - 1], the next tokens, **shifted**, -100 where they are not trained.
    Nothing is in the item of a record of one token: filter it out.

    Args:
        path: a published store of tokens, such as ``stores/sft_tokens``, of all its domains, or of one.
        form: what an item is made with, ``form(input_ids=…, labels=…)``: torchtitan's `TextSequence`; a dict by default.
        verify: as in `load`.

    Raises:
        StoreError: no such store; one without the borders of records, or with tokens that are not attended; loss weights other than 0 and 1.
    """

    def __init__(self, path: Path | str, form: Callable[..., Any] = dict, *, verify: Verify = "lazy") -> None:
        self.store: OpenStore = load(path, verify=verify)
        self.store.require(["sequence"])
        self.form, self._masked = form, "loss_mask" in self.store.keys
        if any(any(folder.glob("*.documents")) for folder in self.store.folders) or "sequence" not in self.store.data.ends:
            raise StoreError(
                f"{path} has rows of several documents, or does not say where they end. Give sft_tokens or pretrain_tokens, and let Grain pack"
            )
        if ATTENTION in self.store.keys:
            raise StoreError(
                f"{path} has tokens that are not attended, for which torchtitan has no place. Train with PackedDataset or BlendDataset"
            )

    def __len__(self) -> int:
        return self.store.num_records

    def __getitem__(self, record_key: SupportsIndex) -> Any:
        record = index_in(index(record_key), len(self), f"{self.store.path}: record")
        tokens = self.store.fetch_record(record, "sequence").astype(np.int64)
        labels = tokens[1:]
        if self._masked:
            weights = self.store.fetch_record(record, "loss_mask")[1:]
            if not np.isin(weights, (0, 1)).all():
                raise StoreError(f"{self.store.path}, record {record:,}: loss weights that are neither 0 nor 1 have no labels")
            labels = np.where(weights != 0, labels, IGNORE)
        return self.form(input_ids=tokens[:-1], labels=labels)

    def __repr__(self) -> str:
        """With the hash of each store, by which Grain finds that a checkpoint is of another."""
        names = list[str]()
        for folder in self.store.folders:
            manifest = Manifest.read(version) if (version := folder_of_manifest(folder)) is not None else None
            names.append(str(folder) if manifest is None else f"{manifest.label} {manifest.content_hash[:12]}")
        return f"DocumentSource({', '.join(names)}: {len(self):,} records)"

    def build(self, *, dataset_iteration_policy: Any) -> DocumentSource:
        """Itself, as torchtitan asks the `source` of a `SingleDatasetConfig`."""
        return self
