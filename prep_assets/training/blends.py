"""The items of a blend, read from the stores that it is made of."""

from __future__ import annotations

from functools import partial
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, from_numpy
from torch.utils.data import Dataset

from prep_assets.errors import StoreError
from prep_assets.pipeline.blends import TOKENS
from prep_assets.pipeline.workspace import build_command
from prep_assets.stores.blends import open_blend
from prep_assets.stores.guards import Guards, Verify
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.open import local_path, payload_folders
from prep_assets.stores.published import Place, version_with
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens
from prep_assets.training.collate import IGNORE
from prep_assets.training.items import labels_of, long, loss_weights


class BlendDataset(Dataset[dict[str, Tensor]]):
    """The items of a blend, in its order: read them without shuffling, and item ``i`` is the i-th that is trained.

    Item of `pretrain_blend`, a window of W tokens: ``input_ids`` int64[W]; ``target_ids`` int64[W], the next tokens; where a domain has masks, ``loss_mask``
    bool[W] (float32 where it has other weights than 0 and 1) of the targets and ``attention_mask`` bool[W] of the inputs. Item of `sft_blend`, a
    conversation of T tokens: ``input_ids``, ``labels`` int64[T], unshifted, -100 where the token is not trained, as `Pad` and `PaddingFree` take them, and
    ``attention_mask`` int64[T].

    Args:
        path: the published store `pretrain_blend` or `sft_blend`.
        verify: as in `open_store`.

    Raises:
        StoreError: no such store; a version that it was made of is gone; loss weights that labels cannot express.
    """

    def __init__(self, path: Path | str, *, verify: Verify = "lazy") -> None:
        folders = payload_folders(local_path(path))
        manifest = Manifest.read(folders[0]) if len(folders) == 1 and (folders[0] / MANIFEST).is_file() else None
        if manifest is None or "blend" not in manifest.recipe:
            raise StoreError(f"{path} is no blend. Open the published store pretrain_blend or sft_blend")
        self.folder, self._verify = folders[0], verify
        self.blend = open_blend(self.folder, Guards(verify))
        asset, stem = TOKENS[manifest.asset.partition("_")[0]]
        root = next(parent.parent for parent in self.folder.resolve().parents if parent.name == manifest.asset)
        self._streams = list[TokenStore]()
        for name in self.blend.domains:
            made_of = version_with(Place(root, asset, name), manifest.recipe["tokens"][name])
            if made_of is None:
                raise StoreError(
                    f"the version of {asset}[{name}] that {manifest.asset} was made of is gone. Make it again: {build_command(manifest.asset)}"
                )
            self._streams.append(open_tokens(made_of.directory, stem.format(name), Guards(verify)))
        self._masked, self._attended = (any(key in store.arrays for store in self._streams) for key in ("loss_mask", ATTENTION))
        self._fractions = any("loss_mask" in store.arrays and store.arrays["loss_mask"].dtype.kind == "f" for store in self._streams)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(BlendDataset, verify=self._verify), (self.folder,)

    def __len__(self) -> int:
        return len(self.blend)

    def origin(self, i: int) -> tuple[str, int]:
        """The domain of item `i`, and its number there.

        Raises:
            IndexError: there is no such item.
        """
        if not -len(self) <= (i := index(i)) < len(self):
            raise IndexError(f"{self.folder}: item {i} of {len(self)}")
        return self.blend.domains[int(self.blend.domain[i])], int(self.blend.item[i])

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        domain, item = self.origin(i)
        store = self._streams[self.blend.domains.index(domain)]
        return self._window_of(store, item) if self.blend.window else self._record(store, item, f"{domain} record {item:,}")

    def _window_of(self, store: TokenStore, item: int) -> dict[str, Tensor]:
        begin = item * self.blend.window
        span = slice(begin, begin + self.blend.window + 1)
        tokens = np.asarray(store.arrays["tokens"][span]).astype(np.int64)
        window = {"input_ids": from_numpy(tokens[:-1]), "target_ids": from_numpy(tokens[1:])}
        if self._masked:
            weights = np.asarray(store.arrays["loss_mask"][span]) if "loss_mask" in store.arrays else np.ones(len(tokens), np.uint8)
            window["loss_mask"] = loss_weights(weights[1:].astype(np.float32) if self._fractions else weights[1:])
        if self._attended:
            attended = np.asarray(store.arrays[ATTENTION][span]) if ATTENTION in store.arrays else np.ones(len(tokens), np.uint8)
            window["attention_mask"] = from_numpy(attended[:-1] != 0)
        return window

    def _record(self, store: TokenStore, item: int, label: str) -> dict[str, Tensor]:
        tokens = long(store.record(item, "tokens"))
        labels = labels_of(tokens, store.record(item, "loss_mask"), label)
        labels[:1] = IGNORE
        attended = {}
        if self._attended:
            mask = store.record(item, ATTENTION) if ATTENTION in store.arrays else np.ones(len(tokens), np.uint8)
            attended["attention_mask"] = from_numpy((mask != 0).astype(np.int64))
        return {"input_ids": tokens, "labels": labels, **attended}
