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
from prep_assets.extensions.blends.store import TOKENS, open_blend
from prep_assets.extensions.training.collate import IGNORE
from prep_assets.extensions.training.items import labels_of, loss_weights
from prep_assets.extensions.training.opening import hold, index_in, local_path, payload_folders
from prep_assets.pipeline.workspace import build_command
from prep_assets.stores.guards import Guards, Verify
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.published import Place, version_with
from prep_assets.stores.shards import ATTENTION
from prep_assets.stores.table import Table, open_table


class BlendDataset(Dataset[dict[str, Tensor]]):
    """The items of a blend, in its order: read them without shuffling, and item ``i`` is the i-th that is trained.

    Item of `pretrain_blend`, a window of W tokens: ``input_ids`` int64[W]; ``target_ids`` int64[W], the next tokens; where a domain has masks, ``loss_mask``
    bool[W] (float32 where it has other weights than 0 and 1) of the targets and ``attention_mask`` bool[W] of the inputs. Item of `sft_blend`, a
    conversation of T tokens: ``input_ids``, ``labels`` int64[T], unshifted, -100 where the token is not trained, as `Pad` and `PaddingFree` take them, and
    ``attention_mask`` int64[T].

    Args:
        path: the published store `pretrain_blend` or `sft_blend`.
        verify: as in `load`.

    Raises:
        StoreError: no such store; a version that it was made of is gone; loss weights that labels cannot express.
    """

    def __init__(self, path: Path | str, *, verify: Verify = "lazy") -> None:
        folders = payload_folders(local_path(path))
        manifest = Manifest.read(folders[0]) if len(folders) == 1 and (folders[0] / MANIFEST).is_file() else None
        if manifest is None or "blend" not in manifest.recipe:
            raise StoreError(f"{path} is no blend. Open the published store pretrain_blend or sft_blend")
        self.folder, self._verify = folders[0], verify
        hold(guards := Guards(verify), self.folder)
        self.blend = open_blend(self.folder, guards)
        asset, stem = TOKENS[manifest.asset.partition("_")[0]]
        root = next(parent.parent for parent in self.folder.resolve().parents if parent.name == manifest.asset)
        self._streams = list[Table]()
        for name in self.blend.domains:
            made_of = version_with(Place(root, asset, name), manifest.recipe["tokens"][name])
            if made_of is None:
                raise StoreError(
                    f"the version of {asset}[{name}] that {manifest.asset} was made of is gone. Make it again: {build_command(manifest.asset)}"
                )
            self._streams.append(open_table(made_of.directory, stem.format(name), name, Guards(verify)))
        self._masked, self._attended = (any(table.has(role) for table in self._streams) for role in ("weight", "attention"))
        self._fractions = any(table.columns[name].values.dtype.kind == "f" for table in self._streams for name in table.has("weight"))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(BlendDataset, verify=self._verify), (self.folder,)

    def __len__(self) -> int:
        return len(self.blend)

    def origin(self, i: int) -> tuple[str, int]:
        """The domain of item `i`, and its number there.

        Raises:
            IndexError: there is no such item.
        """
        i = index_in(index(i), len(self), f"{self.folder}: item")
        return self.blend.domains[int(self.blend.domain[i])], int(self.blend.item[i])

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        domain, item = self.origin(i)
        table, window = self._streams[self.blend.domains.index(domain)], self.blend.window
        span = slice(item * window, item * window + window + 1) if window else table.columns["tokens"].spans(item)[0]
        arrays = {name: np.asarray(column.values[span]) for name, column in table.columns.items()}
        tokens = arrays["tokens"].astype(np.int64)
        weights, attended = (arrays.get(key, np.ones(len(tokens), np.uint8)) for key in ("loss_mask", ATTENTION))
        if not window:
            ids = from_numpy(tokens)
            labels = labels_of(ids, arrays["loss_mask"], f"{domain} record {item:,}")
            labels[:1] = IGNORE
            conversation = {"input_ids": ids, "labels": labels}
            return conversation | ({ATTENTION: from_numpy((attended != 0).astype(np.int64))} if self._attended else {})
        found = {"input_ids": from_numpy(tokens[:-1]), "target_ids": from_numpy(tokens[1:])}
        if self._masked:
            found["loss_mask"] = loss_weights(weights[1:].astype(np.float32) if self._fractions else weights[1:])
        if self._attended:
            found[ATTENTION] = from_numpy(attended[:-1] != 0)
        return found
