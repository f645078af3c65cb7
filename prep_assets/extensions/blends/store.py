"""The store of a blend: which item of which domain comes next, and what an item is. It holds no token.

blend/domain.npy   uint16[n], index into `domains`
blend/item.npy     uint32 or uint64[n], number of the window or record in the stream of its domain
blend/blend.json   domains, phases, window
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns, stretches
from prep_assets.stores.guards import Guards, load_columns, load_json
from prep_assets.stores.verification import write_json

FOLDER = "blend"
BLEND = "blend"
"""The stage of blends."""
TOKENS: Mapping[str, tuple[str, str]] = {"pretrain": ("pretrain_tokens", "{}_train"), "sft": ("sft_tokens", "train")}
"""Family → the asset that a blend is made of, and the stem of its training stream in the store of a domain."""


@dataclass(frozen=True, eq=False)
class BlendStore:
    """n items in the order in which they are trained.

    Attributes:
        domain: uint16[n], index into `domains`.
        item: uint32 or uint64[n], number of the item in its domain.
        domains: names, sorted.
        ends: of each phase, how many items are before its end.
        window: tokens of an item, each window beginning where the one before it ends; 0: items are records, of any length.
    """

    domain: npt.NDArray[Any]
    item: npt.NDArray[Any]
    domains: tuple[str, ...]
    ends: tuple[int, ...]
    window: int

    def __len__(self) -> int:
        return len(self.domain)


def write_blend(
    directory: Path,
    domain: npt.NDArray[np.int64],
    item: npt.NDArray[np.int64],
    domains: Sequence[str],
    ends: Sequence[int],
    window: int,
) -> None:
    """Write a blend; arguments as in `BlendStore`."""
    folder = directory / FOLDER
    most = max((int(item[part].max()) for part in stretches(len(item))), default=0)
    columns = Columns(folder, {"domain": "uint16", "item": "uint32" if most < 1 << 32 else "uint64"})
    for part in stretches(len(item), 1 << 16):
        columns.append({"domain": domain[part], "item": item[part]})
    columns.close()
    write_json(folder / "blend.json", {"domains": list(domains), "ends": list(ends), "window": window})


def open_blend(directory: Path, guards: Guards | None = None) -> BlendStore:
    """Open the blend of a store.

    Raises:
        StoreError: it is missing or damaged.
    """
    folder, guards = directory / FOLDER, guards or Guards()
    columns = load_columns(folder, ("domain", "item"), guards)
    meta = load_json(folder / "blend.json", guards)
    try:
        blend = BlendStore(columns["domain"], columns["item"], tuple(meta["domains"]), tuple(meta["ends"]), int(meta["window"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{folder / 'blend.json'} is damaged ({error!r}). Build the store again") from error
    if not blend.ends or blend.ends[-1] != len(blend):
        raise StoreError(f"{folder}: it has {len(blend):,} items, and its phases end at {list(blend.ends)}. Build the store again")
    return blend


def windows_in(tokens: int, window: int) -> int:
    """How many windows a stream of so many tokens has, each with the token after it."""
    return max(0, (tokens - 1) // window)
