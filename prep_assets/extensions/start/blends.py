"""A blend in the words of trainers that draw from several data sets by themselves: Megatron-LM and OLMo-core.

They take the shares that a blend has, each in its own order. The order itself is read by `prep_assets.training.BlendDataset`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path

import numpy as np
from msgspec import Struct

from prep_assets.extensions.blends.store import BlendStore, windows_in
from prep_assets.stores.arrays import stretches
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import Table


class Share(Struct, frozen=True):
    """What a phase has of a domain.

    Attributes:
        folder: of the domain's export.
        level: of Megatron-LM's sequences, ``document`` or ``sentence``.
        items: windows that the phase has of it.
        known: windows that its stream has.
    """

    folder: Path
    level: str
    items: int
    known: int


def phases_of(blend: BlendStore, folders: Mapping[str, Path], streams: Mapping[str, Table]) -> list[dict[str, Share]]:
    """What each phase has of each domain, without domains of which it has nothing.

    Args:
        folders: the folder of each domain's export.
        streams: each domain's stream.
    """
    phases, begin = list[dict[str, Share]](), 0
    for end in blend.ends:
        counts = np.zeros(len(blend.domains), np.int64)
        for part in stretches(end - begin):
            counts += np.bincount(blend.domain[begin + part.start : begin + part.stop], minlength=len(counts))
        shares = dict[str, Share]()
        for name, count in zip(blend.domains, counts.tolist(), strict=True):
            level = "sentence" if STARTS in streams[name].columns else "document"
            if count:
                shares[name] = Share(folders[name], level, count, windows_in(len(streams[name].columns["tokens"].values), blend.window))
        phases.append(shares)
        begin = end
    return phases


def megatron_lines(phase: Mapping[str, Share], window: int) -> str:
    """Megatron-LM's arguments: weights are the windows that it has of each, so any scale serves."""
    pairs = " ".join(f"{share.items} {(share.folder / f'train_text_{share.level}').as_posix()}" for share in phase.values())
    items = sum(share.items for share in phase.values())
    return f"--train-data-path {pairs} --seq-length {window} --train-samples {items}"


def olmo_lines(phase: Mapping[str, Share], window: int) -> str:
    """OLMo-core's mixture."""
    items = sum(share.items for share in phase.values())
    sources = [
        f'    SourceMixtureConfig(source_name="{name}", target_ratio={share.items / items!r}, max_repetition_ratio='
        f'{max(1, ceil(share.items / share.known))}, paths=["{(share.folder / "token_ids_part_*.npy").as_posix()}"]),'
        for name, share in phase.items()
    ]
    lines = (
        "from olmo_core.data.source_mixture import SourceMixtureConfig, SourceMixtureDatasetConfig, SourceMixtureList",
        "sources = SourceMixtureList(sources=[",
        *sources,
        "])",
        "# global_batch_size is in tokens, a multiple of the sequence length",
        f"mixture = SourceMixtureDatasetConfig(source_list=sources, requested_tokens={items * window}, global_batch_size={window})",
    )
    return "\n".join(lines)


BLENDS: Mapping[str, Callable[[Mapping[str, Share], int], str]] = {"megatron": megatron_lines, "olmo": olmo_lines}
"""Trainer → what makes it draw as a phase of a blend says."""
