"""Windows of a token stream. What a window costs is a copy of its numbers and its tensors: arrays are looked up once, when a data set is made."""

from __future__ import annotations

from operator import index
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor, from_numpy
from torch.utils.data import Dataset

from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.open import Store
from prep_assets.stores.windows import Keys
from prep_assets.training.compared import Compared

BLOCK = 1 << 16


class SequenceDataset(Dataset[dict[str, Tensor]]):
    """Windows of one token stream, for pretraining.

    Item: ``input_ids`` int64[W], tokens ``begin … end - 1``; ``target_ids`` int64[W], the tokens after them: shifted by one. Both are views
    of the same W + 1 tokens, which are the item's own and not the store's; a batch holds copies.
    """

    required: ClassVar[tuple[str, ...]] = ("sequence",)
    optional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, store: Store, window_size: int, stride: int | None = None, offset: int = 0) -> None:
        store.require(self.required)
        if "loss_mask" in store.keys and "loss_mask" not in self.required:
            raise ConfigError(
                f"{store.path} has a loss_mask, and these windows would train every token. Use train_type 'sft', or leave the mask out on "
                "purpose: open_store(path, keys=['sequence'])"
            )
        self.store, self.windows = store, store.windows(window_size, stride, offset)
        self._count, self._stride, self._offset, self._more = len(self.windows), self.windows.stride, offset, window_size + 1
        self._read = Compared([store.array(key) for key in (*self.required, *(key for key in self.optional if key in store.keys))])
        self._arrays = self._read.bare

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.windows.window_size, self.windows.stride, self.windows.offset)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        begin = self._begin(i)
        self._read.check(begin, begin + self._more)
        tokens = self._arrays[0][begin : begin + self._more].astype(np.int64)
        return {"input_ids": from_numpy(tokens[:-1]), "target_ids": from_numpy(tokens[1:])}

    def get_index(self, i: int) -> tuple[int, int]:
        """Where window `i` begins, and where its inputs end.

        Raises:
            IndexError: the window does not exist.
        """
        return self.windows[i]

    @overload
    def fetch(self, begin: int, end: int, keys: str) -> Tensor: ...
    @overload
    def fetch(self, begin: int, end: int, keys: Keys) -> dict[str, Tensor]: ...
    def fetch(self, begin: int, end: int, keys: str | Keys) -> Tensor | dict[str, Tensor]:
        """Tokens ``begin … end - 1`` of one key, or of several, whichever shards they are in: copies, in the store's own type.

        Raises:
            OutOfBounds: (a `ValueError`) not ``0 <= begin <= end <= length``.
            MissingKey: (a `KeyError`) no such key.
        """
        if isinstance(keys, str):
            return from_numpy(np.array(self.store.fetch(begin, end, keys)))
        return {key: self.fetch(begin, end, key) for key in keys}

    def _begin(self, i: int) -> int:
        i = index(i)
        return i * self._stride + self._offset if 0 <= i < self._count else self.windows[i][0]


class SftDataset(SequenceDataset):
    """Windows of a token stream with a loss mask.

    Item: as `SequenceDataset`, ``loss_mask`` bool[W], shifted like the targets (float32 where the store has floating-point weights), and
    ``position_ids`` int64[W] of the inputs. A target at position 0 begins a document and would be predicted from another one, so it is not
    in the loss. Where the store has one, ``attention_mask`` bool[W] of the inputs as well, false where a token is not attended.

    Raises:
        StoreError: all positions are 0.
    """

    required: ClassVar[tuple[str, ...]] = ("sequence", "loss_mask", "position_ids")
    optional: ClassVar[tuple[str, ...]] = ("attention_mask",)

    def __init__(self, store: Store, window_size: int, stride: int | None = None, offset: int = 0) -> None:
        super().__init__(store, window_size, stride, offset)
        positions = store.array("position_ids")
        # the first block has another position than 0 wherever positions mean anything
        if len(positions) > 1 and not any(np.any(positions[at : at + BLOCK]) for at in range(0, len(positions), BLOCK)):
            raise StoreError(
                f"{store.path}: position_ids are 0 at each of {len(positions):,} tokens, so that none would be trained: a token at 0 begins a "
                "document. Write them so that they begin at 0 in each document only"
            )

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        begin = self._begin(i)
        end = begin + self._more
        self._read.check(begin, end)
        sequence, loss_mask, position_ids, *attention = self._arrays
        tokens, positions = sequence[begin:end].astype(np.int64), position_ids[begin:end]
        item = {
            "input_ids": from_numpy(tokens[:-1]),
            "target_ids": from_numpy(tokens[1:]),
            "loss_mask": from_numpy(_inside(loss_mask[begin + 1 : end], positions[1:])),
            "position_ids": from_numpy(positions[:-1].astype(np.int64)),
        }
        return item | {"attention_mask": from_numpy(attention[0][begin : end - 1] != 0)} if attention else item


def _inside(mask: npt.NDArray[Any], positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The mask, 0 where a document begins: bool, or float32 of weights."""
    kept = np.logical_and(mask, positions)
    return np.where(kept, mask, 0).astype(np.float32) if mask.dtype.kind == "f" else kept
