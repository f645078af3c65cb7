"""Map-style data sets over a store, with AstrAI's training types, keys and types.

    seq    input_ids, target_ids                               windows of the token stream
    sft    input_ids, target_ids, loss_mask, position_ids      windows of the token stream; attention_mask where it has one
    dpo    chosen, rejected, chosen_mask, rejected_mask        records of any length
    grpo   prompts, responses, masks, rewards                  records with groups of responses

They end: an index past the last item raises `IndexError`, so ``for item in dataset`` stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.stores.detect import Format
from prep_assets.stores.guards import Verify
from prep_assets.stores.open import Store, open_store
from prep_assets.training.rows import long, loss_weights
from prep_assets.training.shared import share_memory as shared
from prep_assets.training.windows import SequenceDataset, SftDataset


class _Records(Dataset[dict[str, Any]]):
    required: ClassVar[tuple[str, ...]]

    def __init__(self, store: Store) -> None:
        store.require(self.required)
        if len(store.keys) and not store.num_records and not store.data.ends:
            raise StoreError(
                f"{store.path} does not say where its records end, so {', '.join(self.required)} cannot be told apart; give `offsets`"
            )
        self.store = store

    def __len__(self) -> int:
        return self.store.num_records

    def _where(self, i: int) -> str:
        return f"{self.store.path}, record {i}"


class PairDataset(_Records):
    """Preference pairs of any length.

    Item: ``chosen, rejected`` int64[C], int64[R]; ``chosen_mask, rejected_mask`` bool, unshifted, true on the answer.
    """

    required: ClassVar[tuple[str, ...]] = ("chosen", "rejected", "chosen_mask", "rejected_mask")

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        found = self.store.fetch_record(i, self.required)
        for side in ("chosen", "rejected"):
            if len(found[side]) != len(found[f"{side}_mask"]):
                raise StoreError(f"{self._where(i)}: {side} has {len(found[side])} tokens, its mask {len(found[f'{side}_mask'])}")
        return {key: (loss_weights if key.endswith("_mask") else long)(np.asarray(value)) for key, value in found.items()}


class GroupDataset(_Records):
    """Prompts with groups of responses, scored beforehand.

    Item: ``prompts`` int64[P]; ``responses`` list of int64, ``masks`` list of bool, one each for every response; ``rewards`` float32[G].
    A store's masks may also be called ``responses_mask``, which is how AstrAI's pipelines name them where they are not told.
    """

    required: ClassVar[tuple[str, ...]] = ("prompts", "responses", "rewards")

    def __init__(self, store: Store) -> None:
        self._masks = "responses_mask" if "masks" not in store.keys and "responses_mask" in store.keys else "masks"
        store.require((*self.required, self._masks))
        super().__init__(store)

    def __getitem__(self, i: int) -> dict[str, Any]:
        found = self.store.fetch_record(i, (*self.required, self._masks))
        responses, masks = (self._nested(i, found[key], key) for key in ("responses", self._masks))
        rewards = torch.from_numpy(np.array(found["rewards"], np.float32))
        lengths = ([len(part) for part in responses], [len(part) for part in masks])
        if lengths[0] != lengths[1] or len(lengths[0]) != len(rewards):
            raise StoreError(f"{self._where(i)}: responses of {lengths[0]} tokens, masks of {lengths[1]}, {len(rewards)} rewards")
        tensors = {"responses": [long(part) for part in responses], "masks": [loss_weights(part) for part in masks]}
        return {"prompts": long(np.asarray(found["prompts"])), **tensors, "rewards": rewards}

    def _nested(self, i: int, value: Any, key: str) -> list[npt.NDArray[Any]]:
        if not isinstance(value, list):
            raise StoreError(f"{self._where(i)}: {key} is one flat list, and nothing says where each response ends; give `element_offsets`")
        return [np.asarray(part) for part in value]


class DatasetFactory:
    """Data sets by training type."""

    windowed: ClassVar[Mapping[str, type[SequenceDataset]]] = {"seq": SequenceDataset, "sft": SftDataset}
    records: ClassVar[Mapping[str, type[PairDataset] | type[GroupDataset]]] = {"dpo": PairDataset, "grpo": GroupDataset}

    @classmethod
    def load(
        cls,
        train_type: str,
        load_path: Path | str,
        window_size: int | None = None,
        stride: int | None = None,
        storage_type: Format | None = None,
        *,
        offset: int = 0,
        share_memory: bool = False,
        verify: Verify = "lazy",
    ) -> SequenceDataset | PairDataset | GroupDataset:
        """Open a store and make the data set of `train_type` over it.

        Args:
            train_type: ``seq``, ``sft``, ``dpo`` or ``grpo``.
            window_size: tokens in an item; needed for ``seq`` and ``sft``.
            stride: tokens from one window to the next; `window_size` where it is not given.
            storage_type: instead of what `detect_format` finds.
            offset: tokens before the first window. Another one each epoch, drawn below `stride`, cuts the text at other places.
            verify: compare what is read with the manifest of the store, see `open_store`.
            share_memory: copy the arrays into memory that worker processes share. Needless for files that are memory-mapped.

        Raises:
            ConfigError: an unknown type, or no window size where one is needed.
            MissingKey: (a `KeyError`) the store lacks a key; the message lists required and available ones.
        """
        known = (*cls.windowed, *cls.records)
        if train_type not in known:
            raise ConfigError(f"train_type {train_type!r} is not one of {', '.join(known)}{nearest(train_type, known)}")
        if train_type in cls.records and (window_size, stride, offset) != (None, None, 0):
            raise ConfigError(f"train_type {train_type!r} gives whole records: window_size, stride and offset mean nothing. Leave them out")
        if train_type in cls.windowed and window_size is None:
            raise ConfigError(f"train_type {train_type!r} needs window_size, the number of tokens in an item")
        store = open_store(load_path, storage_type, verify=verify)
        store = shared(store) if share_memory else store
        if train_type in cls.windowed:
            assert window_size is not None
            return cls.windowed[train_type](store, window_size, stride, offset)
        return cls.records[train_type](store)
